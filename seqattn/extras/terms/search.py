"""Beam search for outputs with required terms."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from seqattn.extras.terms.line_terms import LineTerms, Progress
from seqattn.generation.beam import BeamBatch, BeamSearch, Candidates
from seqattn.generation.constraints import Constraints
from seqattn.generation.stepper import Stepper
from seqattn.tokens import EOS


@dataclass(frozen=True)
class TermBeamSearch(BeamSearch):
    """Beam search with dynamic beam allocation (Post and Vilar 2018, arXiv 1804.06609).

    Each step also considers, for every hypothesis, its likeliest token and those that bring it
    further. Candidates are put into banks by their tokens of required terms, and the K beams are
    shared among the banks, so that hypotheses with more terms, which are less probable at first,
    do not fall out. The beam keeps its size for any number of terms. Banks are by text: a term that
    the model spells with other pieces counts, too.

    Sources without required terms are searched as by `BeamSearch`, except that no output ends at
    its maximum length with a forbidden term.

    Args: as `BeamSearch`.
    """

    each: Sequence[Any] = field(default=(), kw_only=True, repr=False, compare=False)
    """Terms of each source of a batch, or None; set by `under`."""

    @classmethod
    def of(cls, search: BeamSearch) -> "TermBeamSearch":
        """Return the search with the settings of a beam search."""
        return cls(**{one.name: getattr(search, one.name) for one in fields(search)})

    def under(self, each: Sequence[Constraints]) -> "TermBeamSearch":
        search: Any = super().under(each)
        return replace(search, each=[one.processor for one in each])

    def propose(
        self, stepper: Stepper, following: Tensor, batch: BeamBatch, length: int
    ) -> Candidates:
        usual = super().propose(stepper, following, batch, length)
        if not self.each:
            return usual
        lasts, active = (length >= batch.max_length).tolist(), batch.active.tolist()
        each = [self.each[number] for number in stepper.numbers]
        rows = [
            row
            for row, terms in enumerate(each)
            if isinstance(terms, LineTerms) and (terms.required or lasts[row]) and active[row]
        ]
        if not rows:
            return usual
        assert stepper.prefix is not None
        scores, likely = batch.scores.tolist(), following.argmax(dim=2).tolist()
        pairs = torch.stack((usual.parents, usual.tokens), dim=2)[rows].tolist()
        prefixes, first = stepper.prefix[rows].tolist(), (batch.num_finished[rows] == 0).tolist()
        chosen: list[list[tuple[float, int, int]]] = []
        for index, row in enumerate(rows):
            sentence = _Sentence(each[row], prefixes[index], scores[row], following[row])
            sentence.add(likely[row], pairs[index])
            chosen.append(sentence.chosen(self.beam_size, lasts[row], first[index]))
        columns = torch.tensor(chosen, dtype=torch.double, device=following.device)
        for part, values in zip(usual, columns.unbind(dim=2)):
            part[rows] = values.to(part.dtype)
        return usual


_NONE = (-math.inf, 0, 0)


class _Sentence:
    """Candidates of one sentence.

    Args:
        terms: its terms.
        prefixes: tokens of each beam.
        scores: (K) their log-probabilities.
        following: (K, V) log-probability of each token after each.
    """

    def __init__(
        self, terms: LineTerms, prefixes: list[list[int]], scores: list[float], following: Tensor
    ) -> None:
        self.terms, self.prefixes, self.scores, self.following = terms, prefixes, scores, following
        self.found: dict[tuple[int, int], tuple[float, Progress]] = {}

    def add(self, likely: Sequence[int], pairs: Sequence[Sequence[int]]) -> None:
        """Add candidates. Args: likely: best token of each beam; pairs: beams and tokens."""
        new = {(beam, token) for beam, token in pairs}
        for beam, ids in enumerate(self.prefixes):
            progress = self.terms.progress(ids)
            new.update((beam, token) for token in (likely[beam], *progress.wanted))
            if progress.fresh:  # the best token that leaves the last word as it is
                after = torch.as_tensor(self.terms.lexicon.after, device=self.following.device)
                new.add((beam, int(after[self.following[beam, after].argmax()])))
        beams, tokens = zip(*sorted(new), strict=True)
        values = self.following[[*beams], [*tokens]].tolist()
        for beam, token, value in zip(beams, tokens, values, strict=True):
            score = self.scores[beam] + value
            if score > -math.inf:
                ids = self.prefixes[beam] if token == EOS else [*self.prefixes[beam], token]
                self.found[beam, token] = score, self.terms.progress(ids)

    def chosen(self, beams: int, last: bool, first: bool) -> list[tuple[float, int, int]]:
        """Return score, parent and token of K candidates for ends, and of K for beams.

        Args:
            beams: K.
            last: the sentence is at its maximum length, where beams end.
            first: no hypothesis has ended so far.
        """
        ranked = sorted(self.found, key=lambda one: (-self.found[one][0], one))
        full = [one for one in ranked if self.found[one][1].met]
        ends = [one for one in full[:beams] if one[1] == EOS]
        ends += [one for one in ranked if one[1] == EOS and not self.found[one][1].met]  # silent
        growing = [one for one in ranked if one[1] != EOS]
        if last and (ends or not first or any(self.found[one][1].met for one in growing)):
            growing = [one for one in growing if self.found[one][1].met]
        places, seen = {}, Counter[int]()
        for one in growing:
            bank = self.found[one][1].bank
            places[one] = seen[bank], -bank  # the first of each bank, then the second, ...
            seen[bank] += 1
        live = sorted(growing, key=places.__getitem__)
        parts = ([(self.found[one][0], *one) for one in some[:beams]] for some in (ends, live))
        return [one for part in parts for one in (*part, *[_NONE] * (beams - len(part)))]
