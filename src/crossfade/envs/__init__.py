"""Environments, each written twice (`<env>_numpy.py` beside `<env>_jax.py`) from one framework-free `params.py`."""
