"""Prepared corpora as a source: shards for training, texts for validation."""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa

from seqattn.checking import Count, Positive
from seqattn.data.base import MissingSplit, Source
from seqattn.data.batch import Batch, collate
from seqattn.data.loader import TokenRows
from seqattn.data.options import BatchLimits, LoaderOptions
from seqattn.data.source_ids import piece
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.extras.shards.shard_files import (
    AGAIN,
    TOKENIZER,
    Manifest,
    check_whole,
    open_shard,
    read_manifest,
)
from seqattn.extras.shards.shard_windows import Passes, ShardedCorpus, WindowSampler
from seqattn.storage import file_faults, user_path

Weights = Callable[[Sequence[int]], Sequence[float] | None]
"""Function from the numbers of batches of the corpora to their weights."""


class ShardRows(TokenRows[Batch]):
    """Pairs in shards; `source_lengths` and `target_lengths` are the longest of each window.

    Raises:
        UserError: for options that need texts, or positions in them.
    """

    def __init__(
        self, corpora: Sequence[ShardedCorpus], options: LoaderOptions, weights: Weights
    ) -> None:
        if options.subword_sampling is not None:
            raise UserError("shards contain ids, not text; remove loader.subword_sampling")
        if options.long_sources == "window":
            raise UserError(
                "shards do not support loader.long_sources=window; set loader.long_sources=truncate"
            )
        self.options, self._corpora, self._weights = options, corpora, weights
        self._paths = [path for corpus in corpora for path in corpus.paths]
        self._firsts = np.concatenate([corpus.firsts[:-1] for corpus in corpora])
        self._total = sum(entry.pairs for corpus in corpora for entry in corpus.entries)
        windows = [(corpus, window) for corpus in corpora for window in range(corpus.windows)]
        histograms = [corpus.histogram(window) for corpus, window in windows]
        self._selected = sum(int(rows.sum()) for *_, rows in histograms)
        longest = [lengths[:2].max(axis=1, initial=0) for lengths in histograms]
        self.source_lengths, self.target_lengths = np.stack(longest, axis=1)
        self._num_truncated = 0
        if options.long_sources == "truncate":
            lengths = (corpus.lengths(window) for corpus, window in windows)
            self._num_truncated = sum(
                int(n[(s > options.source_length) & (t <= options.max_length)].sum())
                for s, t, n in lengths
            )

    def __len__(self) -> int:
        """Return the number of all pairs, left out ones included; 0 if all are left out."""
        return self._total if self._selected else 0

    def sampler(self, limits: BatchLimits, **order: Any) -> WindowSampler:
        longest = max(int(self.source_lengths.max()), int(self.target_lengths.max()))
        limits.check_holds(longest, f"the longest row ({longest} tokens)")
        seed, rank, world = (order.get(*pair) for pair in (("seed", 0), ("rank", 0), ("world", 1)))
        step = order.get("step_batches") or world
        passes = [Passes(corpus, limits, seed, step) for corpus in self._corpora]
        weights = self._weights([len(one) for one in passes])
        return WindowSampler(passes, weights, seed, rank, world)

    def batch(self, indices: Sequence[int]) -> Batch:
        numbers = np.asarray(indices)
        shards = np.searchsorted(self._firsts, numbers, side="right") - 1
        rows = numbers - self._firsts[shards]
        sources, targets = np.empty(len(rows), object), np.empty(len(rows), object)
        for shard in np.unique(shards).tolist():
            members = np.flatnonzero(shards == shard)
            for side, texts in enumerate((sources, targets)):
                ids = open_shard(self._paths[shard]).rows(side, rows[members])
                for at, row in zip(members.tolist(), ids, strict=True):
                    texts[at] = row
        read = [piece(ids, self.options) for ids in sources]
        return collate(read, list(targets), numbers)

    @property
    def advice(self) -> str:
        return "raise loader.max_length"

    def summary(self, split: str) -> str:
        dropped, options = self._total - self._selected, self.options
        report = f"kept all {self._total:,} {split} pairs"
        if dropped:
            report = f"dropped {dropped:,} of {self._total:,} {split} pairs: longer than "
            report += f"{options.max_length} tokens"
        if self._num_truncated:
            report += (
                f"; truncated {self._num_truncated:,} sources to {options.source_length} tokens"
            )
        return report


class Shards(Source):
    """Corpora from `seqattn prepare`, which may be larger than memory.

    Args:
        root: a prepared directory, or several with one vocabulary, whose batches are mixed.
            Validation and test texts are those of the first.
        weights: relative share of each directory in the batches; None for shares by
            `temperature`.
        temperature: T of shares proportional to size ** (1 / T) (Arivazhagan 2019, arXiv
            1907.05019, section 4.2), with sizes in batches: 1 reads each pair once per epoch,
            higher values favor small directories.
        window: number of shards of a directory that are batched together.

    Raises:
        UserError: for weights that do not match the directories.
    """

    def __init__(
        self,
        root: str | list[str],
        weights: list[Positive] | None = None,
        temperature: Positive = 1.0,
        window: Count = 4,
    ) -> None:
        self.roots = [user_path(path) for path in ([root] if isinstance(root, str) else root)]
        if not self.roots or len(set(self.roots)) < len(self.roots):
            raise UserError("data.root must list one or more distinct prepared directories")
        if weights is not None and len(weights) != len(self.roots):
            raise UserError(
                f"data.weights must have one weight per directory ({len(self.roots)}), "
                f"got {len(weights)}"
            )
        if weights is not None and temperature != 1:
            raise UserError("data.weights and data.temperature are mutually exclusive")
        self._weights, self.temperature, self.window = weights, temperature, window

    @cached_property
    def manifests(self) -> list[Manifest]:
        """Manifest of each directory.

        Raises:
            UserError: if one is not prepared, or its vocabulary differs from the first one's.
        """
        manifests = [read_manifest(root) for root in self.roots]
        for root, manifest in zip(self.roots, manifests, strict=True):
            if manifest.fingerprint != manifests[0].fingerprint:
                raise UserError(
                    f"data.root={root} has a different vocabulary from {self.roots[0]}; prepare it "
                    f"with vocabulary={self.roots[0]}"
                )
        return manifests

    @property
    def tokenizer_config(self) -> TokenizerConfig:
        """Settings of the vocabulary of the shards."""
        return self.manifests[0].tokenizer

    @property
    def tokenizer(self) -> Tokenizer:
        """Vocabulary of the shards."""
        manifest = self.manifests[0]  # first, to report a directory that is not prepared
        tokenizer = Tokenizer.load(self.roots[0] / TOKENIZER)
        if tokenizer.fingerprint != manifest.fingerprint:
            raise UserError(f"{self.roots[0] / TOKENIZER} does not match the manifest; {AGAIN}")
        return tokenizer

    def load(self, split: str, cache_dir: Path | None = None) -> datasets.Dataset:
        root, splits = self.roots[0], self.manifests[0].splits
        if split not in splits:
            raise MissingSplit(
                f"data.root={root} has texts only for {' and '.join(splits)}, got split={split}; "
                "training data is stored as ids"
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
                f"{path} does not contain {splits[split].rows:,} pairs of texts; {AGAIN}"
            )
        return table

    def origin(self, split: str) -> str:
        if split == "train":
            return " and ".join(map(str, self.roots))
        entry = self.manifests[0].splits.get(split)
        return str(self.roots[0] / entry.name) if entry else f"{self.roots[0]} ({split})"

    def rows(self, tokenizer: Tokenizer, options: LoaderOptions) -> ShardRows:
        """Return the training pairs as ids.

        Raises:
            UserError: if a shard is missing, the vocabulary differs, or options need the texts.
        """
        if tokenizer.fingerprint != self.manifests[0].fingerprint:
            raise UserError(
                f"the shards of data.root={self.roots[0]} have a different vocabulary from the "
                "model; prepare them with vocabulary=RUN/model"
            )
        corpora, first, sizes = [], 0, (tokenizer.source_size, tokenizer.target_size)
        for root, manifest in zip(self.roots, self.manifests, strict=True):
            corpora.append(ShardedCorpus(root, manifest, self.window, first, options, sizes))
            first += manifest.pairs
        return ShardRows(corpora, options, self.weights)

    def weights(self, sizes: Sequence[int]) -> list[float] | None:
        """Return the weight of each directory. Args: sizes: its number of batches."""
        if self._weights is not None or self.temperature == 1:
            return self._weights
        return [(size / max(sizes)) ** (1 / self.temperature) for size in sizes]
