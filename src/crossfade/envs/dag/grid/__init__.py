"""The grid of alexhernandezgarcia/gflownet with its Gaussian corners."""
