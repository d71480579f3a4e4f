"""The continuous cube of alexhernandezgarcia/gflownet."""
