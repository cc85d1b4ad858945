"""Hard monotonic attention with exact marginalization over all monotonic alignments."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.attention.alignment import AlignmentOutput, Annotations, Luong, Past, joined_steps
from seqattn.errors import UserError
from seqattn.extras.monotone.expected import first_token
from seqattn.layers.rnn_layer import RecurrentLayer, StepDropout
from seqattn.models.head import DecoderOutput, Head, SourceTokens
from seqattn.models.recurrent import Recurrent, RecurrentConfig
from seqattn.models.recurrent_decoder import Readout, RecurrentDecoder
from seqattn.models.recurrent_state import DecodedSteps, RecurrentState, TargetRows
from seqattn.ops.cross_entropy import LossTerms, TokenLoss
from seqattn.ops.precision import wide
from seqattn.tokens import PAD

_NEVER = -1e6
"""Log-probability of what cannot be; finite, so that gradients are."""


class HardMonotonic(Luong):
    """Hard monotonic attention of order 0, summed over all alignments (Wu and Cotterell 2019).

    A target token comes from one annotation, at or after that of the token before (arXiv
    1905.06319): p(s | s') is a softmax of the scores over s >= s', and the forward recursion

        p(y_t, s) = p(y_t | s) sum of p(s | s') p(s' | y_1..y_{t-1}) over s' <= s

    sums over all monotonic paths in log space. So the output is a mixture of word distributions,
    one for each annotation, not the distribution of one mixed context. Weights are p(s), before y_t
    is known.

    Takes T * S * (D + V) numbers in training, and time T * S * D * V for the words; suits small
    vocabularies, such as characters. Remembers S * V numbers for each hypothesis.

    Args: as for `Luong`; the paper's score is general.
    """

    exceptions: ClassVar[Mapping[str, str]] = {"context": "it sums over contexts"}

    def model_type(self, default: type[Any]) -> type[Any]:
        return MarginalRecurrent

    def first_past(self, source: Annotations, beams: int) -> Past:
        """Return log p(s', y_0) before the first step, (B*K, S, 1), the same for all tokens."""
        first = first_token(source, beams)
        return (torch.where(first > 0, 0.0, _NEVER).to(first.dtype)[..., None],)

    def forward(
        self, query: Tensor, source: Annotations, steps: Tensor, past: Past = ()
    ) -> AlignmentOutput:
        """Return every annotation (B, S, M) in a context's place, and scores (B, K*T, S)."""
        query = query.reshape(len(source.values), -1, query.shape[-1])
        scores = wide(self.score(query, source.keys)).masked_fill(~source.real[:, None], _NEVER)
        return AlignmentOutput(source.values, scores, past)


def transition(scores: Tensor, previous: Tensor) -> Tensor:
    """Return log p(s) = log of the sum over s' <= s of p(s | s') p(s'), (..., S).

    Args:
        scores: (..., S), of which p(s | s') is the softmax over s >= s'.
        before: (..., S) log p(s').
    """
    totals = scores.flip(-1).logcumsumexp(dim=-1).flip(-1)  # log of the sums over s >= s'
    return scores + (previous - totals).logcumsumexp(dim=-1)


class MarginalDecoder(RecurrentDecoder):
    """A recurrent decoder whose features are log-probabilities of the next token, (B*K, T, V).

    Args: as for `RecurrentDecoder`, and `words`, the output layer.
    """

    output_layers = ("words",)

    def __init__(
        self,
        layers: Sequence[RecurrentLayer],
        attention: HardMonotonic,
        readout: Readout,
        dropout: StepDropout,
        words: nn.Linear,
    ) -> None:
        super().__init__(layers, attention, readout, dropout, attends_first=False)
        self.words = words

    def read_out(
        self, x: Tensor, top: Tensor, rows: TargetRows, state: RecurrentState, done: DecodedSteps
    ) -> DecodedSteps:
        values, scores, _ = self.cross_attention(top, state.source, rows.steps)
        values = values.repeat_interleave(state.beams, dim=0)
        scores = scores.view(*top.shape[:2], -1)  # (B, K*T, S) -> (B*K, T, S)
        words = self.of_each(top, values)
        features, weights = [], []
        for t in range(top.shape[1]):
            [joint] = state.past
            position = transition(scores[:, t], read(joint, rows.ids[:, t]))
            position, alignment = self._edited(position, state)
            new = position[..., None] + words[:, t]  # (B*K, S, V)
            features.append(new.logsumexp(dim=1))
            weights.append(alignment)
            if rows.active is not None:
                new = torch.where(rows.active[:, t, None, None], new, joint)
            state.past = (new,)
        context = joined_steps(weights, state.beams).flatten(0, 1).to(values.dtype) @ values
        return DecodedSteps([x], [top], [context], [torch.stack(features, dim=1)], weights)

    def of_each(self, top: Tensor, values: Tensor) -> Tensor:
        """Return log p(y_t | s), (N, T, S, V). Args: states (N, T, H) and annotations (N, S, M)."""
        merge, width = self.readout.merge, values.shape[-1]
        contexts = F.linear(values, merge.weight[:, :width])
        states = F.linear(top, merge.weight[:, width:], merge.bias)
        features = self.dropout((states[:, :, None] + contexts[:, None]).tanh())  # (N, T, S, D)
        return wide(self.words(features)).log_softmax(dim=-1)

    def _edited(self, log_p: Tensor, state: RecurrentState) -> tuple[Tensor, Tensor]:
        """Return log p(s) after edits (B*K, S), and the weights (B, K, S)."""
        weights = log_p.exp().unflatten(0, (-1, state.beams))
        if self.cross_attention.edits:
            real = state.source.real[:, None, None]
            used = self.cross_attention.edit_and_show(weights[:, None], lambda: real)
            assert used is not None
            weights = used[:, 0]
            edited = weights.flatten(0, 1)
            log_p = edited.clamp(min=torch.finfo(log_p.dtype).tiny).log()
            log_p = log_p.masked_fill(edited <= 0, _NEVER)
        return log_p, weights


def read(joint: Tensor, ids: Tensor) -> Tensor:
    """Return log p(s | y) of tokens y (N,), from log p(s, y) (N, S, V), or (N, S, 1) for any y."""
    if joint.shape[2] > 1:
        joint = joint.gather(2, ids[:, None, None].expand(-1, joint.shape[1], 1))
    return joint[..., 0].log_softmax(dim=1)


class GivenHead(Head):
    """The head of features that are log-probabilities already."""

    def __init__(self) -> None:
        nn.Module.__init__(self)

    def logits(self, output: DecoderOutput, source: SourceTokens | None) -> Tensor:
        return output.features

    def log_probabilities(self, output: DecoderOutput, source: SourceTokens | None) -> Tensor:
        return output.features

    def loss(
        self,
        output: DecoderOutput,
        targets: Tensor,
        source: SourceTokens | None,
        terms: LossTerms,
        tokens: int | None = None,
    ) -> TokenLoss:
        if terms.divergence_weight:
            raise UserError(
                "attention=hard_monotonic supports neither task.r_drop nor task.simcut; set them "
                "to 0"
            )
        log_probabilities, real, smoothing = output.features, targets != PAD, terms.label_smoothing
        gold = log_probabilities.gather(2, targets[..., None])[..., 0]
        nll, spread = -(gold * real).sum(), -(log_probabilities.mean(dim=2) * real).sum()
        smoothed = (1 - smoothing) * nll + smoothing * spread
        correct = ((log_probabilities.argmax(dim=2) == targets) & real).sum()
        return TokenLoss(smoothed, nll, correct, real.sum(), nll.new_zeros(()))


class MarginalRecurrent(Recurrent):
    """A recurrent model that sums over alignments. Its states depend on no context.

    Args and the rest as for `Recurrent`.

    Raises:
        UserError: for settings that read a context.
    """

    feeds_itself = False

    def __init__(
        self, config: RecurrentConfig, source_size: int, target_size: int, alignment: HardMonotonic
    ) -> None:
        if config.order == "before" or config.input_feeding or config.copy:
            raise UserError(
                "attention=hard_monotonic sums over all alignments, so nothing may read a single "
                "context; set model.order=after model.input_feeding=false model.copy=false"
            )
        super().__init__(config, source_size, target_size, alignment)
        plain, words = self.decoder, self.head.linear
        self.decoder = MarginalDecoder(
            [*plain.layers], alignment, plain.readout, self.dropout, words
        )
        self.head = GivenHead()
