"""What a run was made with, beside its settings: versions, the device, the state of the code."""

import platform
import subprocess
from pathlib import Path
from typing import Any

import lightning
import torch

from seqattn import __version__
from seqattn.training.trainer_options import TrainerOptions


def environment(options: TrainerOptions) -> dict[str, Any]:
    """Versions, device and threads, and the git state of the folder that the command runs in."""
    on_gpu = torch.cuda.is_available() and not options.on_cpu
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "lightning": lightning.__version__,
        "seqattn": __version__,
        "device": torch.cuda.get_device_name() if on_gpu else platform.machine(),
        "devices": options.ranks * options.num_nodes,
        "threads": torch.get_num_threads(),
    }
    return found | git_state(Path.cwd())


def git_state(folder: Path) -> dict[str, Any]:
    """The commit of a folder, and whether its files are others; nothing where there is no git."""
    commit = _git(folder, "rev-parse", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    if commit is None or changed is None:
        return {}
    return {"commit": commit, "uncommitted_changes": bool(changed)}


def _git(folder: Path, *words: str) -> str | None:
    """What git says; None where it is not there, knows no such folder, or takes too long."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return told.stdout.strip()
