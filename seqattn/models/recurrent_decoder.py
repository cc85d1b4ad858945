"""The recurrent decoder: Bahdanau's and Luong's orders, in one fused call or step by step."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqattn.attention.alignment import Alignment
from seqattn.layers.readout import MaxoutReadout, Readout, TanhReadout
from seqattn.layers.recurrent import Hidden, RecurrentLayer, StepDropout
from seqattn.layers.stepwise import StepLinear
from seqattn.models.base import Attended
from seqattn.models.recurrent_state import Reading, RecurrentState
from seqattn.models.recurrent_trail import Trail, whole

ORDERS = ("before", "after")
OwnWord = Callable[[int, Trail], Tensor]
"""Gives the word (B*K, I) to read at a step, from the trail of the steps before."""


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
        return whole(self._trail(x, reading, state, own_word).features)

    def with_weights(
        self,
        x: Tensor,
        reading: Reading,
        state: RecurrentState,
        own_word: OwnWord | None = None,
    ) -> Attended:
        """As `forward`, and where the decoder looked; the evidence is context, state and word."""
        return self._trail(x, reading, state, own_word).attended(state.beams)

    def _trail(
        self, x: Tensor, reading: Reading, state: RecurrentState, own_word: OwnWord | None
    ) -> Trail:
        if self.loops or own_word is not None or reading.going is not None:
            return _Loop(self, x, reading, state, own_word).run()
        trail = Trail()
        trail.words.append(x)
        word = x
        for number, layer in enumerate(self.layers):
            x = self.dropout(x) if number else x
            x, state.layers[number] = layer(x, state.layers[number])
        context, weights = self.cross_attention(x, state.source, reading.steps)
        self.cross_attention.observe([weights], state.beams)
        trail.tops.append(x)
        trail.contexts.append(context)
        trail.weights.append(weights)
        trail.features.append(self.dropout(self.readout(x, context, word)))
        return trail


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
        self.trail = Trail()

    def run(self) -> Trail:
        """Decodes every step."""
        if self.own_word is None and (self.decoder.before or self.state.fed is None):
            self.read_at_once()
        else:
            self.read_each()
        self.decoder.cross_attention.observe(self.trail.weights, self.state.beams)
        return self.trail

    def read_at_once(self) -> None:
        """The features of all steps together, where no step reads those of another."""
        tops, trail = list[Tensor](), self.trail
        for t in range(self.x.shape[1]):
            if self.decoder.before:
                self.ask(t, self.state.layers[-1][0])
            tops.append(self.step(t, trail.contexts[-1:]))
        top = torch.stack(tops, dim=1)
        if trail.contexts:
            context = torch.stack(trail.contexts, dim=1)
        else:
            context, weights = self.decoder.cross_attention(
                top, self.state.source, self.reading.steps
            )
            trail.weights.append(weights)
        trail.words, trail.tops, trail.contexts = [self.x], [top], [context]
        out: Tensor = self.decoder.readout(top, context, self.x)
        trail.features.append(out if self.after is None else out * self.after)

    def read_each(self) -> None:
        """The features of each step, where a step reads those of the one before."""
        before, trail = self.decoder.before, self.trail
        for t in range(self.x.shape[1]):
            word = self.x[:, t]
            if self.own_word is not None and trail.features:
                word = self.own_word(t, trail)
            inputs = [] if self.own_word is None else [word]
            if before:
                inputs.append(self.ask(t, self.state.layers[-1][0]))
            elif self.state.fed is not None:
                inputs.append(self.state.fed)
            top = self.step(t, inputs)
            if not before:
                self.ask(t, top)
            trail.words.append(word)
            trail.tops.append(top)
            trail.features.append(self.read(t, top, trail.contexts[-1], word))

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
        self.trail.weights.append(weights)
        self.trail.contexts.append(context[:, 0])
        return self.trail.contexts[-1]

    def read(self, t: int, top: Tensor, context: Tensor, word: Tensor) -> Tensor:
        """The features (B*K, D) of one step."""
        readout = self.decoder.readout
        out = readout.finished(self.merge(t, [readout.joined(top, context, word)]))
        out = out if self.after is None else out * self.after[:, t]
        if self.state.fed is not None:
            (self.state.fed,) = self.held(t, (out,), (self.state.fed,))
        return out
