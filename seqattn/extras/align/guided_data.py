"""Pairs with links between words, as labels between pieces."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.analysis.word_alignment import BEGINS, BREAK, MARKS
from seqattn.data.batch import Batch
from seqattn.data.loader import TokenRows
from seqattn.data.module import Seq2SeqData
from seqattn.data.options import BatchLimits
from seqattn.data.source_ids import piece
from seqattn.data.text_files import scan_text
from seqattn.data.token_dataset import TokenDataset
from seqattn.data.word_links import (
    Link,
    LinkedPair,
    each_links,
    links_of,
    word_numbers,
    words_in,
)
from seqattn.errors import UserError
from seqattn.metrics.scripts import unsplit
from seqattn.screen import say
from seqattn.storage import user_path

_CHECKED = 1_000
"""Pairs of a split whose words are compared with the tokenizer's before training."""
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LinkedBatch(Batch):
    """Sentence pairs with links.

    Attributes:
        links: (B, T, S) bool, True between the pieces of `target_output` and `source` of words that
            are linked.
    """

    links: Tensor

    def rounded(self, limits: BatchLimits) -> "LinkedBatch":
        batch, (targets, sources) = super().rounded(limits), self.links.shape[1:]
        more = batch.source.shape[1] - sources, batch.target_input.shape[1] - targets
        return replace(batch, links=F.pad(self.links, (0, more[0], 0, more[1])))


class WordNumbers:
    """Numbers of the words that pieces belong to, as by `words_of`.

    Args:
        pieces: the piece of each id.
        marks: ids that are not words, besides `MARKS`.
    """

    def __init__(self, pieces: Sequence[str], marks: Sequence[int]) -> None:
        self._marks = np.array([one in MARKS for one in pieces])
        self._marks[list(marks)] = True
        self._begins = np.array([one.startswith((BEGINS, BREAK)) for one in pieces])
        self._ends = np.array([one.endswith(BREAK) for one in pieces])
        self._spells = np.array([bool(one.removeprefix(BEGINS).strip(BREAK)) for one in pieces])
        self._spells &= ~self._marks

    def __call__(self, ids: Numbers) -> Numbers:
        """Return the word of each piece of padded texts (B, L); -1 for what is not a word."""
        rows, marks, begins = np.arange(len(ids))[:, None], self._marks[ids], self._begins[ids]
        begins[:, 0] = True
        begins[:, 1:] |= self._ends[ids[:, :-1]] | marks[:, :-1]
        words = (begins & ~marks).cumsum(1) - 1
        spelt = np.zeros(ids.shape, bool)  # True for words of more than spaces
        spelt[np.broadcast_to(rows, ids.shape)[self._spells[ids]], words[self._spells[ids]]] = True
        numbers = spelt.cumsum(1) - 1
        return np.where(marks | ~spelt[rows, words], -1, numbers[rows, words])


class LinkedRows(TokenRows[Batch]):
    """Tokenized pairs with links.

    Args:
        pairs: the rows.
        texts: columns "source" and "target" of the split.
        words: word numbers of both sides.
        links: `WordLinks` of each row of the split.
        key: the setting that names their file.

    Raises:
        UserError: for an invalid file, or a tokenizer whose pieces do not show where words begin.
    """

    def __init__(
        self, pairs: TokenDataset, texts: Any, words: Sequence[WordNumbers], links: Any, key: str
    ) -> None:
        self.pairs, self._words = pairs, words
        self.rows, self.starts = pairs.rows, pairs.starts
        self.source_lengths, self.target_lengths = pairs.source_lengths, pairs.target_lengths
        numbers, ends = array("i"), array("q", [0])  # one after another, as there may be millions
        for one in links:
            numbers.extend(number for link in one.possible for number in link)
            ends.append(len(numbers))
        self._links, self._ends = np.array(numbers).reshape(-1, 2), np.array(ends) // 2
        sides = texts["source"], texts["target"]
        self._counts = np.array([[len(words_in(text)) for text in side] for side in sides]).T
        self._folded = {  # of texts with other white space
            (side, row): np.array(word_numbers(text, len(text.split())))
            for side, texts in enumerate(sides)
            for row, text in enumerate(texts)
            if len(text.split()) != self._counts[row, side]
        }
        self._check(key)
        if any(unsplit(islice(side, _CHECKED)) for side in sides):
            say(f"{key} counts texts without spaces between words as one word each; split them")

    def _check(self, key: str) -> None:
        """Say how many pairs are not supervised, as their words are not those of the tokenizer."""
        places = np.flatnonzero(np.diff(self._ends)[self.rows])[:_CHECKED].tolist()
        labels = [bool(self.batch([place]).links.any()) for place in places]
        if not places:
            raise UserError(f"{key} links no words: all lines of the pairs that are read are empty")
        if not any(labels):
            raise UserError(
                f"{key} links no words of this tokenizer, whose pieces must show where words "
                "begin, as those of tokenizer=unigram and bpe do"
            )
        if not all(labels):
            count = f"{len(labels) - sum(labels):,} of {len(labels):,} pairs"
            say(f"{key} has no effect on {count}, whose words the tokenizer joins or cuts off")

    def links_of(self, row: int) -> list[Link]:
        """Return the links of a row of the split."""
        return [(i, j) for i, j in self._links[self._ends[row] : self._ends[row + 1]].tolist()]

    def batch(self, places: Sequence[int]) -> LinkedBatch:
        self.pairs.epoch = self.epoch
        return self.label(self.pairs.batch(places), places, {})

    def label(
        self, batch: Batch, places: Sequence[int], changed: Mapping[int, LinkedPair]
    ) -> LinkedBatch:
        """Return a batch with links.

        Args:
            batch, places: pairs, and their places in the rows.
            changed: those with other texts and links than the split's, by number in the batch.
        """
        sources, targets = (
            number(ids.numpy())
            for number, ids in zip(self._words, (batch.source, batch.target_output))
        )
        labels = np.zeros((*targets.shape, sources.shape[1]), bool)
        for n, (place, row) in enumerate(zip(places, batch.index.tolist(), strict=True)):
            if n in changed:
                text, translation, links = changed[n]
                counts = np.array([len(words_in(text)), len(words_in(translation))])
                links = np.array([*(links or ())], int).reshape(-1, 2)
                read, said = _named_in(text, sources[n]), _named_in(translation, targets[n])
            else:
                source, count = sources[n], sources[n].max() + 1
                if self.pairs.sources.lengths[row] > self.pairs.options.source_length:
                    source, count = self._window(place, row, sources.shape[1])
                links = self._links[self._ends[row] : self._ends[row + 1]]
                counts = self._counts[row]
                read = self._named(0, row, source, count)
                said = self._named(1, row, targets[n], targets[n].max() + 1)
            if read is not None and said is not None:
                linked = np.zeros(counts + 1, bool)  # the last is of no word
                linked[tuple(links.T)] = True
                labels[n] = linked[read][:, said].T
        return LinkedBatch(**vars(batch), links=torch.from_numpy(labels))

    def _named(self, side: int, row: int, words: Numbers, count: int) -> Numbers | None:
        """Return word numbers as links count them; None if the tokenizer's words are others."""
        if count == self._counts[row, side]:
            return words
        folded = self._folded.get((side, row), words[:0])
        return np.append(folded, -1)[words] if count == len(folded) else None

    def _window(self, place: int, row: int, length: int) -> tuple[Numbers, int]:
        """Return the word numbers (S,) of a part of a source, and the number of all its words."""
        [ids] = self.pairs.sources.fetch(np.array([row]))
        [numbers] = self._words[0](np.asarray(ids, np.int64)[None])
        start, head = int(self.starts[place]), int(self.pairs.heads[row])
        part = piece(numbers, self.pairs.options, start, head)[:-1]
        padded = np.full(length, -1)
        padded[: len(part)] = part
        return padded, int(numbers.max()) + 1

    @property
    def advice(self) -> str:
        return self.pairs.advice

    def summary(self, split: str) -> str:
        return self.pairs.summary(split)


def _named_in(text: str, words: Numbers) -> Numbers | None:
    """Return word numbers as links count them in a text; None if the tokenizer's are others."""
    numbers = word_numbers(text, int(words.max()) + 1)
    return None if numbers is None else np.append(np.array(numbers, int), -1)[words]


class LinkedData(Seq2SeqData):
    """Pairs of texts with links.

    Args:
        links: key and file of a split, by its name; True for a column "links" of its rows.
    """

    def __init__(
        self, *args: Any, links: Mapping[str, tuple[str, str | bool | None]], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.links = {**links}

    def _dataset(self, split: str) -> TokenRows[Any]:
        pairs, part = super()._dataset(split), self.source.parts.get(split)
        key, file = self.links.get(split, ("", None))
        if file is None and split == "val" and part is not None:  # drawn along with the pairs
            key, file = self.links["train"]
            if file is None or scan_text(user_path(str(file)))[0] != part[1]:
                return pairs
            self.links["val"] = key, file
        if file is None:
            return pairs
        if not isinstance(pairs, TokenDataset) or self.source.redraws:
            kind = type(self.source).__name__
            raise UserError(f"{key} needs texts that stay as they are, which {kind} does not give")
        tokenizer = self.tokenizer
        words = [
            WordNumbers(name(range(size)), begin)
            for name, size, begin in (
                (tokenizer.source_pieces, tokenizer.source_size, tokenizer.source_begin),
                (tokenizer.target_pieces, tokenizer.target_size, tokenizer.target_begin),
            )
        ]
        rows = self._rows(split)
        sides = rows["source"], rows["target"]
        if file is not True:
            links = each_links(user_path(str(file)), *sides, part=part, key=key)
        else:
            pairs_of, origin = zip(rows["links"], *sides, strict=True), self.source.origin(split)
            links = (
                links_of(line, [len(words_in(text)) for text in texts], f"{origin}, pair {n:,}")
                for n, (line, *texts) in enumerate(pairs_of, 1)
            )
        return LinkedRows(pairs, rows, words, links, key)
