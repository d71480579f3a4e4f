"""Offline reinforcement learning in two phases: nine agents that learn from data alone.

An agent is a folder: `params.py` states it without a framework (its maths, modules, terms of the loss, who learns from
which, targets, randomness), `agent_torch.py | agent_jax.py` compute the terms. What all agents share stands beside
the folders: networks, the sum of the terms, the learner with its one Adam, datasets and sampling.
"""
