"""Structures of Bayesian networks, built edge by edge and scored on data."""
