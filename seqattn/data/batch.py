"""A batch of sentence pairs as padded tensors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.data.options import BatchLimits
from seqattn.tokens import BOS, PAD

Ids = Sequence[int] | npt.NDArray[np.integer[Any]]
BatchT = TypeVar("BatchT", bound="Tensors")


@dataclass(frozen=True)
class Tensors:
    """A batch whose tensors are moved and split along the rows together."""

    counts: ClassVar[Mapping[str, str]]
    """Attributes that count tokens, each with the name of its ids (B, L)."""

    def to(self: BatchT, device: torch.device | str, non_blocking: bool = False) -> BatchT:
        """Return the batch on another device."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self: BatchT) -> BatchT:
        """Return the batch in page-locked memory; called by `DataLoader(pin_memory=True)`."""
        return self._map(Tensor.pin_memory)

    def halves(self: BatchT) -> list[BatchT]:
        """Return two halves of the rows, padding kept; empty for one row."""
        middle = len(getattr(self, next(iter(self.counts.values())))) // 2
        if not middle:
            return []
        parts = [self._map(lambda x: x[:middle]), self._map(lambda x: x[middle:])]
        return [replace(part, **part._counted()) for part in parts]

    def twice(self: BatchT) -> BatchT:
        """Return all rows twice."""
        numbers = {name: 2 * getattr(self, name) for name in self.counts}
        return replace(self._map(lambda x: torch.cat((x, x))), **numbers)

    def rounded(self: BatchT, limits: BatchLimits) -> BatchT:
        """Return the batch, with more padding where `limits.rounded` asks for it."""
        return self

    @property
    def padding_share(self) -> float:
        """Return the share of padding in the counted ids (0 to 1)."""
        positions = sum(getattr(self, of).numel() for of in self.counts.values())
        return 1.0 - sum(getattr(self, name) for name in self.counts) / positions

    def _counted(self) -> dict[str, int]:
        return {name: int((getattr(self, of) != PAD).sum()) for name, of in self.counts.items()}

    def _map(self: BatchT, change: Callable[[Tensor], Tensor]) -> BatchT:
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        tensors = {name: part for name, part in parts.items() if isinstance(part, Tensor)}
        return replace(self, **{name: change(tensor) for name, tensor in tensors.items()})


@dataclass(frozen=True)
class Batch(Tensors):
    """Sentence pairs, padded on the right.

    Attributes:
        source: (B, S) int64, source ids with the end mark, padded with `PAD`.
        target_input: (B, T) int64, the begin mark and the target: input of the decoder.
        target_output: (B, T) int64, the target and the end mark: labels.
        index: (B,) int64, row numbers in the dataset.
        source_tokens: number of real positions in `source`.
        target_tokens: number of real positions in `target_output`; a loss divides by it.
    """

    counts: ClassVar[Mapping[str, str]] = {
        "source_tokens": "source",
        "target_tokens": "target_output",
    }
    source: Tensor
    target_input: Tensor
    target_output: Tensor
    index: Tensor
    source_tokens: int
    target_tokens: int

    def rounded(self: BatchT, limits: BatchLimits) -> BatchT:
        names = ("source", "target_input", "target_output")
        sides = [getattr(self, name) for name in names]
        more = [limits.rounded(side.shape[1]) - side.shape[1] for side in sides]
        padded = [F.pad(side, (0, count), value=PAD) for side, count in zip(sides, more)]
        return replace(self, **dict(zip(names, padded, strict=True)))


def collate(sources: Sequence[Ids], targets: Sequence[Ids], index: Sequence[int] | Ids) -> Batch:
    """Pad rows of ids into a batch.

    Args:
        sources: B rows of source ids, each with its end mark.
        targets: B rows of target ids, each with its end mark and without a begin mark.
        index: B row numbers in the dataset.
    """
    target_output = pad_rows(targets)
    # the output shifted right by one; the end mark is never an input
    target_input = np.where(target_output == PAD, PAD, np.roll(target_output, 1, axis=1))
    target_input[:, 0] = BOS
    return Batch(
        source=torch.from_numpy(pad_rows(sources)),
        target_input=torch.from_numpy(target_input),
        target_output=torch.from_numpy(target_output),
        index=torch.from_numpy(np.asarray(index, np.int64)),
        source_tokens=sum(map(len, sources)),
        target_tokens=sum(map(len, targets)),
    )


def pad_rows(rows: Sequence[Ids]) -> npt.NDArray[np.int64]:
    """Pad B rows of ids with `PAD` to an array (B, L), with L the longest length, at least 1."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    padded = np.full((len(rows), max(1, int(lengths.max()))), PAD, np.int64)
    # in row-major order, the unpadded positions are the concatenated rows
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return padded
