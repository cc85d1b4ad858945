"""Noise that turns a text into a source and a target of denoising."""

import math
import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from random import Random
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from seqattn.checking import BadValue
from seqattn.metrics.scripts import script_words, split_words

MASK = "<mask>"
SENTINELS = [f"<extra_id_{number}>" for number in range(16)]
Kind = Literal["masking", "deletion", "infilling", "spans", "gap_sentences", "none"]
NoiseShare = Annotated[float, Gt(0), Lt(1)]
Span = Annotated[float, Ge(1), Le(100)]
_SHARES = {"masking": 0.15, "deletion": 0.15, "infilling": 0.3, "spans": 0.15, "gap_sentences": 0.3}
_GLUE = "\0"
"""End of a word that no space separates from the next one."""
_RUN = re.compile(r"([^\s]*)(\n*)")
_ENDS = re.compile(r"[.!?…。！？][\"'”’)\]」』）】》]*\n*\0?$|\n$")  # noqa: RUF001
_UNGLUED = re.compile(r"\0(?: (?!<mask>|<extra_id_\d+>))?")


@dataclass(frozen=True)
class Noise:
    """Noise on the words of a text.

    Spaces separate words; of scripts without spaces between words, each letter is a word.

    `masking` replaces words by `MASK`, `deletion` removes them. `infilling` replaces each span by
    one `MASK`, where the length of a span is drawn from Poisson(`span`), and a span of length 0
    inserts one (BART, Lewis et al. 2019, arXiv 1910.13461, section 2.2). `spans` replaces each by a
    sentinel of its own; the target has each sentinel, followed by the words that it replaces, and
    a last one (T5, Raffel et al. 2019, arXiv 1910.10683, section 3.1.4). `gap_sentences` replaces
    each of the principal sentences by `MASK`, and they are the target (PEGASUS, Zhang et al. 2019,
    arXiv 1912.08777, section 3.1). The target of other kinds is the text.

    Args:
        kind: which of them.
        share: share of words (of sentences for `gap_sentences`); None for the paper's.
        span: mean words of a span, for `infilling` and `spans`.
        permute: also shuffle the sentences of the source, as BART; not for `spans` and
            `gap_sentences`.
    """

    kind: Kind = "infilling"
    share: NoiseShare | None = None
    span: Span = 3.0
    permute: bool = False

    def __post_init__(self) -> None:
        if self.permute and self.kind in ("spans", "gap_sentences"):
            reason = f"needs a noise whose target is the text, got noise={self.kind}"
            raise BadValue("permute", reason, "noise")

    def __call__(self, text: str, random: Random) -> tuple[str, str]:
        """Return the source and the target of a text; an empty one if it is too short."""
        sentences, share = sentences_of(text), self.share or _SHARES.get(self.kind, 0.0)
        target = join_words(chain(*sentences))
        if self.kind == "gap_sentences":
            return gap_sentences(sentences, share)
        if self.permute:
            random.shuffle(sentences)
        words = [*chain(*sentences)]
        limit = len(words) - (self.kind in ("deletion", "spans"))  # at least one is left
        count = min(max(1, round(share * len(words))), limit)
        if self.kind == "none":
            return join_words(words), target
        if count < 1:
            return "", ""
        if self.kind == "spans":
            return t5_spans(words, count, self.span, random)
        if self.kind == "infilling":
            return join_words(infill(words, count, self.span, random)), target
        chosen = set(random.sample(range(len(words)), count))
        new = [MASK] if self.kind == "masking" else []
        replaced = (new if n in chosen else [word] for n, word in enumerate(words))
        return join_words(chain(*replaced)), target


def sentences_of(text: str) -> list[list[str]]:
    """Split a text into sentences of words; one ends at . ! ? or a line break, which it keeps."""
    sentences: list[list[str]] = [[]]
    for run, breaks in _RUN.findall(text.strip().replace(_GLUE, "")):
        *glued, last = split_words(run) or [""]
        for word in [*(f"{part}{_GLUE}" for part in glued), last + breaks]:
            if word:
                sentences[-1].append(word)
            if _ENDS.search(word):
                sentences.append([])
    return [sentence for sentence in sentences if sentence]


def infill(words: Sequence[str], count: int, mean: float, random: Random) -> list[str]:
    """Replace `count` words in spans at random places; one of them is cut to that number."""
    lengths: list[int] = []
    while (remaining := count - sum(lengths)) > 0:
        lengths.append(min(poisson(mean, random), remaining))
    random.shuffle(lengths)
    starts = set(random.sample(range(len(words) - count + len(lengths)), len(lengths)))
    iterator, output = iter(words), []
    for index in range(len(words) - count + len(lengths)):
        if index in starts:
            output.append(MASK)
            deque(islice(iterator, lengths.pop()), maxlen=0)
        else:
            output.append(next(iterator))
    return output


def poisson(mean: float, random: Random) -> int:
    """Draw from a Poisson distribution (Knuth 1969, section 3.4.1)."""
    limit, count, product = math.exp(-mean), 0, random.random()
    while product > limit:
        count, product = count + 1, product * random.random()
    return count


def t5_spans(words: Sequence[str], count: int, mean: float, random: Random) -> tuple[str, str]:
    """Replace `count` words in spans at random places, none beside another.

    The paper's code alternates words and spans, so that the only span of a short text ends it.
    """
    free = len(words) - count + 1  # places between the words that stay, and at both ends
    number = min(max(1, round(count / mean)), count, free, len(SENTINELS) - 1)
    spans = _pieces([0, *sorted(random.sample(range(1, count), number - 1)), count])
    gaps = _pieces([0, *sorted(random.sample(range(free), number))])
    source: list[str] = []
    target: list[str] = []
    iterator = iter(words)
    for sentinel, *lengths in zip(SENTINELS, gaps, spans):
        source += [*islice(iterator, lengths[0]), sentinel]
        target += [sentinel, *islice(iterator, lengths[1])]
    return join_words([*source, *iterator]), join_words([*target, SENTINELS[number]])


def _pieces(bounds: Sequence[int]) -> list[int]:
    return [end - start for start, end in pairwise(bounds)]


def gap_sentences(sentences: Sequence[Sequence[str]], share: float) -> tuple[str, str]:
    """Replace the sentences with the highest ROUGE-1 F1 against the rest."""
    bags = [Counter(script_words(join_words(sentence))) for sentence in sentences]
    total: Counter[str] = sum(bags, Counter())

    def score(number: int) -> float:
        bag, remainder = bags[number], total - bags[number]
        return 2 * (bag & remainder).total() / max(1, bag.total() + remainder.total())

    count = min(max(1, round(share * len(sentences))), len(sentences) - 1)
    chosen = sorted(sorted(range(len(sentences)), key=score, reverse=True)[: max(0, count)])
    source = chain(*([MASK] if n in chosen else sentence for n, sentence in enumerate(sentences)))
    return join_words(source), join_words(chain(*(sentences[n] for n in chosen)))


def join_words(words: Iterable[str]) -> str:
    """Return the text of words, which keep their line breaks; spaces set off masks."""
    return _UNGLUED.sub("", " ".join(words)).replace("\n ", "\n").strip()
