"""Beam search for outputs with required terms."""

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
        lasts = (length >= batch.most).tolist() if self.each else []
        for row, (number, last) in enumerate(zip(stepper.numbers, lasts)):
            terms = self.each[number]
            if not isinstance(terms, LineTerms) or not (terms.required or last):
                continue
            assert stepper.said is not None
            total = batch.scores[row][:, None] + following[row]
            own = _Sentence(terms, stepper.said[row].tolist(), total)
            own.add(zip(usual.parents[row].tolist(), usual.tokens[row].tolist(), strict=True))
            chosen = own.chosen(self.beam_size, last, not batch.count[row])
            places = [place for place, one in enumerate(chosen) if one is not None]
            usual.scores[row] = -torch.inf
            for name, values in zip(("scores", "parents", "tokens"), own.columns(chosen)):
                part = getattr(usual, name)
                part[row, places] = torch.tensor(values, device=part.device).to(part.dtype)
        return usual


class _Sentence:
    """Candidates of one sentence.

    Args:
        terms: its terms.
        said: tokens of each beam.
        total: (K, V) log-probabilities of their continuations.
    """

    def __init__(self, terms: LineTerms, said: list[list[int]], total: Tensor) -> None:
        self.terms, self.said, self.total = terms, said, total
        self.found: dict[tuple[int, int], tuple[float, Progress]] = {}
        best = total.argmax(dim=1).tolist()
        after = terms.lexicon.after
        places = total[:, torch.as_tensor(after, device=total.device)].argmax(dim=1)
        apart = after[places.cpu().numpy()].tolist()  # which leave the last word as it is
        for beam, ids in enumerate(said):
            wanted = {best[beam], apart[beam]}
            self.add((beam, token) for token in {*wanted, *terms.progress(ids).wanted})

    def add(self, pairs: Any) -> None:
        """Add beams with their next tokens."""
        new = [pair for pair in pairs if pair not in self.found]
        beams, tokens = zip(*new, strict=True) if new else ((), ())
        for (beam, token), score in zip(new, self.total[[*beams], [*tokens]].tolist()):
            if score > -torch.inf:
                ids = self.said[beam] if token == EOS else [*self.said[beam], token]
                self.found[beam, token] = score, self.terms.progress(ids)

    def chosen(self, beams: int, last: bool, first: bool) -> list[Any]:
        """Return the candidates of K columns for ends, and of K for beams; None for none.

        Args:
            beams: K.
            last: the sentence is at its maximum length, where beams end.
            first: no hypothesis has ended so far.
        """
        ranked = sorted(self.found, key=lambda one: -self.found[one][0])
        full = [one for one in ranked if self.found[one][1].met]
        ends = [one for one in full[:beams] if one[1] == EOS]
        ends += [one for one in ranked if one[1] == EOS and not self.found[one][1].met]  # silent
        going = [one for one in ranked if one[1] != EOS]
        if last and (ends or not first or any(self.found[one][1].met for one in going)):
            going = [one for one in going if self.found[one][1].met]
        places, seen = {}, Counter[int]()
        for one in going:
            bank = self.found[one][1].bank
            places[one] = seen[bank], -bank  # the first of each bank, then the second, ...
            seen[bank] += 1
        live = sorted(going, key=places.__getitem__)[:beams]
        rows = [part[:beams] + [None] * (beams - len(part)) for part in (ends, live)]
        return [*rows[0], *rows[1]]

    def columns(self, chosen: Sequence[Any]) -> tuple[list[float], list[int], list[int]]:
        """Return scores, parents and tokens of the candidates that are not None."""
        some = [one for one in chosen if one is not None]
        beams, tokens = ([one[n] for one in some] for n in (0, 1))
        return [self.found[one][0] for one in some], beams, tokens
