"""Contestants: one file each, run by `worker.py` in a process of its own."""
