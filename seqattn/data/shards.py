"""Prepared corpora as a source: trained on from shards, validated on texts."""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa

from seqattn.checking import Count, Positive
from seqattn.data.base import Source
from seqattn.data.batch import Batch, collate
from seqattn.data.loader import TokenRows
from seqattn.data.options import BatchLimits, LoaderOptions
from seqattn.data.reading import piece
from seqattn.data.shard_files import (
    AGAIN,
    TOKENIZER,
    Manifest,
    check_whole,
    open_shard,
    read_manifest,
)
from seqattn.data.shard_windows import Passes, ShardedCorpus, WindowSampler
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.storage import file_faults, user_path

Weights = Callable[[Sequence[int]], Sequence[float] | None]
"""From how many batches each corpus has to its weight."""


class ShardRows(TokenRows[Batch]):
    """Pairs in shards; `source_lengths` and `target_lengths` are the longest of each window's rows.

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
                ids = open_shard(self._paths[shard]).rows(side, rows[found])
                for at, row in zip(found.tolist(), ids, strict=True):
                    texts[at] = row
        read = [piece(ids, self.options) for ids in sources]
        return collate(read, list(targets), numbers)

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


class Shards(Source):
    """Corpora that `seqattn prepare` made, which may be larger than memory.

    Args:
        root: a prepared directory, or several with one vocabulary, whose batches are mixed.
            Validation and test texts are those of the first.
        weights: of each directory, its share of the batches times any number; None for shares by
            `temperature`.
        temperature: T of shares that go with size ** (1 / T) (Arivazhagan 2019, arXiv 1907.05019,
            section 4.2), where sizes are in batches: 1 sees each pair once an epoch, more favours
            small directories.
        window: shards of a directory that are in play at once.

    Raises:
        UserError: weights that do not go with the directories.
    """

    def __init__(
        self,
        root: str | list[str],
        weights: list[Positive] | None = None,
        temperature: Positive = 1.0,
        window: Count = 4,
    ) -> None:
        self.roots = [user_path(one) for one in ([root] if isinstance(root, str) else root)]
        if not self.roots or len(set(self.roots)) < len(self.roots):
            raise UserError("data.root must name different prepared directories")
        if weights is not None and len(weights) != len(self.roots):
            raise UserError(
                f"data.weights must have one for each of {len(self.roots)} directories, "
                f"got {len(weights)}"
            )
        if weights is not None and temperature != 1:
            raise UserError("the shares come from data.weights or data.temperature; leave one out")
        self._weights, self.temperature, self.window = weights, temperature, window

    @cached_property
    def manifests(self) -> list[Manifest]:
        """What each directory holds.

        Raises:
            UserError: one is not prepared, or has another vocabulary than the first.
        """
        found = [read_manifest(root) for root in self.roots]
        for root, manifest in zip(self.roots, found, strict=True):
            if manifest.fingerprint != found[0].fingerprint:
                raise UserError(
                    f"data.root={root} has another vocabulary than {self.roots[0]}; prepare it "
                    f"with vocabulary={self.roots[0]}"
                )
        return found

    @property
    def tokenizer_config(self) -> TokenizerConfig:
        """The settings of the vocabulary that the shards were made with."""
        return self.manifests[0].tokenizer

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary that the shards were made with."""
        manifest = self.manifests[0]  # first, to say that a directory is none of ours
        found = Tokenizer.load(self.roots[0] / TOKENIZER)
        if found.fingerprint != manifest.fingerprint:
            raise UserError(f"{self.roots[0] / TOKENIZER} is another than the manifest's; {AGAIN}")
        return found

    def load(self, split: str, cache_dir: Path | None = None) -> datasets.Dataset:
        root, splits = self.roots[0], self.manifests[0].splits
        if split not in splits:
            raise UserError(
                f"data.root={root} has texts of {' and '.join(splits)}, got split={split}; what "
                "is trained on is kept as ids alone"
            )
        path = root / splits[split].name
        check_whole(path, splits[split].sha256)
        try:
            with file_faults("read", path):
                table = datasets.Dataset.from_file(str(path))
        except pa.ArrowException as error:
            raise UserError(f"{path} is damaged; {AGAIN}") from error
        texts = {"source", "target"} <= set(table.column_names)
        if not texts or len(table) != splits[split].rows:
            raise UserError(
                f"{path} must hold {splits[split].rows:,} pairs of texts, it does not; {AGAIN}"
            )
        return table

    def origin(self, split: str) -> str:
        if split == "train":
            return " and ".join(map(str, self.roots))
        entry = self.manifests[0].splits.get(split)
        return str(self.roots[0] / entry.name) if entry else f"{self.roots[0]} ({split})"

    def rows(self, tokenizer: Tokenizer, options: LoaderOptions) -> ShardRows:
        """The pairs to train on, as ids.

        Raises:
            UserError: a shard is missing, another vocabulary, or options that need the texts.
        """
        if tokenizer.fingerprint != self.manifests[0].fingerprint:
            raise UserError(
                f"the shards of data.root={self.roots[0]} are of another vocabulary than the "
                "model's; prepare them with vocabulary=RUN/model"
            )
        corpora, first, sizes = [], 0, (tokenizer.source_size, tokenizer.target_size)
        for root, manifest in zip(self.roots, self.manifests, strict=True):
            corpora.append(ShardedCorpus(root, manifest, self.window, first, options, sizes))
            first += manifest.pairs
        return ShardRows(corpora, options, self.weights)

    def weights(self, sizes: Sequence[int]) -> list[float] | None:
        """The weight of each directory. Args: sizes: the batches of each."""
        if self._weights is not None or self.temperature == 1:
            return self._weights
        return [(size / max(sizes)) ** (1 / self.temperature) for size in sizes]
