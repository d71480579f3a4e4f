"""Futures trading learned with PPO."""
