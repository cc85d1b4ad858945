"""Rank of this process among those of a training run."""

import os
import re

from seqattn.errors import UserError

_MAX = 65_535
"""Largest value of a variable, such as a port."""


def rank() -> int:
    """Return the rank of this process, from torchrun or SLURM."""
    return int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0)


def world_size() -> int:
    """Return the number of ranks, from torchrun or SLURM; 1 without them."""
    if "SLURM_PROCID" in os.environ and "WORLD_SIZE" not in os.environ:
        return int(os.environ.get("SLURM_NTASKS") or 1)  # in an interactive shell there is no rank
    return int(os.environ.get("WORLD_SIZE") or 1)


def check_ranks() -> None:
    """Raise UserError for variables of torchrun or SLURM that are no numbers, or contradict."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "SLURM_PROCID", "SLURM_NTASKS")
    for name in names:
        value = os.environ.get(name) or "0"
        if not re.fullmatch("[0-9]{1,9}", value) or int(value) > _MAX:
            raise UserError(
                f"{name}={value} in the environment must be a number up to {_MAX:,}; correct it, "
                "or start the ranks with torchrun"
            )
    if not rank() < world_size() and "WORLD_SIZE" in os.environ:
        raise UserError(
            f"RANK={rank()} in the environment must be below WORLD_SIZE={world_size()}; correct "
            "both, or start the ranks with torchrun"
        )
