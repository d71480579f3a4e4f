"""Optimisation shared by all systems: optimiser state in neutral form, the functional step, clipping, averages."""
