"""Training a GFlowNet: discrete and continuous worlds, evaluation, pictures, proof, bench."""
