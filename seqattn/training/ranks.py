"""Rank of this process among those of a training run."""

import os


def rank() -> int:
    """Return the rank of this process, from torchrun or SLURM."""
    return int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0)


def world_size() -> int:
    """Return the number of ranks, from torchrun or SLURM; 1 without them."""
    if "SLURM_PROCID" in os.environ and "WORLD_SIZE" not in os.environ:
        return int(os.environ.get("SLURM_NTASKS") or 1)  # in an interactive shell there is no rank
    return int(os.environ.get("WORLD_SIZE") or 1)
