"""Pairs as rows of ids, made once, kept by content, fetched from a memory-mapped file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from seqattn.data.arrow_tables import NUMBERS, Lists, content_digest, table_of
from seqattn.data.batch import Batch, collate
from seqattn.data.loader import TokenRows
from seqattn.data.options import LoaderOptions
from seqattn.data.reading import pieces
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.tokens import EOS


def tokenize(texts: datasets.Dataset, tokenizer: Tokenizer, cache_dir: Path) -> datasets.Dataset:
    """The ids of every row, from the cache if the same texts met the same tokenizer before.

    Args:
        texts: string columns "source" and "target".
        tokenizer: of both sides.
        cache_dir: where the ids are kept.

    Returns:
        Columns "source" and "target" of int32 lists, each with its end mark, memory-mapped.

    Raises:
        UserError: there is no target column.
    """
    if "target" not in texts.column_names:
        raise UserError("training and validation data must have a target side, there is none")
    # other columns, such as references, are nothing that is tokenised
    texts = texts.select_columns(["source", "target"])

    def rows() -> Iterator[dict[str, Any]]:
        for some in texts.iter(batch_size=1000):
            sides = {side: [text if text.strip() else "" for text in some[side]] for side in some}
            sources = tokenizer.encode_source(sides["source"])
            targets = tokenizer.encode_target(sides["target"])
            for source, target in zip(sources, targets, strict=True):
                yield {"source": source, "target": target}

    content = f"{content_digest(texts)} {tokenizer.fingerprint}"
    return table_of(rows(), {"source": NUMBERS, "target": NUMBERS}, content, cache_dir)


class TokenDataset(TokenRows[Batch]):
    """Tokenised pairs that fit a length limit.

    Args:
        table: columns "source" and "target" of ids, as `tokenize` gives.
        options: rows with a target beyond their `max_length`, the end mark counted, are left out,
            and so are rows with an empty side; long sources are treated as they say.
    """

    def __init__(self, table: datasets.Dataset, options: LoaderOptions) -> None:
        self.options = options
        self._source, self._target = Lists(table, "source"), Lists(table, "target")
        lengths = np.stack([self._source.lengths, self._target.lengths])  # (2, rows)
        empty = (lengths <= 1).any(0)  # nothing but the end mark
        beyond = lengths[0] > options.source_length
        long = (lengths[1] > options.max_length) | (beyond & (options.long_sources == "drop"))
        long &= ~empty
        kept = np.flatnonzero(~(empty | long))
        place, self.starts = pieces(lengths[0, kept], options)
        self.rows = kept[place]
        self.source_lengths, self.target_lengths = lengths[:, self.rows]
        self.source_lengths = np.minimum(self.source_lengths, options.source_length)
        self._total, self._long, self._empty = len(table), int(long.sum()), int(empty.sum())
        self._cut, self._pieces = int(beyond[kept].sum()), int(beyond[self.rows].sum())

    def batch(self, places: Sequence[int]) -> Batch:
        rows = self.rows[np.asarray(places)]
        sources = self._source.fetch(rows)
        if self._cut:
            longest = self.options.source_length
            starts = self.starts[np.asarray(places)].tolist()
            sources = [
                ids if len(ids) <= longest else np.append(ids[start:][: longest - 1], np.int32(EOS))
                for ids, start in zip(sources, starts, strict=True)
            ]
        return collate(sources, self._target.fetch(rows), rows)

    def account(self, split: str) -> str:
        options, maximum = self.options, self.options.source_length
        beyond = f"longer than {options.max_length} tokens"
        if options.long_sources != "drop":
            beyond = f"with a target {beyond}"
        elif maximum != options.max_length:
            beyond = (
                f"with a source beyond {maximum} or a target beyond {options.max_length} tokens"
            )
        told = f"kept all {self._total:,} {split} pairs"
        if self._long or self._empty:
            told = (
                f"dropped {self._long + self._empty:,} of {self._total:,} {split} pairs: "
                f"{self._long:,} {beyond}, {self._empty:,} with an empty side"
            )
        if self._cut:
            what = f"to their first {maximum} tokens"
            if options.long_sources == "window":
                what = f"into {self._pieces:,} windows of {maximum} tokens"
            share = 100 * self._cut / self._total
            told += f"; cut {self._cut:,} sources ({share:.1f} %) {what}"
        return told
