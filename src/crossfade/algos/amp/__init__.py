"""Adversarial motion priors (Peng et al. 2021): a learned style reward beside the task's, as a hook of PPO."""
