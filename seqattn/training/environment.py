"""Environment of a run: versions, device, and state of the code."""

import platform
import subprocess
from pathlib import Path
from typing import Any

import lightning
import torch

from seqattn import __version__
from seqattn.training.trainer_options import TrainerOptions


def environment(options: TrainerOptions) -> dict[str, Any]:
    """Return versions, device and threads, and the git state of the working directory."""
    on_gpu = torch.cuda.is_available() and not options.on_cpu
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "lightning": lightning.__version__,
        "seqattn": __version__,
        "device": torch.cuda.get_device_name() if on_gpu else platform.machine(),
        "devices": options.ranks * options.num_nodes,
        "threads": torch.get_num_threads(),
    }
    return facts | git_state(Path.cwd())


def git_state(folder: Path) -> dict[str, Any]:
    """Return the commit of a folder and whether its files have changed; empty without git."""
    commit = _git(folder, "rev-parse", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    if commit is None or changed is None:
        return {}
    return {"commit": commit, "uncommitted_changes": bool(changed)}


def _git(folder: Path, *words: str) -> str | None:
    """Return git's output; None if git is missing, fails or takes too long."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return completed.stdout.strip()
