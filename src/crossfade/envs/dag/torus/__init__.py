"""The continuous torus of alexhernandezgarcia/gflownet."""
