"""Rows of several pairs: those that stand together in a document, joined by line breaks."""

from collections.abc import Sequence
from typing import Any

import datasets
import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import torch

from seqattn.checking import shown
from seqattn.data.base import Source
from seqattn.data.batch import Batch, collate
from seqattn.data.loader import TokenRows
from seqattn.data.options import BatchLimits, LoaderOptions, numbered
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.extras.documents.breaks import NO_LINE_BREAKS, line_breaks
from seqattn.extras.documents.joined_sampler import JoinedSampler, Joins

Ints = npt.NDArray[np.int64]


def rows_type(data: Source, tokenizer: TokenizerConfig, loader: BatchLimits) -> "type[JoinedRows]":
    """Return the type of training rows of data with documents. Args: its settings.

    Raises:
        UserError: for settings that do not support it.
    """
    if type(tokenizer) is TokenizerConfig and not tokenizer.line_breaks:
        raise UserError(NO_LINE_BREAKS)  # before it is trained
    if getattr(loader, "subword_sampling", None) is not None or data.redraws:
        raise UserError(
            "data.documents needs texts that stay as they are; remove loader.subword_sampling"
        )
    return JoinedRows


class JoinedRows(TokenRows[Batch]):
    """Rows that join consecutive pairs of a document, as far as the limits of lengths allow.

    Of N pairs, row `first + (size - 1) * N` joins `size` of them from `first` on, so that the rows
    below N are the pairs themselves. Links between words are those of the pairs; a line break has
    none. Pairs that are left out of training end a document.

    Args:
        pairs: the pairs, as tokenized.
        rows: rows of the split, with the number of the document of each.

    Attributes:
        source_lengths, target_lengths: (N,) tokens of the longest row from each pair on.

    Raises:
        UserError: for a vocabulary without line breaks or texts with some, or if no two pairs can
            be joined.
    """

    def __init__(
        self,
        pairs: TokenRows[Batch],
        rows: datasets.Dataset,
        tokenizer: Tokenizer,
        options: LoaderOptions,
    ) -> None:
        self.pairs, self.rows, self.starts = pairs, pairs.rows, pairs.starts
        self._breaks = line_breaks(tokenizer)
        _check_single_lines(rows)
        documents = rows.with_format("arrow")["document"][:].to_numpy()[self.rows]
        begins = np.diff(documents, prepend=-1) != 0
        begins |= np.diff(self.rows, prepend=-2) != 1
        self._num_documents = len(np.unique(documents))
        self._lengths = pairs.source_lengths, pairs.target_lengths
        limits = (options.source_length, options.max_length)
        self.joins = Joins(self._lengths, begins, limits)
        reach = self.joins.reach
        if reach.max() == 1:
            raise UserError(
                "data.documents joins no pairs: no two of a document have together at most "
                f"loader.max_length={options.max_length} tokens; raise it, or remove data.documents"
            )
        self.source_lengths, self.target_lengths = self.joins.lengths(np.arange(len(reach)), reach)

    def __len__(self) -> int:
        return self.joins.number * int(self.joins.reach.max())

    def sampler(self, limits: BatchLimits, **order: Any) -> JoinedSampler:
        return JoinedSampler(self.joins, limits, **order)

    def batch(self, indices: Sequence[int]) -> Batch:
        sizes, firsts = np.divmod(np.asarray(indices), self.joins.number)
        row, number = numbered(sizes + 1)
        members = firsts[row] + number
        self.pairs.epoch = self.epoch
        pairs = self.pairs.batch(members.tolist())
        is_last = np.append(np.diff(row) != 0, True)  # pair of its row
        texts = pairs.source.numpy(), pairs.target_output.numpy()
        lengths = [side[members] for side in self._lengths]
        sides, offsets = [], []
        for ids, length, line_break in zip(texts, lengths, self._breaks, strict=True):
            tokens = ids[np.arange(ids.shape[1]) < length[:, None]]
            ends = length.cumsum()
            tokens[ends[~is_last] - 1] = line_break
            bounds = ends[is_last][:-1]
            sides.append(np.split(tokens, bounds))
            offsets.append(ends - length - np.append(0, bounds)[row])
        batch = collate(sides[0], sides[1], self.rows[firsts])
        links = getattr(pairs, "links", None)
        if links is None:
            return batch
        labels = torch.zeros(*batch.target_output.shape, batch.source.shape[1], dtype=torch.bool)
        spans = zip(row, *offsets, *lengths, strict=True)
        for n, (into, s, t, source, target) in enumerate(spans):
            labels[into, t : t + target, s : s + source] = links[n, :target, :source]
        return type(pairs)(**vars(batch), links=labels)  # type: ignore[call-arg]

    @property
    def advice(self) -> str:
        return self.pairs.advice

    def summary(self, split: str) -> str:
        return (
            f"{self.pairs.summary(split)}; joined within {self._num_documents:,} documents up to "
            f"{self.source_lengths.max()} source and {self.target_lengths.max()} target tokens"
        )


def _check_single_lines(rows: datasets.Dataset) -> None:
    for side in ("source", "target"):
        column = rows.data.column(side)
        number = pc.index(pc.match_substring_regex(column, r"\S\s*\n\s*\S"), True).as_py()
        if number >= 0:
            raise UserError(
                f"data.documents joins pairs by line breaks, but a {side} has some: "
                f"{shown(column[number].as_py())}; put each line in a row of its own"
            )
