"""The rows of prepared corpora, fetched from memory-mapped shards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqattn.data.batch import Batch, collate
from seqattn.data.bucketing import BatchLimits
from seqattn.data.length_bands import Ints
from seqattn.data.loader import TokenRows
from seqattn.data.options import LoaderOptions
from seqattn.data.shard_files import AGAIN, LENGTHS, Manifest, Shard, digest_of
from seqattn.data.shard_windows import Passes, Rows, WindowSampler
from seqattn.errors import UserError
from seqattn.storage import is_file
from seqattn.tokens import EOS

Weights = Callable[[Sequence[int]], Sequence[float] | None]
"""From how many batches each corpus has to its weight."""
_opened = lru_cache(maxsize=256)(Shard)


class ShardedCorpus:
    """The training pairs of a prepared directory, as options let them be read.

    Args:
        root: the directory.
        manifest: what it holds.
        window: shards that are in play at once.
        first: the number of its first pair among those of all corpora.
        options: of the loader.

    Raises:
        UserError: a file is not there, or is not as long as the manifest says.
    """

    def __init__(
        self, root: Path, manifest: Manifest, window: int, first: int, options: LoaderOptions
    ) -> None:
        self.name, self.options, self.entries = str(root), options, manifest.train
        self.paths = [root / entry.name for entry in self.entries]
        for path, entry in zip(self.paths, self.entries, strict=True):
            if not is_file(path) or path.stat().st_size != entry.bytes:
                raise UserError(f"{path} is missing or damaged; {AGAIN}")
        path = root / LENGTHS
        if not is_file(path) or digest_of(path) != manifest.lengths_sha256:
            raise UserError(f"{path} is missing or damaged; {AGAIN}")
        self._table = np.load(path, mmap_mode="r")
        self.firsts = first + np.cumsum([0, *(entry.pairs for entry in self.entries)])
        self._parts = np.cumsum([0, *(entry.lengths for entry in self.entries)])
        read = (options.max_length, options.source_length, options.long_sources, window)
        shas = [entry.sha256 for entry in self.entries]
        self.digest = hashlib.sha256(f"{read} {shas}".encode()).hexdigest()
        # as equal as can be, so that the last window is not a small one
        self.windows = max(1, -(-len(self.entries) // window))
        self._bounds = [len(self.entries) * n // self.windows for n in range(self.windows + 1)]

    def lengths(self, window: int) -> npt.NDArray[np.int64]:
        """(3, E) source length, target length, and how many rows of the window have both."""
        start, stop = (self._parts[self._bounds[n]] for n in (window, window + 1))
        return self._table[start:stop].T.astype(np.int64)

    def histogram(self, window: int) -> npt.NDArray[np.int64]:
        found = self.lengths(window)
        found = found[:, self._readable(found[0], found[1])]
        found[0] = np.minimum(found[0], self.options.source_length)
        return found

    def read(self, window: int) -> Rows:
        parts = []
        for number in range(self._bounds[window], self._bounds[window + 1]):
            if digest_of(self.paths[number]) != self.entries[number].sha256:
                raise UserError(f"{self.paths[number]} is damaged; {AGAIN}")
            source, target = _opened(self.paths[number]).lengths()
            kept = np.flatnonzero(self._readable(source, target))
            clipped = np.minimum(source[kept], self.options.source_length)
            parts.append((kept + self.firsts[number], clipped, target[kept]))
        return Rows(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _readable(self, source: Ints, target: Ints) -> npt.NDArray[np.bool_]:
        fits = (target <= self.options.max_length) & (np.minimum(source, target) > 1)
        drops = self.options.long_sources == "drop"
        return fits & (source <= self.options.source_length) if drops else fits


class ShardRows(TokenRows[Batch]):
    """Pairs in shards; `source_lengths` and `target_lengths` are the longest of each window's rows.

    Args:
        corpora: one after the other.
        options: of the loader.
        weights: how the corpora are mixed.

    Raises:
        UserError: options that need the texts, or places in them.
    """

    def __init__(
        self, corpora: Sequence[ShardedCorpus], options: LoaderOptions, weights: Weights
    ) -> None:
        if options.subword_sampling is not None:
            raise UserError("shards hold ids; leave loader.subword_sampling out")
        if options.long_sources == "window":
            raise UserError("shards are not read in windows; set loader.long_sources=truncate")
        self.options, self._corpora, self._weights = options, corpora, weights
        self._paths = [path for one in corpora for path in one.paths]
        self._firsts = np.concatenate([one.firsts[:-1] for one in corpora])
        self._total = sum(entry.pairs for one in corpora for entry in one.entries)
        windows = [(one, window) for one in corpora for window in range(one.windows)]
        kept = [one.histogram(window) for one, window in windows]
        self._kept = sum(int(rows.sum()) for *_, rows in kept)
        longest = [found[:2].max(axis=1, initial=0) for found in kept]
        self.source_lengths, self.target_lengths = np.stack(longest, axis=1)
        self._cut = 0
        if options.long_sources == "truncate":
            found = (one.lengths(window) for one, window in windows)
            self._cut = sum(
                int(n[(s > options.source_length) & (t <= options.max_length)].sum())
                for s, t, n in found
            )

    def __len__(self) -> int:
        """How many numbers the pairs have, those that are left out too; 0 where all are."""
        return self._total if self._kept else 0

    def sampler(self, limits: BatchLimits, **order: Any) -> WindowSampler:
        longest = max(int(self.source_lengths.max()), int(self.target_lengths.max()))
        limits.check_holds(longest, f"the longest row ({longest} tokens)")
        seed, rank, world = (order.get(*one) for one in (("seed", 0), ("rank", 0), ("world", 1)))
        step = order.get("step_batches") or world
        passes = [Passes(one, limits, seed, step) for one in self._corpora]
        weights = self._weights([len(one) for one in passes])
        return WindowSampler(passes, weights, seed, rank, world)

    def batch(self, places: Sequence[int]) -> Batch:
        numbers = np.asarray(places)
        shards = np.searchsorted(self._firsts, numbers, side="right") - 1
        rows = numbers - self._firsts[shards]
        sources, targets = np.empty(len(rows), object), np.empty(len(rows), object)
        for shard in np.unique(shards).tolist():
            found = np.flatnonzero(shards == shard)
            for side, texts in enumerate((sources, targets)):
                ids = _opened(self._paths[shard]).rows(side, rows[found])
                for at, row in zip(found.tolist(), ids, strict=True):
                    texts[at] = row
        read = map(self._piece, sources) if self._cut else sources
        return collate(list(read), list(targets), numbers)

    def _piece(self, ids: Any) -> Any:
        longest = self.options.source_length
        return ids if len(ids) <= longest else np.append(ids[: longest - 1], ids.dtype.type(EOS))

    @property
    def advice(self) -> str:
        return "raise loader.max_length"

    def account(self, split: str) -> str:
        left, options = self._total - self._kept, self.options
        told = f"kept all {self._total:,} {split} pairs"
        if left:
            told = f"left out {left:,} of {self._total:,} {split} pairs, which are longer than "
            told += f"{options.max_length} tokens"
        if self._cut:
            told += f"; cut {self._cut:,} sources to their first {options.source_length} tokens"
        return told
