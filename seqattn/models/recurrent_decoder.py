"""The recurrent decoder: Bahdanau's and Luong's orders, in one fused call or step by step."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqattn.attention.alignment import Alignment
from seqattn.layers.readout import MaxoutReadout, Readout, TanhReadout
from seqattn.layers.rnn_layer import Cell, RecurrentLayer, StepDropout
from seqattn.models.head import DecoderOutput
from seqattn.models.recurrent_state import DecodedSteps, RecurrentState, TargetRows
from seqattn.ops.stepwise import StepLinear


@dataclass(frozen=True)
class DecoderShape:
    """Args: as `RecurrentConfig`, all settled."""

    cell: Cell
    dim: int
    hidden_dim: int
    layers: int
    order: str
    input_feeding: bool


ChooseInput = Callable[[int, DecodedSteps], Tensor]
"""From a step and the steps before it to the embedded tokens (B*K, I) that it reads."""


class RecurrentDecoder(nn.Module):
    """LSTM or GRU layers whose topmost state attends to the source.

    In Bahdanau's order (`before`) the state before the step attends, and the context is an input
    of the first layer. In Luong's (`after`) the state after the step attends, and with input
    feeding the features of the step before are that input. `plain_decode` says what is computed;
    this is quick: where no step depends on attention, a whole target is one fused call of each
    layer and one of the attention.

    Args:
        shape: widths, depth, order.
        attention: to the source.
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
        rows: TargetRows,
        state: RecurrentState,
        choose_input: ChooseInput | None = None,
        need_weights: bool = False,
    ) -> DecoderOutput:
        """Decodes target tokens and moves the state on.

        Args:
            x: (B*K, T, I) embedded tokens as given.
            rows: where they stand.
            state: what came before.
            choose_input: what is read from the second step on; None to read x.
            need_weights: also weights and evidence.
        """
        if self.loops or choose_input is not None or rows.active is not None:
            done = _Loop(self, x, rows, state, choose_input).run()
        else:
            done = self._fused(x, rows, state)
        self.cross_attention.observe(done.weights, state.beams)
        return done.output(state.beams, need_weights)

    def _fused(self, x: Tensor, rows: TargetRows, state: RecurrentState) -> DecodedSteps:
        top = x
        for number, layer in enumerate(self.layers):
            top = self.dropout(top) if number else top
            top, state.layers[number] = layer(top, state.layers[number])
        context, weights = self.cross_attention(top, state.source, rows.steps)
        features = self.dropout(self.readout(top, context, x))
        return DecodedSteps([x], [top], [context], [features], [weights])


class _Loop:
    """Decodes a target step by step. Args: as `RecurrentDecoder.forward`."""

    def __init__(
        self,
        decoder: RecurrentDecoder,
        x: Tensor,
        rows: TargetRows,
        state: RecurrentState,
        choose_input: ChooseInput | None,
    ) -> None:
        self.decoder, self.x, self.rows, self.state = decoder, x, rows, state
        self.choose_input = choose_input
        layers = [layer for layer in decoder.layers if isinstance(layer, RecurrentLayer)]
        count, length = x.shape[:2]
        known = x if choose_input is None else None
        self.layers = [
            layer.steps(None if number else known, count, length)
            for number, layer in enumerate(layers)
        ]
        factors = decoder.dropout.factors
        self.between = [factors(count, length, decoder.shape.hidden_dim, x) for _ in layers[1:]]
        self.after = factors(count, length, decoder.shape.dim, x)
        merge = decoder.readout.merge
        self.merge = StepLinear(merge.bias.expand(count, length, -1), [merge.weight])
        self.done = DecodedSteps()

    def run(self) -> DecodedSteps:
        """Decodes every step, and makes the features of all together where no step reads them."""
        decoder, done = self.decoder, self.done
        each = self.choose_input is not None or self.state.fed is not None
        for t in range(self.x.shape[1]):
            word = self.x[:, t]
            if self.choose_input is not None and done.features:
                word = self.choose_input(t, done)
            inputs = [] if self.choose_input is None else [word]
            if decoder.before:
                inputs.append(self.attend(t, self.state.layers[-1][0]))
            elif self.state.fed is not None:
                inputs.append(self.state.fed)
            top = self.step(t, inputs)
            done.inputs.append(word)
            done.tops.append(top)
            if each:
                context = done.contexts[-1] if decoder.before else self.attend(t, top)
                done.features.append(self.readout(t, top, context, word))
        if not each:
            self.readout_at_once()
        return done

    def readout_at_once(self) -> None:
        """The features (B*K, T, D) of all steps."""
        done, attention = self.done, self.decoder.cross_attention
        top = torch.stack(done.tops, dim=1)
        if done.contexts:
            context = torch.stack(done.contexts, dim=1)
        else:
            context, weights = attention(top, self.state.source, self.rows.steps)
            done.weights.append(weights)
        done.inputs, done.tops, done.contexts = [self.x], [top], [context]
        out: Tensor = self.decoder.readout(top, context, self.x)
        done.features.append(out if self.after is None else out * self.after)

    def step(self, t: int, inputs: list[Tensor]) -> Tensor:
        """One step of every layer; the topmost output (B*K, hidden)."""
        for number, layer in enumerate(self.layers):
            if number:
                x, mask = self.state.layers[number - 1][0], self.between[number - 1]
                inputs = [x if mask is None else x * mask[:, t]]
            old = self.state.layers[number]
            self.state.layers[number] = self.rows.advanced(t, layer(t, inputs, old), old)
        return self.state.layers[-1][0]

    def attend(self, t: int, query: Tensor) -> Tensor:
        """The context (B*K, M) of one step."""
        steps = self.rows.steps[:, t : t + 1]
        context, weights = self.decoder.cross_attention(query[:, None], self.state.source, steps)
        self.done.weights.append(weights)
        self.done.contexts.append(context[:, 0])
        return self.done.contexts[-1]

    def readout(self, t: int, top: Tensor, context: Tensor, word: Tensor) -> Tensor:
        """The features (B*K, D) of one step."""
        readout = self.decoder.readout
        out = readout.finished(self.merge(t, [readout.joined(top, context, word)]))
        out = out if self.after is None else out * self.after[:, t]
        if self.state.fed is not None:
            (self.state.fed,) = self.rows.advanced(t, (out,), (self.state.fed,))
        return out


def plain_decode(
    decoder: RecurrentDecoder, x: Tensor, rows: TargetRows, state: RecurrentState
) -> DecoderOutput:
    """What `RecurrentDecoder` computes in eval mode of given tokens, by its equations alone.

    Args: as `RecurrentDecoder.forward`.
    """
    attention, done = decoder.cross_attention, DecodedSteps()
    for t in range(x.shape[1]):
        steps, word = rows.steps[:, t : t + 1], x[:, t : t + 1]
        asking = state.layers[-1][0][:, None]
        if decoder.before:  # c_t = attend(s_{t-1}), s_t = f(s_{t-1}, [y_{t-1}; c_t])
            context, weights = attention(asking, state.source, steps)
            top = torch.cat((word, context), dim=2)
        else:  # s_t = f(s_{t-1}, [y_{t-1}; features_{t-1}]), c_t = attend(s_t)
            top = word if state.fed is None else torch.cat((word, state.fed[:, None]), dim=2)
        for number, layer in enumerate(decoder.layers):
            old = state.layers[number]
            state.layers[number] = rows.advanced(t, layer(top, old)[1], old)
            top = state.layers[number][0][:, None]
        if not decoder.before:
            context, weights = attention(top, state.source, steps)
        features = decoder.readout(top, context, word)
        if state.fed is not None:
            (state.fed,) = rows.advanced(t, (features[:, 0],), (state.fed,))
        done.weights.append(weights)
        for pieces, piece in zip(
            (done.inputs, done.tops, done.contexts, done.features), (word, top, context, features)
        ):
            pieces.append(piece[:, 0])
    return done.output(state.beams, need_weights=True)
