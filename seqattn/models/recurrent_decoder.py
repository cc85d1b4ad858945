"""Recurrent decoder in Bahdanau's or Luong's order, in one fused call or step by step."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from seqattn.attention.alignment import Alignment
from seqattn.layers.rnn_layer import RecurrentLayer, StepDropout, Steps
from seqattn.models.head import DecoderOutput
from seqattn.models.recurrent_state import DecodedSteps, RecurrentState, TargetRows
from seqattn.ops.layers import Linear

ChooseInput = Callable[[int, DecodedSteps], Tensor]
"""Function of a step and the previous steps that returns its input embeddings (B*K, I)."""


class Readout(nn.Module):
    """Features of a step from its state, its context and its input word.

    With `maxout`, the maximum over pairs of W [s; y; c] + b (Bahdanau et al. 2015, arXiv 1409.0473,
    appendix A.2.2), else tanh(W [c; h] + b) (Luong et al. 2015, arXiv 1508.04025, eq. 5).
    """

    def __init__(self, dim: int, hidden_dim: int, context_dim: int, maxout: bool) -> None:
        super().__init__()
        self.maxout = maxout
        width = hidden_dim + context_dim
        self.merge = Linear(width + dim, 2 * dim) if maxout else Linear(width, dim)

    def forward(self, hidden: Tensor, context: Tensor, word: Tensor) -> Tensor:
        """Map (..., hidden), (..., context) and (..., I) to (..., D)."""
        merged = self.merge(self.merge_input(hidden, context, word))
        if not self.maxout:
            return merged.tanh()
        return merged.unflatten(-1, (-1, 2)).amax(dim=-1)  # (..., 2*D) -> (..., D, 2) -> (..., D)

    def merge_input(self, hidden: Tensor, context: Tensor, word: Tensor) -> Tensor:
        """Return the input of `merge`."""
        parts = (hidden, word, context) if self.maxout else (context, hidden)
        return torch.cat(parts, dim=-1)


class RecurrentDecoder(nn.Module):
    """LSTM or GRU layers whose top state attends to the source.

    In Bahdanau's order (`before`) the query is the state before the step, and the context is an
    input of the first layer. In Luong's (`after`) it is the state after the step, and with input
    feeding the previous features are that input. `plain_decode` is the reference; this version is
    faster: if no step depends on attention, a complete target takes one fused call of each layer
    and one of the attention.

    Args:
        layers: the first has the context or the previous features as further inputs.
        attention: attention to the source.
        readout: computes the features, as wide as the embeddings.
        dropout: between layers and on the features.
        before: use Bahdanau's order.
    """

    def __init__(
        self,
        layers: Sequence[RecurrentLayer],
        attention: Alignment,
        readout: Readout,
        dropout: StepDropout,
        attends_first: bool,
    ) -> None:
        super().__init__()
        self.layers: Iterable[RecurrentLayer] = nn.ModuleList(layers)  # type: ignore[assignment]
        self.cross_attention, self.readout, self.dropout = attention, readout, dropout
        self.attends_first = attends_first
        self.loops = layers[0].extra_dim > 0 or attention.remembers
        """True if a step depends on the attention of the previous step."""

    def forward(
        self,
        x: Tensor,
        rows: TargetRows,
        state: RecurrentState,
        choose_input: ChooseInput | None = None,
        need_weights: bool = False,
    ) -> DecoderOutput:
        """Decode target tokens.

        Args:
            x: (B*K, T, I) embedded target tokens.
            rows: their ids and positions.
            state: the state so far; advanced in place.
            choose_input: chooses the inputs from the second step on; None to read x.
            need_weights: also return weights and evidence.
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
        return self.read_out(x, top, rows, state, DecodedSteps())

    def read_out(
        self, x: Tensor, top: Tensor, rows: TargetRows, state: RecurrentState, done: DecodedSteps
    ) -> DecodedSteps:
        """Compute the features of all steps at once; their contexts may be in `done` already."""
        if done.contexts:
            context, weights = torch.stack(done.contexts, dim=1), done.weights
        else:
            context, attended, _ = self.cross_attention(top, state.source, rows.steps)
            weights = [attended]
        features = self.dropout(self.readout(top, context, x))
        return DecodedSteps([x], [top], [context], [features], weights)


class _Loop:
    """Step-by-step decoding of a target. Args: as in `RecurrentDecoder.forward`."""

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
        count, length = x.shape[:2]
        inputs = x if choose_input is None else None
        self.layers = [
            Steps(layer, None if number else inputs, count, length)
            for number, layer in enumerate(decoder.layers)
        ]
        factors, hidden_dim = decoder.dropout.factors, state.layers[-1][0].shape[1]
        self.between = [factors(count, length, hidden_dim, x) for _ in self.layers[1:]]
        self.reads_features = choose_input is not None or state.fed is not None
        """True if a step reads the features of the previous step."""
        if self.reads_features:
            self.feature_factors = factors(count, length, x.shape[2], x)
        self.done = DecodedSteps()

    def run(self) -> DecodedSteps:
        """Decode every step, and compute all features at once if no step reads them."""
        decoder, done = self.decoder, self.done
        for t in range(self.x.shape[1]):
            word = self.x[:, t]
            if self.choose_input is not None and done.features:
                word = self.choose_input(t, done)
            inputs = [] if self.choose_input is None else [word]
            if decoder.attends_first:
                context = self.attend(t, self.state.layers[-1][0])
                inputs += [context] if context.shape[1] else []  # of width 0 without attention
            elif self.state.fed is not None:
                inputs.append(self.state.fed)
            top = self.step(t, inputs)
            done.inputs.append(word)
            done.tops.append(top)
            if self.reads_features:
                context = done.contexts[-1] if decoder.attends_first else self.attend(t, top)
                done.features.append(self.readout(t, top, context, word))
            elif decoder.cross_attention.remembers and not decoder.attends_first:
                self.attend(t, top)
        if self.reads_features:
            return done
        return decoder.read_out(self.x, torch.stack(done.tops, dim=1), self.rows, self.state, done)

    def step(self, t: int, inputs: list[Tensor]) -> Tensor:
        """Run one step of every layer; return the top output (B*K, hidden)."""
        for number, layer in enumerate(self.layers):
            if number:
                x, mask = self.state.layers[number - 1][0], self.between[number - 1]
                inputs = [x if mask is None else x * mask[:, t]]
            old = self.state.layers[number]
            self.state.layers[number] = self.rows.advance(t, layer(t, inputs, old), old)
        return self.state.layers[-1][0]

    def attend(self, t: int, query: Tensor) -> Tensor:
        """Return the context (B*K, M) of one step."""
        steps, state = self.rows.steps[:, t : t + 1], self.state
        context, weights, past = self.decoder.cross_attention(
            query[:, None], state.source, steps, state.past
        )
        state.past = self.rows.advance(t, past, state.past)
        self.done.weights.append(weights)
        self.done.contexts.append(context[:, 0])
        return self.done.contexts[-1]

    def readout(self, t: int, top: Tensor, context: Tensor, word: Tensor) -> Tensor:
        """Return the features (B*K, D) of one step."""
        out = self.decoder.readout(top, context, word)
        out = out if self.feature_factors is None else out * self.feature_factors[:, t]
        if self.state.fed is not None:
            (self.state.fed,) = self.rows.advance(t, (out,), (self.state.fed,))
        return out


def plain_decode(
    decoder: RecurrentDecoder, x: Tensor, rows: TargetRows, state: RecurrentState
) -> DecoderOutput:
    """Compute `RecurrentDecoder` in eval mode with target inputs, directly from its equations.

    Args: as in `RecurrentDecoder.forward`.
    """
    attention, done = decoder.cross_attention, DecodedSteps()
    for t in range(x.shape[1]):
        steps, word = rows.steps[:, t : t + 1], x[:, t : t + 1]
        query = state.layers[-1][0][:, None]
        if decoder.attends_first:  # c_t = attend(s_{t-1}), s_t = f(s_{t-1}, [y_{t-1}; c_t])
            context, weights, past = attention(query, state.source, steps, state.past)
            top = torch.cat((word, context), dim=2)
        else:  # s_t = f(s_{t-1}, [y_{t-1}; features_{t-1}]), c_t = attend(s_t)
            top = word if state.fed is None else torch.cat((word, state.fed[:, None]), dim=2)
        for number, layer in enumerate(decoder.layers):
            old = state.layers[number]
            state.layers[number] = rows.advance(t, layer(top, old)[1], old)
            top = state.layers[number][0][:, None]
        if not decoder.attends_first:
            context, weights, past = attention(top, state.source, steps, state.past)
        state.past = rows.advance(t, past, state.past)
        features = decoder.readout(top, context, word)
        if state.fed is not None:
            (state.fed,) = rows.advance(t, (features[:, 0],), (state.fed,))
        pieces = [piece[:, 0] for piece in (word, top, context, features)]
        for steps_done, piece in zip(vars(done).values(), [*pieces, weights], strict=True):
            steps_done.append(piece)
    return done.output(state.beams, need_weights=True)
