"""Proximal policy optimisation with masked actions: twins in torch and JAX, for worlds of any kind."""
