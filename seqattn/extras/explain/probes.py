"""Word states of an encoder, with linear probes and nearest neighbors."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import compress
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.analysis.capture import has_weights, makers
from seqattn.analysis.intervene import intervene, uniform
from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import UNK

_PENALTY = 1e-3  # L2 penalty, for standardized states
_STEPS = 100


class WordPieces(NamedTuple):
    """Sentence as words, its ids with the end mark, and the word index of each id."""

    words: list[str]
    ids: list[int]
    owners: list[int | None]
    """None for the end mark, and for a single space."""

    def lacks(self, word: int) -> bool:
        """Return True if the vocabulary lacks characters of a word."""
        return any(owner == word and token == UNK for owner, token in zip(self.owners, self.ids))


@torch.no_grad()
def word_states(model: Seq2SeqModel, sentences: Sequence[WordPieces]) -> dict[str, Tensor]:
    """Compute the states of all words of all sentences, one row each; a word's state is the mean
    over its pieces.

    Args:
        model: in eval mode.
        sentences: sentences, each read separately.

    Returns:
        (words, D) for "embedding", with the positions that are added to it, then "layer 1" and so
        on, the last as the decoder reads it. A recurrent encoder has "embedding" and "encoder".
    """
    device = next(model.parameters()).device
    parts: dict[str, list[Tensor]] = {}
    for sentence in sentences:
        with _listening(model) as heard:
            outputs = model.encode(torch.tensor([sentence.ids], device=device)).outputs
        *_, last = heard
        heard["encoder" if last == "embedding" else last] = outputs
        owners = torch.tensor([-1 if owner is None else owner for owner in sentence.owners])
        of_word = (owners[None] == torch.arange(len(sentence.words))[:, None]).to(outputs)
        mean = of_word / of_word.sum(dim=1, keepdim=True).clamp(min=1)  # (words, S)
        for layer, states in heard.items():
            parts.setdefault(layer, []).append((mean @ states[0]).cpu())
    return {layer: torch.cat(states) for layer, states in parts.items()}


@contextmanager
def _listening(model: Any) -> Iterator[dict[str, Tensor]]:
    heard: dict[str, Tensor] = {}
    parts: dict[str, nn.Module] = {"embedding": model.source_embedding}
    layers = getattr(model.encoder, "layers", ())
    parts |= {f"layer {number}": layer for number, layer in enumerate(layers, 1)}

    def note(name: str) -> Any:
        return lambda module, args, output: heard.__setitem__(name, output)

    with ExitStack() as stack:
        for name, part in parts.items():
            stack.enter_context(part.register_forward_hook(note(name)))
        yield heard


def uniform_attention(model: nn.Module) -> AbstractContextManager[None] | None:
    """Make the encoder's attention uniform within a block; None if it has no weights to edit."""
    encoder = {name: part for name, part in makers(model) if name.startswith("encoder.")}
    if not encoder or not all(map(has_weights, encoder.values())):
        return None
    return intervene(model, weights=dict.fromkeys(encoder, uniform))


class Labels(NamedTuple):
    """Labels of N words, their split into training and held-out words, and control labels."""

    classes: list[str]
    own: Tensor
    """(N,) class indices."""
    control: Tensor
    """(N,) control labels, drawn for each word form."""
    learnt: Tensor
    """(N,) bool; the others are held out."""
    forms: list[str]

    @classmethod
    def of(
        cls, labels: Sequence[Sequence[str]], words: Sequence[Sequence[str]], seed: int
    ) -> "Labels":
        """Build labels of sentences, holding out every fifth sentence.

        Control labels are drawn for each word form, with the frequencies of the true ones, so that
        a probe can only memorize them (Hewitt and Liang 2019, arXiv 1909.03368).
        """
        flat = [label for sentence in labels for label in sentence]
        forms = [form for sentence in words for form in sentence]
        classes = sorted(set(flat))
        numbers = {label: number for number, label in enumerate(classes)}
        targets = torch.tensor([numbers[label] for label in flat])
        kinds = {form: number for number, form in enumerate(sorted(set(forms)))}
        draws = torch.Generator().manual_seed(seed)
        shares = targets.bincount(minlength=len(classes)).double()
        random_labels = shares.multinomial(len(kinds), replacement=True, generator=draws)
        control = random_labels[torch.tensor([kinds[form] for form in forms])]
        learnt = [number % 5 != 4 for number, sentence in enumerate(words) for _ in sentence]
        return cls(classes, targets, control, torch.tensor(learnt), forms)

    @property
    def majority(self) -> float:
        """Accuracy on held-out words of the most frequent label."""
        return self._share(torch.full_like(self.own, int(self.own[self.learnt].mode().values)))

    @property
    def by_form(self) -> float:
        """Accuracy of each form's most frequent label; unseen forms get the overall one."""
        counts: dict[str, Counter[int]] = {}
        labelled = zip(self.forms, self.own.tolist(), strict=True)
        for form, label in compress(labelled, self.learnt.tolist()):
            counts.setdefault(form, Counter())[label] += 1
        usual = int(self.own[self.learnt].mode().values)
        predicted = [counts[f].most_common(1)[0][0] if f in counts else usual for f in self.forms]
        return self._share(torch.tensor(predicted))

    def _share(self, predicted: Tensor) -> float:
        return float((predicted == self.own)[~self.learnt].double().mean())

    def accuracy(self, states: Tensor, control: bool = False) -> float:
        """Train a linear probe and return its accuracy on held-out words.

        Logistic regression, by L-BFGS from zeros.

        Args:
            states: (N, D).
            control: use the control labels instead of the true ones.
        """
        target = self.control if control else self.own
        train_states = states[self.learnt].double()
        x = (states.double() - train_states.mean(dim=0)) / train_states.std(dim=0).clamp(min=1e-6)
        weight = torch.zeros(len(self.classes), x.shape[1], dtype=x.dtype, requires_grad=True)
        bias = torch.zeros(len(self.classes), dtype=x.dtype, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [weight, bias], max_iter=_STEPS, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            optimizer.zero_grad()
            logits = F.linear(x[self.learnt], weight, bias)
            value = F.cross_entropy(logits, target[self.learnt])
            value = value + _PENALTY * weight.square().sum()
            value.backward()
            return value

        optimizer.step(loss)
        predicted = F.linear(x, weight, bias).argmax(dim=1)
        return float((predicted == target)[~self.learnt].double().mean())


def nearest_words(states: Tensor, word: int, count: int) -> list[tuple[int, float]]:
    """Return the words whose states have the highest cosine with one word's, highest first.

    Args:
        states: (N, D).
        word: index of the query word, itself excluded.
        count: maximum number of neighbors.
    """
    cosines = F.cosine_similarity(states, states[word : word + 1])
    cosines[word] = -torch.inf
    best = cosines.topk(min(count, len(states) - 1))
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
