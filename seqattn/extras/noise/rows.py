"""Training pairs of which some get noise, drawn anew in each epoch."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress, islice, repeat
from random import Random
from typing import Any, NamedTuple

import datasets
import numpy as np
import numpy.typing as npt

from seqattn.data.batch import Batch, collate
from seqattn.data.bucketing import BucketSampler
from seqattn.data.loader import TokenRows
from seqattn.data.options import BatchLimits, LoaderOptions
from seqattn.data.token_dataset import TokenDataset
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.word_links import LinkedPair
from seqattn.errors import UserError
from seqattn.extras.noise.kinds import Writing, Writings, noised, notices
from seqattn.tokens import PAD, UNK

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_MEASURED = 2000
"""Pairs by which the growth of lengths is measured."""
_COVERED = 0.99
"""Share of the pairs with a kind of noise that batches have room for."""
_TRIED = 4
"""Epochs that set the number of batches."""
_REASONS = {
    "long": "as pairs would be longer than planned or than loader.max_length",
    "unknown": "as the vocabulary lacks characters (tokenizer.byte_fallback=true has all)",
}
"""Reasons why noisy pairs stay clean."""


class Draw(NamedTuple):
    """A pair with noise: ids with their end marks, and its texts with links."""

    source: list[int]
    target: list[int]
    pair: LinkedPair


class NoisyRows(TokenRows[Batch]):
    """Rows of which some get noise, by seed, epoch and row.

    Batches are planned for the noise of their epoch. A pair stays clean where it would be longer
    than planned, or get pieces that the vocabulary lacks, or if its source is read in parts.

    Args:
        rates: of kinds of noise, as `Noise.rates`.
        seed: of the draws.
        rows: the rows without noise, with or without links.
        texts: the split, with columns "source" and "target".

    Attributes:
        source_lengths, target_lengths: (N,) tokens of each row with the noise that adds most.

    Raises:
        UserError: for rows of another kind, or with heads such as tags.
    """

    def __init__(
        self,
        rates: Mapping[str, float],
        seed: int,
        rows: Any,
        texts: datasets.Dataset,
        tokenizer: Tokenizer,
        options: LoaderOptions,
    ) -> None:
        self.pairs = getattr(rows, "pairs", rows)
        if not isinstance(self.pairs, TokenDataset) or "head" in texts.column_names:
            raise UserError("noise needs plain pairs of texts, unlike this data's; remove noise")
        self.inner, self.rows, self.starts = rows, rows.rows, rows.starts
        self._rates, self._seed = rates, seed
        self._tokenizer, self._options = tokenizer, options
        self._texts = texts.select_columns(["source", "target"])
        sample = self._texts[:_MEASURED]
        self.writings = Writings(
            _writing(sample["source"], tokenizer.encode_source),
            _writing(sample["target"], tokenizer.encode_target),
        )
        self._clean = np.stack([rows.source_lengths, rows.target_lengths])
        self._whole = self.pairs.sources.lengths[self.rows] <= options.source_length
        places = np.unique(np.linspace(0, len(rows) - 1, _MEASURED).astype(np.int64))
        self._growth = np.stack([self._measured(places, name) for name in self._rates])
        every = np.ones((len(self._rates), 1), bool)
        self.source_lengths, self.target_lengths = self._planned(slice(None), every)
        self._notice = "; ".join(
            [*self._outcome(places), *notices(self._rates, self.writings, self._is_linked)]
        )

    @property
    def _is_linked(self) -> bool:
        return hasattr(self.inner, "links_of")

    def _kinds(self, places: Any, epoch: int) -> Bools:
        """Return the kinds of noise (K, B) that rows get in an epoch."""
        rows = self.rows[places]
        numbers = (uniforms(f"{self._seed} {epoch} {name}", rows) for name in self._rates)
        rates = self._rates.values()
        return np.stack([each < rate for each, rate in zip(numbers, rates, strict=True)])

    def _planned(self, places: Any, kinds: Bools) -> Ints:
        """Return planned source and target tokens (2, B) of rows with kinds of noise (K, B)."""
        growth = np.ones((2, 1))
        for factors, has_kind in zip(self._growth, kinds & self._whole[places], strict=True):
            growth = np.maximum(growth, np.where(has_kind, factors[:, None], 1.0))
        limits = [[self._options.source_length], [self._options.max_length]]
        return np.minimum(np.ceil(self._clean[:, places] * growth).astype(np.int64), limits)

    def lengths(self, epoch: int) -> Ints:
        """Return planned source and target tokens (2, N) of all rows in an epoch."""
        return self._planned(slice(None), self._kinds(slice(None), epoch))

    def sampler(self, limits: BatchLimits, **order: Any) -> "NoisySampler":
        return NoisySampler(self.lengths, limits, **order)

    def _draws(self, places: Ints, epoch: int, kinds: Bools) -> dict[int, Draw]:
        """Return the pairs that kinds of noise (K, B) change, by their numbers among B places."""
        numbers = np.flatnonzero(kinds.any(0) & self._whole[places])
        rows = self.rows[places[numbers]].tolist()
        texts = self._texts[rows]
        links = map(self.inner.links_of, rows) if self._is_linked else repeat(None)
        randoms = [Random(f"noise {self._seed} {epoch} {row}") for row in rows]
        names = [[*compress(self._rates, flags)] for flags in kinds[:, numbers].T.tolist()]
        clean = [*map(LinkedPair, texts["source"], texts["target"], links)]
        pairs = [*map(noised, clean, names, repeat(self.writings), randoms)]
        sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
        tokenizer, alpha = self._tokenizer, self._options.subword_sampling
        if alpha is None:
            ids = tokenizer.encode_source(sides[0]), tokenizer.encode_target(sides[1])
        else:
            source_ids = tokenizer.sample_source(sides[0], alpha, randoms)
            ids = source_ids, tokenizer.sample_target(sides[1], alpha, randoms)
        draws = zip(numbers.tolist(), map(Draw, *ids, pairs), clean, strict=True)
        return {number: draw for number, draw, pair in draws if draw.pair[:2] != pair[:2]}

    def _reasons(self, places: Ints, kinds: Bools, draws: Mapping[int, Draw]) -> dict[int, str]:
        """Return why pairs stay clean, by number, "" for those that get their noise."""
        planned, reasons = self._planned(places, kinds), dict.fromkeys(draws, "")
        for number, draw in draws.items():
            ids = draw.source, draw.target
            if any(len(new) > room for new, room in zip(ids, planned[:, number], strict=True)):
                reasons[number] = "long"
            elif UNK in draw.source or UNK in draw.target:
                rows = self.rows[places[[number]]]
                clean = self.pairs.sources.fetch(rows)[0], self.pairs.targets.fetch(rows)[0]
                if any(UNK in new and UNK not in old for new, old in zip(ids, clean, strict=True)):
                    reasons[number] = "unknown"
        return reasons

    def _measured(self, places: Ints, name: str) -> npt.NDArray[np.float64]:
        """Return the growth (2,) of most sources and targets that a kind of noise changes."""
        kinds = np.array([[kind == name] * len(places) for kind in self._rates])
        draws = self._draws(places, 0, kinds)
        lengths = np.array([[len(draw.source), len(draw.target)] for draw in draws.values()])
        growth = lengths.reshape(-1, 2) / self._clean[:, places[[*draws]]].T
        return np.quantile(np.vstack([growth, np.ones((1, 2))]), _COVERED, axis=0)

    def _outcome(self, places: Ints) -> Iterator[str]:
        """Yield what noise does in the first epoch, and which pairs stay clean."""
        kinds = self._kinds(places, 0)
        draws = self._draws(places, 0, kinds)
        reasons = Counter(self._reasons(places, kinds, draws).values())
        yield f"noise in {reasons[''] / len(places):.1%} of pairs in an epoch"
        for reason, why in _REASONS.items():
            if count := reasons[reason]:
                yield f"{count / len(draws):.1%} of the noise left out, {why}"
        if parts := int((~self._whole).sum()):
            yield f"{parts:,} rows without noise, as their sources are read in parts"

    def batch(self, indices: Sequence[int]) -> Batch:
        places, self.pairs.epoch = np.asarray(indices), self.epoch
        batch, kinds = self.pairs.batch(indices), self._kinds(places, self.epoch)
        draws = self._draws(places, self.epoch, kinds)
        reasons = self._reasons(places, kinds, draws)
        draws = {number: draw for number, draw in draws.items() if not reasons[number]}
        if draws:
            sides = batch.source.numpy(), batch.target_output.numpy()
            sources, targets = ([ids[ids != PAD] for ids in side] for side in sides)
            for number, draw in draws.items():
                sources[number], targets[number] = np.array(draw.source), np.array(draw.target)
            batch = collate(sources, targets, batch.index)
        if self._is_linked:
            pairs = {number: draw.pair for number, draw in draws.items()}
            batch = self.inner.label(batch, indices, pairs)
        return batch

    @property
    def advice(self) -> str:
        return str(self.inner.advice)

    def summary(self, split: str) -> str:
        return f"{self.inner.summary(split)}; {self._notice}"


def _writing(texts: list[str], encode: Callable[[list[str]], list[list[int]]]) -> Writing:
    """Return how texts are written, without case where the vocabulary folds it."""
    writing, sample = Writing.of(texts), texts[:9]
    folds = encode(sample) == encode([text.upper() for text in sample])
    return replace(writing, is_cased=writing.is_cased and not folds)


class NoisySampler(BucketSampler):
    """Batch sampler of rows whose lengths depend on the epoch.

    The batches of an epoch are those of a `BucketSampler` of its lengths. Every epoch has as many:
    the most of the first few. Of an epoch with fewer the fullest are halved; of one with more, the
    surplus is left out.

    Args:
        lengths: function from an epoch to source and target lengths (2, N).
        limits, order: as of `BucketSampler`.
    """

    def __init__(self, lengths: Callable[[int], Ints], limits: BatchLimits, **order: Any) -> None:
        self._lengths, self._limits, self._settings = lengths, limits, order
        self._least = max(len(self._planned(epoch).sizes) for epoch in range(_TRIED))
        source, target = lengths(0)
        super().__init__(source, target, limits, **order, least=self._least)

    def __iter__(self) -> Iterator[list[int]]:
        batches = self._planned(self.epoch, self._least)
        batches.epoch, batches.start_batch = self.epoch, self.start_batch
        number, self.start_batch = len(self) - self.start_batch, 0
        yield from islice(batches, number)

    def _planned(self, epoch: int, least: int = 1) -> BucketSampler:
        source, target = self._lengths(epoch)
        return BucketSampler(source, target, self._limits, **self._settings, least=least)


def uniforms(seed: str, numbers: Ints) -> npt.NDArray[np.float64]:
    """Return a random number from 0 to 1 for each of some numbers (SplitMix64, Steele et al. 2014),
    by the seed and the number alone."""
    start = np.frombuffer(hashlib.sha256(seed.encode()).digest()[:8], "<u8")
    bits = start + numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return ((bits ^ bits >> np.uint64(31)) >> np.uint64(11)) * 2.0**-53
