"""Contestants: one file each, run by `worker.py` in its own process."""
