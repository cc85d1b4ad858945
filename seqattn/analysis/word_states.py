"""What an encoder's layers hold of each word of some sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqattn.analysis.capture import has_weights, makers
from seqattn.analysis.intervene import intervene, uniform
from seqattn.models.base import Seq2SeqModel


class WordPieces(NamedTuple):
    """A sentence: its words, its ids with the end mark, and the word of each id."""

    words: list[str]
    ids: list[int]
    owners: list[int | None]
    """None of the end mark, and of a space alone."""


@torch.no_grad()
def word_states(model: Seq2SeqModel, sentences: Sequence[WordPieces]) -> dict[str, Tensor]:
    """The states of all words of all sentences, one below the other, a word's the mean of its
    pieces'.

    Args:
        model: in eval mode.
        sentences: each read by itself.

    Returns:
        (words, D) for "embedding", with the positions that are added to it, then "layer 1" and so
        on, the last as the decoder reads it. A recurrent encoder has "embedding" and "encoder".
    """
    device = next(model.parameters()).device
    found: dict[str, list[Tensor]] = {}
    for sentence in sentences:
        with _listening(model) as heard:
            outputs = model.encode(torch.tensor([sentence.ids], device=device)).outputs
        *_, last = heard
        heard["encoder" if last == "embedding" else last] = outputs
        owners = torch.tensor([-1 if own is None else own for own in sentence.owners])
        of_word = (owners[None] == torch.arange(len(sentence.words))[:, None]).to(outputs)
        mean = of_word / of_word.sum(dim=1, keepdim=True).clamp(min=1)  # (words, S)
        for layer, states in heard.items():
            found.setdefault(layer, []).append((mean @ states[0]).cpu())
    return {layer: torch.cat(states) for layer, states in found.items()}


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
    """A block in which the encoder's attention is uniform; None where it has no weights to edit."""
    encoder = {name: part for name, part in makers(model) if name.startswith("encoder.")}
    if not encoder or not all(map(has_weights, encoder.values())):
        return None
    return intervene(model, weights=dict.fromkeys(encoder, uniform))
