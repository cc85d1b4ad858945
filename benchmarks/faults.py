"""How well the signals of quality=true find planted faults.

A model's own outputs count as right, and each is compared with the same pair after a fault: 2 to 4
adjacent words are removed from the source, or inserted into it from another source, or repeated in
the output, or the output is that of the next source. These are AUCs of planted faults: real ones
are rarer, and harder to find.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from benchmarks.suite import Figures, Row, Suite
from seqattn.bundle.load import load_bundle
from seqattn.checking import CountOrNone
from seqattn.data.base import Source
from seqattn.errors import UserError
from seqattn.extras.quality.figures import auc
from seqattn.extras.quality.judge import Judge, pairs_of
from seqattn.extras.quality.quality import Quality
from seqattn.extras.quality.signals import Reading, signals_of
from seqattn.storage import user_path

FEWEST = 5
"""Words of a source and of its output, to plant a fault."""
Words = list[str]


class Pair(NamedTuple):
    """Words of a source and its output, and the first and last place of a fault in them."""

    source: Words
    output: Words
    begin: int = 0
    end: int = 0


def removed(pair: Pair, other: Pair, random: Random) -> Pair:
    """Remove words of the source."""
    begin, end = _phrase(pair.source, random)
    return Pair(pair.source[:begin] + pair.source[end:], pair.output, begin, end)


def inserted(pair: Pair, other: Pair, random: Random) -> Pair:
    """Insert words of another source into the source."""
    begin, end = _phrase(other.source, random)
    place = random.randrange(len(pair.source))
    source = pair.source[:place] + other.source[begin:end] + pair.source[place:]
    return Pair(source, pair.output, place, place + end - begin)


def repeated(pair: Pair, other: Pair, random: Random) -> Pair:
    """Repeat words of the output right after themselves."""
    begin, end = _phrase(pair.output, random)
    output = pair.output[:end] + pair.output[begin:end] + pair.output[end:]
    return Pair(pair.source, output, end, 2 * end - begin)


def shuffled(pair: Pair, other: Pair, random: Random) -> Pair:
    """Take the output of another source."""
    return Pair(pair.source, other.output)


KINDS: tuple[Callable[[Pair, Pair, Random], Pair], ...] = (removed, inserted, repeated, shuffled)


def _phrase(words: Words, random: Random) -> tuple[int, int]:
    size = random.randint(2, 4)
    begin = random.randrange(len(words) - size + 1)
    return begin, begin + size


@dataclass(frozen=True, kw_only=True)
class FaultsSuite(Suite):
    """AUC by kind of fault and signal, and for marked words.

    Args:
        bundle: path of a calibrated bundle.
        source: source of the sentences.
        split: train, val or test.
        sentences: use the first N sentences; 0 for all.
        cache_dir: cache directory of the texts; None for that of `datasets`.
    """

    bundle: str
    source: Source
    split: str = "test"
    sentences: CountOrNone = 0
    cache_dir: str | None = None

    def measure(self) -> Iterator[Figures]:
        bundle = load_bundle(str(user_path(self.bundle)))
        judge = Quality().of(bundle)
        cache = None if self.cache_dir is None else Path(self.cache_dir)
        sources = self.source.load(self.split, cache)["source"][: self.sentences or None]
        both = zip(sources, bundle.generate(sources), strict=True)
        pairs = [Pair(source.split(), output.split()) for source, output in both]
        pairs = [one for one in pairs if min(len(one.source), len(one.output)) >= FEWEST]
        if not pairs:
            raise UserError(f"no sentence of {self.split} has {FEWEST} words on both sides")
        random, right = Random(self.seed), _readings(judge, pairs)
        merits = judge.calibration.merits([one.signals for one in right])
        rows: list[Row] = []
        words: list[Row] = []
        for plant in KINDS:
            others = pairs[1:] + pairs[:1]
            faulty = [plant(*both, random) for both in zip(pairs, others, strict=True)]
            found = _readings(judge, faulty)
            found_merits = judge.calibration.merits([one.signals for one in found])
            scores = {name: auc(values, found_merits[name]) for name, values in merits.items()}
            rows.append({"fault": plant.__name__, **scores})
            if plant is removed:
                links = bundle.align(*_texts(pairs))
                places = [
                    [fault.begin <= link < fault.end for link in one.links]
                    for fault, one in zip(faulty, links, strict=True)
                ]
                words.append(
                    _of_words("output words of removed ones", found, places, "support", judge)
                )
            if plant is inserted:
                places = [
                    [fault.begin <= place < fault.end for place in range(len(fault.source))]
                    for fault in faulty
                ]
                words.append(_of_words("inserted source words", found, places, "use", judge))
        yield Figures(f"AUC of planted faults, {len(pairs):,} sentences of {self.split}", rows)
        yield Figures("AUC of words", words)


def _texts(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    return [" ".join(one.source) for one in pairs], [" ".join(one.output) for one in pairs]


def _readings(judge: Judge, pairs: Sequence[Pair]) -> list[Reading]:
    found = pairs_of(judge.bundle, *_texts(pairs))
    if len(found) < len(pairs):
        raise UserError("some sentences are longer than the model allows; choose another split")
    return signals_of(judge.bundle, [*found.values()])


def _of_words(
    name: str,
    readings: Sequence[Reading],
    faulty: Sequence[Sequence[bool]],
    signal: str,
    judge: Judge,
) -> Row:
    """Return how well a signal finds faulty words, where all words are those between spaces."""
    values, marks = [], []
    for reading, places in zip(readings, faulty, strict=True):
        numbers = getattr(reading, signal)
        if len(numbers) == len(places):
            kept = [place for place, value in enumerate(numbers) if value < np.inf]
            values += [numbers[place] for place in kept]
            marks += [places[place] for place in kept]
    array, bad = np.array(values), np.array(marks)
    marked = array < getattr(judge.calibration, signal)
    shares = {"marked": float(marked[bad].mean()), "others marked": float(marked[~bad].mean())}
    return {"words": name, "signal": signal, "AUC": auc(array[~bad], array[bad]), **shares}
