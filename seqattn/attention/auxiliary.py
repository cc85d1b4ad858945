"""Losses that attentions have beside the task's, collected around any call."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from seqattn.attention.base import Attention, AuxiliaryLoss


@contextmanager
def auxiliary_losses(model: nn.Module) -> Iterator[list[AuxiliaryLoss]]:
    """Collects the losses that the attentions of `model` have in training.

    A training loop of one's own adds them to its loss:

        with auxiliary_losses(model) as losses:
            loss = cross_entropy(model(source, target), ...)
        loss = loss + sum(part.loss for part in losses)

    Leave the block before the backward pass: with activation checkpointing that pass calls the
    layers again, and each loss would be listed twice.

    Args:
        model: any module that holds attentions; in training mode, or nothing is collected.

    Yields:
        The losses, filled call by call; it stays empty where no attention has one.
    """
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    losses: list[AuxiliaryLoss] = []
    for attention in attentions:
        attention.collector = losses.append
    try:
        yield losses
    finally:
        for attention in attentions:
            attention.collector = None
