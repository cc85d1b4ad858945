"""Pairs as rows of ids, made once, kept by content, fetched from a memory-mapped file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from seqattn.data.arrow_tables import Lists, content_digest, mapped, short_digest
from seqattn.data.batch import Batch, collate
from seqattn.data.reading import LongSources, pieces
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.tokens import EOS


class Dropped(NamedTuple):
    """Why rows were left out: `long` beyond the length limit, `empty` on either side."""

    long: int
    empty: int


class TokenDataset(Dataset[Batch]):
    """Tokenised pairs that fit a length limit; fetched a batch at a time.

    Args:
        table: columns "source" and "target" of ids, as `tokenize` gives.
        max_length: rows with a longer target, the end mark counted, are left out, and so are rows
            with an empty side.
        sources: what becomes of long sources; None leaves those beyond `max_length` out.

    Attributes:
        source_lengths: (N,) tokens of each source, or piece of one, the end mark counted.
        target_lengths: (N,) likewise of the targets.
        rows: (N,) the rows' numbers in `table`; a row read in windows comes as often.
        total: rows of `table`.
        dropped: how many of them were left out, and why.
        cut: how many were kept with a source that is read in part or in windows.
        pieces: how many of the N these are.
    """

    def __init__(
        self, table: datasets.Dataset, max_length: int, sources: LongSources | None = None
    ) -> None:
        self._source = Lists(table, "source")
        self._target = Lists(table, "target")
        self._rule = sources or LongSources("drop", max_length)
        lengths = np.stack([self._source.lengths, self._target.lengths])  # (2, rows)
        empty = (lengths <= 1).any(0)  # nothing but the end mark
        beyond = lengths[0] > self._rule.maximum
        long = (lengths[1] > max_length) | (beyond & (self._rule.how == "drop"))
        long &= ~empty
        kept = np.flatnonzero(~(empty | long))
        place, self._starts = pieces(lengths[0, kept], self._rule)
        self.rows = kept[place]
        self.source_lengths, self.target_lengths = lengths[:, self.rows]
        self.source_lengths = np.minimum(self.source_lengths, self._rule.maximum)
        self.total = len(table)
        self.dropped = Dropped(int(long.sum()), int(empty.sum()))
        self.cut, self.pieces = int(beyond[kept].sum()), int(beyond[self.rows].sum())

    def __len__(self) -> int:
        """N, the pairs that are kept."""
        return len(self.rows)

    def __getitem__(self, place: int) -> Batch:
        return self.__getitems__([place])

    def __getitems__(self, places: Sequence[int]) -> Batch:
        """A batch; `DataLoader` calls it with a batch sampler's list."""
        rows = self.rows[np.asarray(places)]
        sources = self._source.fetch(rows)
        if self.cut:
            starts = self._starts[np.asarray(places)].tolist()
            sources = [self._piece(*one) for one in zip(sources, starts, strict=True)]
        return collate(sources, self._target.fetch(rows), rows)

    def _piece(self, ids: npt.NDArray[np.int32], start: int) -> npt.NDArray[np.int32]:
        if len(ids) <= self._rule.maximum:
            return ids
        return np.append(ids[start : start + self._rule.maximum - 1], np.int32(EOS))


def tokenize(texts: datasets.Dataset, tokenizer: Tokenizer, cache_dir: Path) -> datasets.Dataset:
    """The ids of every row, from the cache if the same texts met the same tokenizer before.

    Args:
        texts: string columns "source" and "target".
        tokenizer: what encodes them.
        cache_dir: where the ids are kept; made if absent.

    Returns:
        Columns "source" and "target" of int32 lists, each with its end mark, memory-mapped.

    Raises:
        UserError: there is no target column.
    """
    if "target" not in texts.column_names:
        raise UserError("training and validation data must have a target side, there is none")
    # other columns, such as references, are nothing that is tokenised
    texts = texts.select_columns(["source", "target"])
    key = short_digest(f"{content_digest(texts)} {tokenizer.fingerprint}")
    ids = datasets.Sequence(datasets.Value("int32"))
    kept = cache_dir / "tokens" / f"{key}.arrow"
    return mapped(
        texts, _encode, {"source": ids, "target": ids}, kept, fn_kwargs={"tokenizer": tokenizer}
    )


def _encode(texts: dict[str, list[str]], tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        side: encode([text if text.strip() else "" for text in texts[side]])
        for side, encode in (
            ("source", tokenizer.encode_source),
            ("target", tokenizer.encode_target),
        )
    }
