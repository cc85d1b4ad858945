"""Rows of ids, made once, kept by content, and fetched from a memory-mapped file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from seqattn.data.batch import Batch, collate
from seqattn.data.cutting import LongSources, pieces
from seqattn.data.quiet import quiet_datasets
from seqattn.data.tokenizer import EOS, Tokenizer
from seqattn.errors import UserError

Ints = npt.NDArray[np.int64]


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
        self._source = _Lists(table, "source")
        self._target = _Lists(table, "target")
        self._rule = sources or LongSources("drop", max_length)
        lengths = np.stack([self._source.lengths, self._target.lengths])  # (2, rows)
        empty = (lengths <= 1).any(0)  # nothing but the end mark
        beyond = lengths[0] > self._rule.maximum
        long = (lengths[1] > max_length) & ~empty
        if self._rule.how == "drop":
            long |= beyond & ~empty
        kept = np.flatnonzero(~(empty | long))
        place, self._starts = pieces(lengths[0, kept], self._rule)
        self.rows = kept[place]
        self.source_lengths, self.target_lengths = lengths[:, self.rows]
        self.source_lengths = np.minimum(self.source_lengths, self._rule.maximum)
        self.total = len(table)
        self.dropped = Dropped(int(long.sum()), int(empty.sum()))
        self.cut, self.pieces = int(beyond[kept].sum()), int(beyond[self.rows].sum())

    def __len__(self) -> int:
        """Gives N, the pairs that are kept."""
        return len(self.rows)

    def __getitem__(self, place: int) -> Batch:
        """Gives one pair as a batch of one."""
        return self.__getitems__([place])

    def __getitems__(self, places: Sequence[int]) -> Batch:
        """Gives a batch; `DataLoader` calls it with a batch sampler's list.

        Args:
            places: B numbers from 0 to N - 1.
        """
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


class _Lists:
    """A column of id lists, read through numpy views of the memory-mapped file."""

    def __init__(self, table: datasets.Dataset, column: str) -> None:
        chunks = table.data.column(column).chunks
        offsets = [chunk.offsets.to_numpy() for chunk in chunks]
        self._values = [chunk.values.to_numpy(zero_copy_only=True) for chunk in chunks]
        sizes = [len(chunk) for chunk in chunks]
        self._chunk = np.repeat(np.arange(len(chunks)), sizes)
        starts = [part[:-1].astype(np.int64) for part in offsets]
        self._start = np.concatenate(starts)
        self.lengths: Ints = np.concatenate([np.diff(part) for part in offsets]).astype(np.int64)

    def fetch(self, rows: Ints) -> list[npt.NDArray[np.int32]]:
        chunks = self._chunk[rows].tolist()
        starts = self._start[rows].tolist()
        ends = (self._start[rows] + self.lengths[rows]).tolist()
        values = self._values
        return [values[c][start:end] for c, start, end in zip(chunks, starts, ends, strict=True)]


def tokenize(texts: datasets.Dataset, tokenizer: Tokenizer, cache_dir: Path) -> datasets.Dataset:
    """Gives the ids of every row, from the cache if the same texts met the same tokenizer before.

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
    key = hashlib.sha256(f"{content_digest(texts)} {tokenizer.fingerprint}".encode()).hexdigest()
    kept = cache_dir / "tokens" / f"{key[:32]}.arrow"
    kept.parent.mkdir(parents=True, exist_ok=True)
    ids = datasets.Sequence(datasets.Value("int32"))
    with quiet_datasets():
        return texts.map(
            _encode,
            batched=True,
            fn_kwargs={"tokenizer": tokenizer},
            remove_columns=texts.column_names,
            features=datasets.Features({"source": ids, "target": ids}),
            cache_file_name=str(kept),
            load_from_cache_file=True,
            new_fingerprint=key[:32],
        )


def content_digest(texts: datasets.Dataset) -> str:
    """Gives the SHA-256 of a dataset's texts, whatever file they came from."""
    digest = hashlib.sha256()
    for batch in texts.iter(batch_size=10_000):
        for side in sorted(batch):
            digest.update(side.encode())
            digest.update("\0".join(batch[side]).encode())
    return digest.hexdigest()


def _encode(texts: dict[str, list[str]], tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "source": tokenizer.encode_source(_blank_as_empty(texts["source"])),
        "target": tokenizer.encode_target(_blank_as_empty(texts["target"])),
    }


def _blank_as_empty(texts: list[str]) -> list[str]:
    return [text if text.strip() else "" for text in texts]
