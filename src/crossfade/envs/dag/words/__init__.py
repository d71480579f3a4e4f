"""Objects written word by word: bit sequences, fixed-length sequences over a landscape, Ising spins."""
