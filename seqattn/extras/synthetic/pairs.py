"""Pairs of symbol sequences, each a function of the seed, the split and its number."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal
from zlib import crc32

from annotated_types import Ge, Le

from seqattn.checking import BadValue, Count, Seed
from seqattn.data.arrow_tables import TEXT, table_of
from seqattn.data.base import MissingSplit, Source
from seqattn.errors import UserError
from seqattn.roles import Role

Kind = Literal["copy", "reverse", "sort", "recall", "needle"]
Length = Annotated[int, Ge(3), Le(100_000)]
MARK = "!"
"""Word before the needle."""
_SPLITS = {"val": range(1), "test": range(1, 2), "train": range(2, 10)}
"""Splits by the checksum of the source modulo 10, so that no source is in two of them."""
_DRAWS = 1000


def example(kind: Kind, length: int, vocabulary: int, random: Random) -> tuple[str, str]:
    """Draw a source and its target, as numbers separated by spaces.

    Recall is multi-query associative recall (MQAR; Arora et al. 2023, arXiv 2312.04927) for an
    encoder-decoder: pairs of a key and its value in random order; the target has all pairs by
    rising key, so that each key in it is a query. Keys are from the lower half of the vocabulary,
    each at most once, and values from the upper half.

    Args:
        kind: `copy`, `reverse` and `sort` map all symbols; `needle` asks for the symbol after
            `MARK`.
        length: words of the source; for recall rounded down to an even number.
        vocabulary: number of symbols.
    """
    symbols: list[Any] = random.choices(range(vocabulary), k=length)
    if kind == "recall":
        keys = random.sample(range(vocabulary // 2), length // 2)
        values = dict(zip(keys, random.choices(range(vocabulary // 2, vocabulary), k=len(keys))))
        symbols = [symbol for pair in values.items() for symbol in pair]
        target = [symbol for pair in sorted(values.items()) for symbol in pair]
    elif kind == "needle":
        index = random.randrange(length - 1)
        symbols[index], target = MARK, [symbols[index + 1]]
    elif kind == "sort":
        target = sorted(symbols)
    else:
        target = symbols[::-1] if kind == "reverse" else symbols
    return " ".join(map(str, symbols)), " ".join(map(str, target))


class Synthetic(Source):
    """Synthetic task: copy, reverse, sort, recall or needle (see `example`).

    Args:
        kind: the task.
        length: words of the longest source of train and val, whose lengths are uniform from
            `shortest`.
        vocabulary: number of symbols.
        shortest: words of the shortest source.
        test_lengths: words of the sources of test, equally many of each; None as train.
        train, val, test: number of examples.
        seed: seed of the examples.

    Raises:
        UserError: if the longest source of `recall` needs more keys.
    """

    def __init__(
        self,
        kind: Kind,
        length: Length,
        vocabulary: Annotated[int, Ge(2), Le(100_000)],
        shortest: Length = 3,
        test_lengths: Annotated[list[Length] | None, Role.SCORE] = None,
        train: Count = 50_000,
        val: Count = 500,
        test: Annotated[Count, Role.SCORE] = 1000,
        seed: Seed = 0,
    ) -> None:
        if shortest > length:
            raise BadValue("shortest", f"must be at most length ({length}), got {shortest}")
        longest = max([length, *(test_lengths or [])])
        if kind == "recall" and longest // 2 > vocabulary // 2:
            needed = f"must be at least {longest // 2 * 2} for sources of {longest} words"
            raise BadValue("vocabulary", f"{needed}, got {vocabulary}")
        self.kind, self.vocabulary, self.seed = kind, vocabulary, seed
        self.equal_sides = kind == "copy"
        trained = [*range(shortest, length + 1)]
        self.sizes = {"train": train, "val": val, "test": test}
        self.lengths = {"train": trained, "val": trained, "test": test_lengths or trained}

    def load(self, split: str, cache_dir: Path | None = None) -> Any:
        pairs = self.stream(split)
        rows = ({"source": source, "target": target} for source, target in pairs)
        settings = [self.kind, self.vocabulary, self.seed, self.sizes.get(split)]
        content = json.dumps(["synthetic-1", split, *settings, self.lengths.get(split)])
        return table_of(rows, {"source": TEXT, "target": TEXT}, content, cache_dir)

    def stream(self, split: str) -> Iterator[tuple[str, str]]:
        if split not in _SPLITS:
            raise MissingSplit(f"the data has no {split} split, only {', '.join(_SPLITS)}")
        return (self.pair(split, number) for number in range(self.sizes[split]))

    def pair(self, split: str, number: int) -> tuple[str, str]:
        """Return an example of a split.

        Raises:
            UserError: if there are too few sources of its length.
        """
        random, lengths = Random(f"{self.seed} {split} {number}"), self.lengths[split]
        length = lengths[number % len(lengths)]
        for _ in range(_DRAWS):
            source, target = example(self.kind, length, self.vocabulary, random)
            if crc32(source.encode()) % 10 in _SPLITS[split]:
                return source, target
        raise UserError(
            f"data.kind={self.kind} has too few sources of {length} words for the {split} split; "
            "raise data.shortest or data.vocabulary"
        )

    def origin(self, split: str) -> str:
        return f"data.kind={self.kind} data.seed={self.seed} ({split})"
