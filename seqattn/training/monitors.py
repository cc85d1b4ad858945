"""A callback that logs gradients."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Literal

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from seqattn.checking import Count
from seqattn.errors import UserError
from seqattn.training.run_logger import run_loggers, show_histograms


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
    gradients = {part: torch.cat(tensors) for part, tensors in chunks.items()}
    return {part: numbers for part, numbers in gradients.items() if len(numbers)}


def _part(name: str, layers: bool) -> str:
    """Return the part of a model that a parameter belongs to, from its name."""
    words = name.split(".")
    if any("embedding" in word for word in words):
        return "embeddings"
    if layers and "layers" in words[:-1]:
        return ".".join(words[: words.index("layers") + 2])
    return words[0]
