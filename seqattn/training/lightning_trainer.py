"""Lightning's `Trainer` from its settings."""

import logging
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any

from lightning import Callback, Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.profilers import AdvancedProfiler, PyTorchProfiler, SimpleProfiler

from seqattn.errors import UserError
from seqattn.ops.gpu import set_up
from seqattn.training.precision import OnceUnscaled, Shadow
from seqattn.training.sharding import FullySharded
from seqattn.training.trainer_options import TrainerOptions

_REFUSALS = (ValueError, TypeError, AttributeError, RuntimeError)
"""What else Lightning and torch raise for arguments that they do not accept."""
_PROFILERS: Mapping[str, Any] = {
    "simple": SimpleProfiler, "advanced": AdvancedProfiler, "pytorch": PyTorchProfiler
}  # fmt: skip


def made_trainer(
    options: TrainerOptions,
    run_dir: Path,
    callbacks: Sequence[Callback] = (),
    loggers: Sequence[Any] = (),
    plugins: Sequence[Any] = (),
) -> Trainer:
    """Build the Lightning trainer of a run, with irrelevant warnings silenced.

    Raises:
        UserError: for a combination that Lightning does not accept.
    """
    _quieten()
    if not options.on_cpu:
        set_up(options.tf32, options.cudnn_attention)
    others = (
        "lightning", "profiler", "restarts", "compile", "threads", "tf32", "cudnn_attention",
        "cuda_graphs", "accumulate_grad_batches", "gradient_clip_val",  # of `step.py`
    )  # fmt: skip
    own = {f.name: getattr(options, f.name) for f in fields(options) if f.name not in others}
    if options.on_cpu:  # Lightning's auto would use Apple's GPU, which has no float64
        own["accelerator"] = "cpu"
    if options.max_epochs is None:
        own["max_epochs"] = 20 if options.max_steps == -1 else -1
    fixed: dict[str, Any] = {
        "profiler": _PROFILERS[options.profiler](run_dir, "profile") if options.profiler else None,
        "logger": list(loggers),
        "callbacks": list(callbacks),
        "default_root_dir": str(run_dir),
        "use_distributed_sampler": False,
        "num_sanity_val_steps": 0,
        "enable_model_summary": False,
        "enable_progress_bar": False,  # `training.progress` has its own
        "plugins": list(plugins),
    }
    if isinstance(options.val_check_interval, int):  # in steps, which continue across epochs
        fixed["check_val_every_n_epoch"] = None
    device = "cpu" if options.on_cpu else "mps" if options.accelerator == "mps" else "cuda"
    precision = None
    if options.precision == "16-mixed":
        precision = MixedPrecision("16-mixed", device, OnceUnscaled(device))
    elif options.precision == "bf16-shadow":
        precision = Shadow(device)
    if precision is not None:
        fixed |= {"plugins": [*plugins, precision], "precision": None}
    if options.sharded:
        strategy = FullySharded(options.ranks * options.num_nodes)
        fixed |= {"strategy": strategy, "inference_mode": False}
    try:
        # a copy, since Lightning adds its own callbacks to the list
        return Trainer(**{**own, **fixed, **deepcopy(dict(options.lightning))})
    except (MisconfigurationException, *_REFUSALS) as error:
        raise UserError(f"trainer: {' '.join(str(error).split())}") from error


def _quieten() -> None:
    for name in ("lightning.pytorch", "lightning.fabric", "pytorch_lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for message in (
        "does not have many workers",
        "litlogger",
        "You have overridden `transfer_batch_to_device`",  # intended: done by the task
        "Starting from v1.9.0",
        "isinstance.treespec",
        "FSDP2-wrapped module",  # on views, which are never written to
        "lr_scheduler.step",
        "You're resuming from a checkpoint that ended before",  # `BatchLoader` starts anywhere
        "You are trying to `self.log",
        "It is recommended to use `self.log",  # of numbers only on the first rank
        "exists and is not empty",
        "smaller than the logging interval",
        "could not find the monitored key",  # before the first validation
        # of runs whose checkpoints have the states of the loop's parts beside each other
        "Be aware that when using `ckpt_path`, callbacks .*'Throughput'",
    ):
        warnings.filterwarnings("ignore", message=f".*{message}")
