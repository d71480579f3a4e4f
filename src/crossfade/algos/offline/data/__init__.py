"""Data of offline learning: what a dataset is, how it is normalised, and how batches are drawn from it.

dataset.py                            transitions as arrays, with their trajectories; checks.py refuses what is none
statistics.py                         normalisation
source.py                             data as networks read them, what batches are drawn from
choice.py                             the random numbers of an update: draws_numpy.py | draws_jax.py draw them
sampling_numpy.py | sampling_jax.py   batches from a source and these numbers
ring_numpy.py | ring_jax.py           rows that a model has imagined
loaders/                              files: OGBench, D4RL, Minari, ExORL
"""
