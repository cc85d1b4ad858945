"""Selection of the pairs of a corpus that are worth training on."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from seqattn.checking import Count
from seqattn.errors import UserError

Hashes = npt.NDArray[np.uint64]
REPLACED = "\ufffd"
"""Replacement character of invalid UTF-8."""
_AT_ONCE = 1 << 24  # hashes sorted together: 128 MB


@dataclass(frozen=True)
class Cleaning:
    """Rules for dropping pairs, in addition to those with an empty side or bad encoding.

    Args:
        min_length: minimum characters of each side.
        max_length: maximum characters of each side; None for no limit.
        max_ratio: maximum ratio of characters, longer side to shorter; None for no limit.
        duplicates: drop repeated pairs, equal on both sides. Pairs are compared by a 64-bit hash;
            the expected loss is 0.001 pairs in 10^8 different ones.

    Raises:
        UserError: if the range of lengths is empty.
    """

    min_length: Count = 1
    max_length: Count | None = 2000
    max_ratio: Annotated[float, Ge(1), Le(10**6)] | None = 9.0
    duplicates: bool = True

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length < self.min_length:
            raise UserError(
                f"clean.max_length must be at least clean.min_length ({self.min_length}), "
                f"got {self.max_length}"
            )

    def fault(self, source: str, target: str) -> str | None:
        """Return why a pair is dropped; None if it is retained."""
        if REPLACED in source or REPLACED in target:
            return "bad encoding"
        if not source.strip() or not target.strip():
            return "empty side"
        short, long = sorted((len(source), len(target)))
        if short < self.min_length:
            return f"shorter than {self.min_length:,} characters"
        if self.max_length is not None and long > self.max_length:
            return f"longer than {self.max_length:,} characters"
        if self.max_ratio is not None and long > self.max_ratio * short:
            return f"length ratio above {self.max_ratio:g}"
        return None


class Cleaned(NamedTuple):
    """Retained pairs, their hashes, and the number of dropped pairs by reason."""

    sources: list[str]
    targets: list[str]
    hashes: Hashes
    faults: Counter[str]


def cleaned(pairs: Iterable[tuple[str, str]], cleaning: Cleaning) -> Cleaned:
    """Drop pairs by the rules of `cleaning`, except duplicates."""
    sources, targets, hashes, faults = [], [], bytearray(), Counter[str]()
    for source, target in pairs:
        fault = cleaning.fault(source, target)
        try:
            content = f"{len(source)} {source}{target}".encode()
        except UnicodeEncodeError:  # an unpaired surrogate
            fault = "bad encoding"
        if fault is not None:
            faults[fault] += 1
            continue
        sources.append(source)
        targets.append(target)
        hashes += hashlib.blake2b(content, digest_size=8).digest()
    return Cleaned(sources, targets, np.frombuffer(bytes(hashes), np.uint64), faults)


def first_of_each(parts: list[Hashes]) -> Iterator[npt.NDArray[np.int64]]:
    """Return for each part the rows whose hash is new, within it and in all earlier parts.

    Few hashes are sorted at a time, however many there are.
    """
    masks = [np.zeros(len(part), bool) for part in parts]
    passes = -(-sum(map(len, parts)) // _AT_ONCE)
    for number in range(passes):
        rows = [np.flatnonzero(part % np.uint64(passes) == number) for part in parts]
        some = np.concatenate([part[selected] for part, selected in zip(parts, rows, strict=True)])
        first = np.zeros(len(some), bool)
        first[np.unique(some, return_index=True)[1]] = True
        ends = np.cumsum([0, *map(len, rows)])
        for mask, selected, start in zip(masks, rows, ends.tolist(), strict=False):
            mask[selected] = first[start : start + len(selected)]
    return map(np.flatnonzero, masks)
