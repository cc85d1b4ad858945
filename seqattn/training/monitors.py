"""Callbacks that log clipping, memory, device use and gradients."""

import resource
import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from seqattn.checking import Count
from seqattn.errors import UserError
from seqattn.training.run_logger import run_loggers, show_histograms


def logs_now(trainer: Trainer) -> bool:
    """Return True if the optimizer step that ends is logged."""
    every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    return trainer.global_step % max(1, every) == 0


class ClipShare(Callback):
    """Log the share of updates with a clipped gradient since the last log."""

    def __init__(self) -> None:
        self._clipped: Tensor | int = 0
        self._updates = 0

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        limit = pl_module.optimization.clip
        if not limit:
            return
        self._clipped = self._clipped + (pl_module.gradient_norm > limit)
        self._updates += 1
        if logs_now(trainer):
            pl_module.log("train/clip_share", self._clipped / self._updates, batch_size=1)
            self._clipped = self._updates = 0

    def state_dict(self) -> dict[str, Any]:
        return {"clipped": int(self._clipped), "updates": self._updates}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._clipped, self._updates = state_dict["clipped"], state_dict["updates"]


class DeviceFigures(Callback):
    """Log peak memory, and utilization of a GPU.

    On a CPU it is the resident memory of this process, on a GPU the memory of its tensors.
    """

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if logs_now(trainer):
            figures = device_figures(pl_module.device)
            pl_module.log_dict({f"train/{n}": x for n, x in figures.items()}, batch_size=1)


def device_figures(device: torch.device) -> dict[str, float]:
    """Return peak memory in MB (10^6 bytes), and the recent utilization of a GPU (0 to 1).

    The second is omitted if it is not available: it needs the package `nvidia-ml-py` and the
    driver's support, which is missing for a part of a GPU (MIG).
    """
    if device.type != "cuda":
        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"peak_memory_mb": peak * unit / 1e6}
    figures = {"peak_memory_mb": torch.cuda.max_memory_allocated(device) / 1e6}
    with suppress(Exception):  # that package has a class for each error
        figures["gpu_busy_share"] = torch.cuda.utilization(device) / 100
    return figures


class GradientHistograms(Callback):
    """Log histograms of the gradients of updates by part, to TensorBoard and wandb.

    Gradients are those of the optimizer, after clipping.

    Args:
        every: optimizer steps between logs.
        by: part for embeddings, encoder, decoder and so on; layer for each layer of them.
    """

    def __init__(self, every: Count = 100, by: Literal["part", "layer"] = "part") -> None:
        self.every, self.by = every, by

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.check_loggers(map(type, trainer.loggers))

    @staticmethod
    def check_loggers(kinds: Iterable[type]) -> None:
        """Raise UserError if no logger shows histograms."""
        if not show_histograms(kinds):
            raise UserError(
                "gradient histograms need a logger that shows them; add logger=[csv,tensorboard] "
                "or logger=[csv,wandb]"
            )

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        if trainer.global_step % self.every:
            return
        parts = gradients_by_part(pl_module.model.named_parameters(), self.by == "layer")
        for logger in run_loggers(trainer.loggers) if trainer.is_global_zero else ():
            for name, values in parts.items():
                logger.show_histogram(f"gradients/{name}", values, trainer.global_step - 1)


def gradients_by_part(
    parameters: Iterable[tuple[str, nn.Parameter]], layers: bool
) -> dict[str, Tensor]:
    """Return all gradients of each part, concatenated, on the host; shards are gathered.

    Numbers that are not finite, which only a skipped update can have, are omitted.

    Args:
        layers: True to treat each layer as a part, such as `encoder.layers.0`.
    """
    chunks: dict[str, list[Tensor]] = defaultdict(list)
    for name, parameter in parameters:
        gradient = parameter.grad
        if isinstance(gradient, DTensor):
            gradient = gradient.full_tensor()
        if gradient is not None:
            numbers = gradient.detach().float().cpu()
            chunks[_part(name, layers)].append(numbers[numbers.isfinite()])
    joined = {part: torch.cat(several) for part, several in chunks.items()}
    return {part: numbers for part, numbers in joined.items() if len(numbers)}


def _part(name: str, layers: bool) -> str:
    """Return the part of a model that a parameter belongs to, from its name."""
    words = name.split(".")
    if any("embedding" in word for word in words):
        return "embeddings"
    if layers and "layers" in words[:-1]:
        return ".".join(words[: words.index("layers") + 2])
    return words[0]
