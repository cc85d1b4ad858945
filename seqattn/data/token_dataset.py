"""Pairs as rows of ids, cached by content in a memory-mapped file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import datasets
import numpy as np

from seqattn.data.arrow_tables import NUMBER, NUMBERS, Ints, Lists, content_digest, table_of
from seqattn.data.base import Source
from seqattn.data.batch import Batch, collate
from seqattn.data.loader import TokenRows
from seqattn.data.options import LoaderOptions
from seqattn.data.source_ids import piece, tokens_before
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError

_NUMBERS = ("head", "begin", "end")
"""Columns about a source: the end of its head, and begin and end of the span that a window must
contain to be trained on, -1 for none."""


def tokenize(texts: datasets.Dataset, tokenizer: Tokenizer, cache_dir: Path) -> datasets.Dataset:
    """Return the ids of all rows, cached by texts and tokenizer.

    Args:
        texts: string columns "source" and "target", and optionally "head", "begin" and "end", in
            characters of the source, as from `Source.load`.

    Returns:
        Columns "source" and "target" of int32 lists, each with its end mark, and "head", "begin"
            and "end" in tokens of the source, memory-mapped.

    Raises:
        UserError: if there is no target column.
    """
    if "target" not in texts.column_names:
        raise UserError("training and validation data must have targets")
    # other columns, such as references, are not tokenized
    names = [name for name in _NUMBERS if name in texts.column_names]
    texts = texts.select_columns(["source", "target", *names])

    def rows() -> Iterator[dict[str, Any]]:
        for some in texts.iter(batch_size=1000):
            read, targets = (
                [text if text.strip() else "" for text in some[side]]
                for side in ("source", "target")
            )
            columns = {
                "source": tokenizer.encode_source(read),
                "target": tokenizer.encode_target(targets),
                **_token_offsets(read, some, tokenizer),
            }
            for row in zip(*columns.values(), strict=True):
                yield dict(zip(columns, row, strict=True))

    content = f"pairs-2 {content_digest(texts)} {tokenizer.fingerprint}"
    columns = {"source": NUMBERS, "target": NUMBERS, **dict.fromkeys(_NUMBERS, NUMBER)}
    return table_of(rows(), columns, content, cache_dir)


def _token_offsets(
    sources: Sequence[str], rows: Mapping[str, Any], tokenizer: Tokenizer
) -> dict[str, list[int]]:
    """Convert each of `_NUMBERS` to tokens, at word borders; defaults if `rows` lack one."""
    columns = {}
    defaults = len(tokenizer.source_begin), -1, -1
    for name, nothing in zip(_NUMBERS, defaults, strict=True):
        if name not in rows:
            columns[name] = [nothing] * len(sources)
            continue
        offsets = rows[name]
        if name == "end":  # the end of its word
            sources = [f"{text} " for text in sources]
            offsets = [text.find(" ", at) + 1 for text, at in zip(sources, offsets, strict=True)]
        tokens = tokens_before(sources, offsets, tokenizer)
        columns[name] = [n if at >= 0 else -1 for n, at in zip(tokens, rows[name], strict=True)]
    return columns


@dataclass(frozen=True)
class PairSampling:
    """Pairs sampled anew each epoch: their texts, by `Source.redraw`, or their segmentations.

    Segmentations are those of subword regularization (Kudo 2018, arXiv 1804.10959) and of
    BPE-dropout (Provilkov et al. 2020, arXiv 1910.13267). A pair depends on seed, row and epoch.

    Args:
        texts: rows of `source.load`.
        alpha: as `LoaderOptions.subword_sampling`.
    """

    texts: datasets.Dataset
    tokenizer: Tokenizer
    alpha: float | None
    seed: int
    source: Source

    def __call__(self, rows: Ints, epoch: int) -> list[tuple[list[int], list[int]]]:
        """Return ids of the sources and targets of some rows, each with its end mark."""
        columns = self.texts[rows.tolist()]
        randoms = [Random(f"{self.seed} {epoch} {row}") for row in rows.tolist()]
        texts = [dict(zip(columns, row)) for row in zip(*columns.values(), strict=True)]
        pairs = map(self.source.redraw, texts, randoms)
        sources, targets = map(list, zip(*pairs, strict=True))
        tokenizer, alpha = self.tokenizer, self.alpha
        if alpha is None:
            ids = tokenizer.encode_source(sources), tokenizer.encode_target(targets)
        else:
            read = tokenizer.sample_source(sources, alpha, randoms)
            ids = read, tokenizer.sample_target(targets, alpha, randoms)
        return list(zip(*ids, strict=True))


class TokenDataset(TokenRows[Batch]):
    """Tokenized pairs that fit a length limit.

    Args:
        table: from `tokenize`.
        options: rows with a target longer than `max_length`, the end mark included, or with an
            empty side are left out; long sources are treated as by `long_sources`, leaving out
            windows without their required span.
        sampling: samples pairs that are read whole; None for those of `table`.
        ends: True if rows that are empty on both sides are ends of documents, not pairs.

    Attributes:
        sources, targets: ids of the complete texts of each row of `table`.
        heads: number of its first tokens that begin each window.
    """

    def __init__(
        self,
        table: datasets.Dataset,
        options: LoaderOptions,
        sampling: PairSampling | None = None,
        ends: bool = False,
    ) -> None:
        self.options, self._sampling = options, sampling
        self.sources, self.targets = Lists(table, "source"), Lists(table, "target")
        lengths = np.stack([self.sources.lengths, self.targets.lengths])  # (2, rows)
        empty = (lengths <= 1).any(0)  # nothing but the end mark
        beyond = lengths[0] > options.source_length
        long = (lengths[1] > options.max_length) | (beyond & (options.long_sources == "drop"))
        long &= ~empty
        selected = np.flatnonzero(~(empty | long))
        head, begin, end = (table.data.column(name).to_numpy() for name in _NUMBERS)
        self.heads = np.minimum(head, options.longest_head, dtype=np.int64)
        numbers, starts = options.pieces(lengths[0, selected], self.heads[selected])
        rows = selected[numbers]
        stops = starts + options.source_length - 1 - self.heads[rows]
        holds = (starts <= begin[rows]) & (end[rows] <= stops) | (begin[rows] < 0) | ~beyond[rows]
        holds |= options.long_sources != "window"
        self.rows, self.starts = rows[holds], starts[holds]
        self._unheld = int((~holds).sum()), len(selected) - len(np.unique(self.rows))
        self.source_lengths, self.target_lengths = lengths[:, self.rows]
        self.source_lengths = np.minimum(self.source_lengths, options.source_length)
        num_ends = int((lengths <= 1).all(0).sum()) if ends else 0
        self._total, self._long = len(table) - num_ends, int(long.sum())
        self._empty = int(empty.sum()) - num_ends
        self._num_beyond, self._pieces = int(beyond[selected].sum()), int(beyond[self.rows].sum())

    def batch(self, indices: Sequence[int]) -> Batch:
        rows = self.rows[np.asarray(indices)]
        sources, targets = self.sources.fetch(rows), self.targets.fetch(rows)
        if self._num_beyond:
            starts, heads = self.starts[np.asarray(indices)].tolist(), self.heads[rows].tolist()
            read = zip(sources, starts, heads, strict=True)
            sources = [piece(ids, self.options, *window) for ids, *window in read]
        if self._sampling is not None:
            # none longer than the longest row, which was checked against the model's positions
            longest = int(self.source_lengths.max()), int(self.target_lengths.max())
            complete = self.sources.lengths[rows] <= self.options.source_length
            samples = self._sampling(rows, self.epoch)
            for n, (source, target) in enumerate(samples):
                fits = complete[n] and len(source) <= longest[0], len(target) <= longest[1]
                if self._sampling.source.redraws:  # its sides belong together
                    fits = all(fits), all(fits)
                if fits[0]:
                    sources[n] = np.array(source, np.int32)
                if fits[1]:
                    targets[n] = np.array(target, np.int32)
        return collate(sources, targets, rows)

    @property
    def advice(self) -> str:
        return "raise loader.max_length" if self._long else "use pairs with text on both sides"

    def summary(self, split: str) -> str:
        options, maximum = self.options, self.options.source_length
        beyond = f"longer than {options.max_length} tokens"
        if options.long_sources != "drop":
            beyond = f"with a target {beyond}"
        elif maximum != options.max_length:
            beyond = f"with a source over {maximum} or a target over {options.max_length} tokens"
        report = f"kept all {self._total:,} {split} pairs"
        if self._long or self._empty:
            report = (
                f"dropped {self._long + self._empty:,} of {self._total:,} {split} pairs: "
                f"{self._long:,} {beyond}, {self._empty:,} with an empty side"
            )
        if self._num_beyond:
            how, what = "truncated", f"to {maximum} tokens"
            if options.long_sources == "window":
                how, what = "split", f"into {self._pieces:,} windows of {maximum} tokens"
            share = 100 * self._num_beyond / self._total
            report += f"; {how} {self._num_beyond:,} sources ({share:.1f}%) {what}"
            if any(self._unheld):
                windows, lost = self._unheld
                report += f", dropped {windows:,} more without the answer"
                report += f" ({lost:,} answers fit in no window)" if lost else ""
        return report
