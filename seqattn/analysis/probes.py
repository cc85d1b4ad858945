"""What can be read off from states: by a linear probe, and by nearest neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

_PENALTY = 1e-3  # on the squares of the weights, of standardised states
_STEPS = 100


class Labels(NamedTuple):
    """A label for each of N words, which of them the probe learns from, and control labels."""

    classes: list[str]
    own: Tensor
    """(N,) numbers of classes."""
    control: Tensor
    """(N,) as drawn for each word form."""
    learnt: Tensor
    """(N,) bool; the others are held out."""
    forms: list[str]

    @classmethod
    def of(
        cls, labels: Sequence[Sequence[str]], words: Sequence[Sequence[str]], seed: int
    ) -> Labels:
        """Of sentences; every fifth sentence is held out.

        Control labels are drawn anew for each word form, with the shares of the true ones, so that
        a probe can only learn them by heart (Hewitt and Liang 2019, arXiv 1909.03368).
        """
        flat = [label for sentence in labels for label in sentence]
        forms = [form for sentence in words for form in sentence]
        classes = sorted(set(flat))
        own = torch.tensor([classes.index(label) for label in flat])
        kinds = sorted(set(forms))
        draws = torch.Generator().manual_seed(seed)
        shares = own.bincount(minlength=len(classes)).double()
        drawn = shares.multinomial(len(kinds), replacement=True, generator=draws)
        control = drawn[torch.tensor([kinds.index(form) for form in forms])]
        learnt = [number % 5 != 4 for number, sentence in enumerate(words) for _ in sentence]
        return cls(classes, own, control, torch.tensor(learnt), forms)

    @property
    def majority(self) -> float:
        """The accuracy on held-out words of the commonest label."""
        return self._share(torch.full_like(self.own, int(self.own[self.learnt].mode().values)))

    @property
    def by_form(self) -> float:
        """The accuracy of each form's commonest label; of a form that was not learnt, of all's."""
        counts: dict[str, Counter[int]] = {}
        for form, label, learnt in zip(
            self.forms, self.own.tolist(), self.learnt.tolist(), strict=True
        ):
            if learnt:
                counts.setdefault(form, Counter())[label] += 1
        usual = int(self.own[self.learnt].mode().values)
        said = [counts[f].most_common(1)[0][0] if f in counts else usual for f in self.forms]
        return self._share(torch.tensor(said))

    def _share(self, said: Tensor) -> float:
        return float((said == self.own)[~self.learnt].double().mean())

    def accuracy(self, states: Tensor, control: bool = False) -> float:
        """Of a linear probe on held-out words: logistic regression, by L-BFGS from zeros.

        Args:
            states: (N, D).
            control: of the control labels, in place of the true ones.
        """
        target = self.control if control else self.own
        known = states[self.learnt].double()
        x = (states.double() - known.mean(dim=0)) / known.std(dim=0).clamp(min=1e-6)
        weight = torch.zeros(len(self.classes), x.shape[1], dtype=x.dtype, requires_grad=True)
        bias = torch.zeros(len(self.classes), dtype=x.dtype, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [weight, bias], max_iter=_STEPS, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            optimizer.zero_grad()
            logits = F.linear(x[self.learnt], weight, bias)
            found = F.cross_entropy(logits, target[self.learnt])
            found = found + _PENALTY * weight.square().sum()
            found.backward()
            return found

        optimizer.step(loss)
        said = F.linear(x, weight, bias).argmax(dim=1)
        return float((said == target)[~self.learnt].double().mean())


def nearest_words(states: Tensor, word: int, count: int) -> list[tuple[int, float]]:
    """The words whose states are nearest to one word's, by their cosine, nearest first.

    Args:
        states: (N, D).
        word: whose neighbours are looked for; it is none of its own.
        count: how many at most.
    """
    cosines = F.cosine_similarity(states, states[word : word + 1])
    cosines[word] = -torch.inf
    best = cosines.topk(min(count, len(states) - 1))
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
