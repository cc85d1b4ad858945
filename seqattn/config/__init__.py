"""Composition of a run's settings from Hydra's choices and a user's overrides."""
