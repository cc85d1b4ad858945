"""Prepared corpora as a source: trained on from shards, validated on texts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import datasets

from seqattn.checking import Count, Positive, checked
from seqattn.data.base import Source
from seqattn.data.options import LoaderOptions
from seqattn.data.shard_files import AGAIN, TOKENIZER, Manifest, digest_of, read_manifest
from seqattn.data.shard_rows import ShardedCorpus, ShardRows
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.storage import is_file


@checked
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
        self.roots = [Path(one).expanduser() for one in ([root] if isinstance(root, str) else root)]
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

    def _check_vocabulary(self, tokenizer: Tokenizer) -> None:
        if tokenizer.fingerprint != self.manifests[0].fingerprint:
            raise UserError(
                f"the shards of data.root={self.roots[0]} are of another vocabulary than the "
                "model's; prepare them with vocabulary=RUN/model"
            )

    def load(self, split: str, cache_dir: Path | None = None) -> datasets.Dataset:
        root, splits = self.roots[0], self.manifests[0].splits
        if split not in splits:
            raise UserError(
                f"data.root={root} has texts of {' and '.join(splits)}, got split={split}; what "
                "is trained on is kept as ids alone"
            )
        path = root / splits[split].name
        if not is_file(path) or digest_of(path) != splits[split].sha256:
            raise UserError(f"{path} is missing or damaged; {AGAIN}")
        return datasets.Dataset.from_file(str(path))

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
        self._check_vocabulary(tokenizer)
        corpora, first = [], 0
        for root, manifest in zip(self.roots, self.manifests, strict=True):
            corpora.append(ShardedCorpus(root, manifest, self.window, first, options))
            first += manifest.pairs
        return ShardRows(corpora, options, self.weights)

    def weights(self, sizes: Sequence[int]) -> list[float] | None:
        """The weight of each directory. Args: sizes: the batches of each."""
        if self._weights is not None or self.temperature == 1:
            return self._weights
        return [(size / sum(sizes)) ** (1 / self.temperature) for size in sizes]
