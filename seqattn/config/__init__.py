"""Hydra's choices and a user's overrides, and how they become the values of a run."""
