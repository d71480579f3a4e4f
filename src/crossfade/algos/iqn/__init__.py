"""Implicit quantile networks (Dabney et al. 2018) for several agents that learn side by side."""
