"""The recurrent decoder: Bahdanau's and Luong's orders, in one fused call or step by step."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqattn.attention.alignment import Alignment
from seqattn.layers.readout import MaxoutReadout, Readout, TanhReadout
from seqattn.layers.recurrent import Hidden, RecurrentLayer, StepDropout
from seqattn.layers.stepwise import StepLinear
from seqattn.models.recurrent_state import Reading, RecurrentState

ORDERS = ("before", "after")
OwnWord = Callable[[int, Tensor], Tensor]
"""Gives the word (B*K, I) to read at a step, from the features (B*K, D) of the step before."""


@dataclass(frozen=True)
class DecoderShape:
    """Args: as `RecurrentConfig`, all settled."""

    cell: str
    dim: int
    hidden_dim: int
    layers: int
    order: str
    input_feeding: bool


class RecurrentDecoder(nn.Module):
    """LSTM or GRU layers whose topmost state asks the source.

    In Bahdanau's order (`before`) the state before the step asks, and the context is an input of
    the first layer. In Luong's (`after`) the state after the step asks, and with input feeding the
    features of the step before are that input. Where no step depends on attention, a whole target
    is one fused call of each layer and one of the attention.

    Args:
        shape: widths, depth, order.
        attention: how the source is asked.
        dropout: between layers and on the features.
    """

    def __init__(self, shape: DecoderShape, attention: Alignment, dropout: StepDropout) -> None:
        super().__init__()
        self.shape = shape
        self.before = shape.order == "before"
        extra = shape.dim if shape.input_feeding else 0
        extra = attention.context_dim if self.before else extra
        width = shape.hidden_dim
        self.layers = nn.ModuleList(
            RecurrentLayer(shape.cell, width if n else shape.dim, 0 if n else extra, width)
            for n in range(shape.layers)
        )
        self.cross_attention = attention
        kind: type[Readout] = MaxoutReadout if self.before else TanhReadout
        self.readout = kind(shape.dim, width, attention.context_dim)
        self.dropout = dropout
        self.loops = extra > 0
        """Whether a step needs what the step before attended to."""

    def forward(
        self,
        x: Tensor,
        reading: Reading,
        state: RecurrentState,
        own_word: OwnWord | None = None,
    ) -> Tensor:
        """Features (B*K, T, D) of words x (B*K, T, I); moves the state on.

        Args:
            x: words as given.
            reading: where they stand.
            state: what came before.
            own_word: gives the words to read from the second step on; None to read x.
        """
        if self.loops or own_word is not None or reading.going is not None:
            return _Loop(self, x, reading, state, own_word).run()
        word = x
        for number, layer in enumerate(self.layers):
            x = self.dropout(x) if number else x
            x, state.layers[number] = layer(x, state.layers[number])
        context, weights = self.cross_attention(x, state.source, reading.steps)
        self.cross_attention.observe([weights], state.beams)
        out: Tensor = self.dropout(self.readout(x, context, word))
        return out


class _Loop:
    """Decodes a target step by step. Args: as `RecurrentDecoder.forward`."""

    def __init__(
        self,
        decoder: RecurrentDecoder,
        x: Tensor,
        reading: Reading,
        state: RecurrentState,
        own_word: OwnWord | None,
    ) -> None:
        self.decoder, self.x, self.reading, self.state = decoder, x, reading, state
        self.own_word = own_word
        layers = [layer for layer in decoder.layers if isinstance(layer, RecurrentLayer)]
        rows, count = x.shape[:2]
        known = x if own_word is None else None
        self.layers = [
            layer.steps(None if number else known, rows, count)
            for number, layer in enumerate(layers)
        ]
        factors = decoder.dropout.factors
        self.between = [factors(rows, count, decoder.shape.hidden_dim, x) for _ in layers[1:]]
        self.after = factors(rows, count, decoder.shape.dim, x)
        merge = decoder.readout.merge
        self.merge = StepLinear(merge.bias.expand(rows, count, -1), [merge.weight])
        self.weights: list[Tensor] = []

    def run(self) -> Tensor:
        """Features (B*K, T, D)."""
        at_once = self.own_word is None and (self.decoder.before or self.state.fed is None)
        out = self.read_all(*self.states()) if at_once else torch.stack(self.features(), dim=1)
        self.decoder.cross_attention.observe(self.weights, self.state.beams)
        return out

    def states(self) -> tuple[Tensor, Tensor]:
        """Topmost outputs (B*K, T, hidden) and contexts (B*K, T, M), where none reads features."""
        tops, contexts = [], []
        for t in range(self.x.shape[1]):
            if self.decoder.before:
                contexts.append(self.ask(t, self.state.layers[-1][0]))
            tops.append(self.step(t, contexts[-1:]))
        top = torch.stack(tops, dim=1)
        if contexts:
            return top, torch.stack(contexts, dim=1)
        context, weights = self.decoder.cross_attention(top, self.state.source, self.reading.steps)
        self.weights.append(weights)
        return top, context

    def read_all(self, top: Tensor, context: Tensor) -> Tensor:
        """The features of all steps, from topmost outputs and contexts."""
        out: Tensor = self.decoder.readout(top, context, self.x)
        return out if self.after is None else out * self.after

    def features(self) -> list[Tensor]:
        """The features (B*K, D) of each step, where a step reads those of the one before."""
        before, features = self.decoder.before, list[Tensor]()
        for t in range(self.x.shape[1]):
            word = self.x[:, t]
            if self.own_word is not None and features:
                word = self.own_word(t, features[-1])
            inputs = [] if self.own_word is None else [word]
            if before:
                context = self.ask(t, self.state.layers[-1][0])
                inputs.append(context)
            elif self.state.fed is not None:
                inputs.append(self.state.fed)
            top = self.step(t, inputs)
            if not before:
                context = self.ask(t, top)
            features.append(self.read(t, top, context, word))
        return features

    def step(self, t: int, inputs: list[Tensor]) -> Tensor:
        """One step of every layer; gives the topmost output (B*K, hidden)."""
        for number, layer in enumerate(self.layers):
            if number:
                x, mask = self.state.layers[number - 1][0], self.between[number - 1]
                inputs = [x if mask is None else x * mask[:, t]]
            old = self.state.layers[number]
            self.state.layers[number] = self.held(t, layer(t, inputs, old), old)
        return self.state.layers[-1][0]

    def held(self, t: int, new: Hidden, old: Hidden) -> Hidden:
        """The new state, or the old one in rows that have no token left."""
        if self.reading.going is None:
            return new
        going = self.reading.going[:, t, None]
        return tuple(torch.where(going, one, other) for one, other in zip(new, old, strict=True))

    def ask(self, t: int, query: Tensor) -> Tensor:
        """The context (B*K, M) of one step."""
        steps = self.reading.steps[:, t : t + 1]
        context, weights = self.decoder.cross_attention(query[:, None], self.state.source, steps)
        self.weights.append(weights)
        return context[:, 0]

    def read(self, t: int, top: Tensor, context: Tensor, word: Tensor) -> Tensor:
        """The features (B*K, D) of one step."""
        readout = self.decoder.readout
        out = readout.finished(self.merge(t, [readout.joined(top, context, word)]))
        out = out if self.after is None else out * self.after[:, t]
        if self.state.fed is not None:
            (self.state.fed,) = self.held(t, (out,), (self.state.fed,))
        return out
