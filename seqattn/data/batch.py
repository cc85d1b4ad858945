"""A batch of sentence pairs as padded tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seqattn.data.tokenizer import BOS, PAD

Ids = Sequence[int] | npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Batch:
    """Sentence pairs, padded on the right.

    Attributes:
        source: (B, S) int64, source ids with the end mark, padded with `PAD`.
        target_input: (B, T) int64, the begin mark and then the target: what the decoder reads.
        target_output: (B, T) int64, the target and then the end mark: what it must say.
        index: (B,) int64, the rows' numbers in the dataset.
        source_tokens: how many positions of `source` are real.
        target_tokens: how many positions of `target_output` are real; a loss divides by it.
    """

    source: Tensor
    target_input: Tensor
    target_output: Tensor
    index: Tensor
    source_tokens: int
    target_tokens: int

    @property
    def padding_share(self) -> float:
        """Padded positions of source and target, as a share of all their positions (0 to 1)."""
        positions = self.source.numel() + self.target_output.numel()
        return 1.0 - (self.source_tokens + self.target_tokens) / positions

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """Gives the same batch on another device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """Gives the same batch in page-locked memory; `DataLoader(pin_memory=True)` calls it."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        return replace(
            self,
            source=change(self.source),
            target_input=change(self.target_input),
            target_output=change(self.target_output),
            index=change(self.index),
        )


def collate(sources: Sequence[Ids], targets: Sequence[Ids], index: Sequence[int] | Ids) -> Batch:
    """Pads rows of ids into a batch.

    Args:
        sources: B rows of source ids, each with its end mark.
        targets: B rows of target ids, each with its end mark and without a begin mark.
        index: B row numbers in the dataset.

    Returns:
        The batch; S and T are the longest rows' lengths.
    """
    source = pad_rows(sources)
    target_output = pad_rows(targets)
    target_input = np.full_like(target_output, PAD)
    target_input[:, 1:] = target_output[:, :-1]
    # The end mark is an output only: each row's input is one place to the right of its output,
    # so what stood last (the end mark) must not be read.
    lengths = np.fromiter((len(row) for row in targets), np.int64, len(targets))
    beyond = np.arange(target_output.shape[1]) >= lengths[:, None]  # (B, T)
    target_input[beyond] = PAD
    target_input[:, 0] = BOS
    return Batch(
        source=torch.from_numpy(source),
        target_input=torch.from_numpy(target_input),
        target_output=torch.from_numpy(target_output),
        index=torch.from_numpy(np.asarray(index, np.int64)),
        source_tokens=sum(len(row) for row in sources),
        target_tokens=int(lengths.sum()),
    )


def pad_rows(rows: Sequence[Ids]) -> npt.NDArray[np.int64]:
    """Puts rows of ids into one array, padded on the right.

    Args:
        rows: B rows of ids.

    Returns:
        (B, L) int64 with L the longest row's length, `PAD` where a row has ended.
    """
    lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
    padded = np.full((len(rows), int(lengths.max())), PAD, np.int64)
    # Row-major order of the real places is the order of the concatenated rows.
    real = np.arange(padded.shape[1]) < lengths[:, None]  # (B, L)
    padded[real] = np.concatenate([np.asarray(row, np.int64) for row in rows])
    return padded
