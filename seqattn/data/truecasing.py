"""Restoring capital letters in lower-cased text."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from seqattn.checking import Count, CountOrNone

_WORD = re.compile(r"[^\W_]+")
_KINDS = ("start", "lower", "title", "upper", "mixed")
"""Case patterns of words; `start` precedes the first word."""
_RARE_FORMS = ("lower", "title", "upper")
"""Case patterns that any word can take."""
_RARE = 2  # maximum number of occurrences
_PRIOR = 0.5  # pseudo-count of the statistics of rare words


@dataclass(frozen=True)
class Truecaser:
    """Restore the case of words from their context (after Lita et al. 2003).

    The best sequence of forms maximizes P(form | word) P(kind | kind before) / P(kind), where a
    kind is lower, title, upper or mixed; so a subject line that begins in title case continues in
    it. Statistics of rare words are the prior for rare and unseen words.

    Attributes:
        forms: counts of the written forms of each lower-cased word.
        kinds: counts of each kind after each kind.
        rare: counts of each kind among rare words.
    """

    forms: Mapping[str, Mapping[str, Count]]
    kinds: Mapping[str, Mapping[str, CountOrNone]]
    rare: Mapping[str, Count]

    @classmethod
    def read(cls, content: bytes) -> "Truecaser":
        """Read JSON with the three attributes.

        Raises:
            ValueError: if it is not such JSON.
        """
        from pydantic import TypeAdapter  # takes a tenth of a second to import

        truecaser = TypeAdapter(cls).validate_json(content, strict=True)
        if not (
            truecaser.kinds.keys() >= set(_KINDS) and truecaser.rare.keys() >= set(_RARE_FORMS)
        ):
            raise ValueError("a kind is missing from kinds or rare")
        return truecaser

    @classmethod
    def learnt(cls, texts: Iterable[str]) -> "Truecaser":
        """Learn the counts from cased texts."""
        forms: dict[str, Counter[str]] = defaultdict(Counter)
        kinds: dict[str, Counter[str]] = {kind: Counter() for kind in _KINDS}
        for text in texts:
            previous = "start"
            for word in _WORD.findall(text):
                forms[word.casefold()][word] += 1
                kinds[previous][_kind(word)] += 1
                previous = _kind(word)
        rare = Counter(_RARE_FORMS)  # add-one, so that none is impossible
        for counts in forms.values():
            if counts.total() <= _RARE:
                rare.update(map(_kind, counts.elements()))
        return cls(_plain(forms), _plain(kinds), dict(rare))

    def __call__(self, text: str) -> str:
        """Return the text with case restored."""
        matches = [*_WORD.finditer(text)]
        best: dict[str, tuple[float, list[str]]] = {"start": (0.0, [])}  # by the last word's kind
        for match in matches:
            extended: dict[str, tuple[float, list[str]]] = {}
            for form, score in self._scored(match[0]):
                kind = _kind(form)
                totals = {
                    last: score + value + self._following[last, kind]
                    for last, (value, _) in best.items()
                }
                previous = max(totals, key=totals.__getitem__)
                total = totals[previous]
                if kind not in extended or total > extended[kind][0]:
                    extended[kind] = total, [*best[previous][1], form]
            best = extended
        forms = iter(max(best.values(), key=lambda one: one[0])[1])
        return _WORD.sub(lambda _: next(forms), text)

    def _scored(self, word: str) -> list[tuple[str, float]]:
        """Return forms of a word with their log-probabilities."""
        forms = self.forms.get(word.casefold(), {})
        variants = dict(
            zip(_RARE_FORMS, (word, word[:1].upper() + word[1:], word.upper()), strict=True)
        )
        share = _PRIOR / sum(self.rare.values())
        counts = {form: share * self.rare[kind] for kind, form in variants.items()}
        counts |= {form: count + counts.get(form, 0.0) for form, count in forms.items()}
        return [(form, math.log(count)) for form, count in counts.items()]

    @cached_property
    def _following(self) -> dict[tuple[str, str], float]:
        """Log ratio of P(kind | kind before) to P(kind)."""
        counts = {(a, b): 1 + self.kinds[a].get(b, 0) for a in _KINDS for b in _KINDS}
        totals = {a: sum(counts[a, b] for b in _KINDS) for a in _KINDS}
        anywhere = {b: sum(counts[a, b] for a in _KINDS) for b in _KINDS}
        total = sum(totals.values())
        return {
            (a, b): math.log(n * total / totals[a] / anywhere[b]) for (a, b), n in counts.items()
        }


def _plain(rows: Mapping[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {key: dict(row) for key, row in rows.items()}


def _kind(word: str) -> str:
    if word == word.lower():  # digits, too
        return "lower"
    if word == word[:1].upper() + word[1:].lower():
        return "title"
    return "upper" if word == word.upper() else "mixed"
