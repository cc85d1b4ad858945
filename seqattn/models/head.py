"""Output heads over the vocabulary: linear, or with copying from the source."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.errors import UserError
from seqattn.ops.cross_entropy import LossTerms, Mixture, TokenLoss
from seqattn.ops.layers import Linear
from seqattn.ops.precision import wide
from seqattn.ops.vocabulary_loss import blockwise_cross_entropy
from seqattn.tokens import RESERVED


class DecoderOutput(NamedTuple):
    """Features of target tokens, and the cross-attention that led to them."""

    features: Tensor
    """(B*K, T, D)."""
    weights: Tensor | None = None
    """(B*K, T, S) weights of the last cross-attention, the mean over heads, 0 on padding; None if
    not requested."""
    evidence: Tensor | None = None
    """(B*K, T, E) their context, the decoder's state and the embedded input token, concatenated;
    None if not requested."""


class SourceTokens(NamedTuple):
    """Copyable tokens of B sources, prepared once for all steps."""

    ids: Tensor
    """(B, S)."""
    first: Tensor
    """(B, S) the first position in the source with the same token."""
    text: Tensor
    """(B, S) bool, True where a token is text."""

    @classmethod
    def of(cls, ids: Tensor) -> "SourceTokens":
        """Prepare source ids. Args: ids: (B, S), padded on either side."""
        is_same_id = ids[:, :, None] == ids[:, None]
        return cls(ids, is_same_id.byte().argmax(dim=2), ids >= RESERVED)

    def keep(self, sentences: Tensor) -> "SourceTokens":
        """Select the tokens of some sentences. Args: sentences: (B',) rows."""
        return SourceTokens(*(part.index_select(0, sentences) for part in self))


class Head(nn.Module):
    """Linear layer and softmax: the distribution of the next token, and the loss of targets.

    Args:
        dim: width D of the decoder's features.
        vocabulary_size: target vocabulary V.
        tied: an embedding table (V, D) to use as the output matrix; None for a separate matrix.
        bias: add a bias to the logits.
        softcap: c of logits c tanh(x / c), see `SoftcapKernel`; None for x.
    """

    needs_weights: bool = False
    """True if it reads the weights and evidence of a `DecoderOutput`."""

    def __init__(
        self,
        dim: int,
        vocabulary_size: int,
        tied: Tensor | None = None,
        bias: bool = False,
        softcap: float | None = None,
    ) -> None:
        super().__init__()
        self.softcap = softcap
        self.linear = Linear(dim, vocabulary_size, bias=bias)
        if bias:
            nn.init.zeros_(self.linear.bias)
        if tied is None:
            nn.init.xavier_uniform_(self.linear.weight)
        else:
            self.linear.weight = tied

    def source_tokens(self, ids: Tensor) -> SourceTokens | None:
        """Prepare what the head needs of sources (B, S) at every step; None if it needs nothing."""
        return None

    def mixture(self, output: DecoderOutput, source: SourceTokens | None) -> Mixture | None:
        """Return the mixture of generating and copying for each target token, or None."""
        return None

    def logits(self, output: DecoderOutput, source: SourceTokens | None) -> Tensor:
        """Return logits (B*K, T, V) of each next token.

        Args:
            output: output of the decoder.
            source: result of `source_tokens` for B sentences.
        """
        mixture, logits = self.mixture(output, source), self.linear(output.features)
        if self.softcap is not None:
            logits = self.softcap * (logits / self.softcap).tanh()
        return logits if mixture is None else mixture.log_probabilities(logits)

    def log_probabilities(self, output: DecoderOutput, source: SourceTokens | None) -> Tensor:
        """Return log-probabilities (B*K, T, V) in nats, at least float32. Args: as in `logits`."""
        logits = wide(self.logits(output, source))
        if torch.is_grad_enabled():
            return logits.log_softmax(dim=-1)
        # in place, as allocating costs as much as the sum
        return torch.log_softmax(logits, dim=-1, out=logits)

    def loss(
        self,
        output: DecoderOutput,
        targets: Tensor,
        source: SourceTokens | None,
        terms: LossTerms,
        tokens: int | None = None,
    ) -> TokenLoss:
        """Compute cross-entropy summed over real tokens; only its `smoothed` is differentiable.

        Args:
            output: output of the decoder.
            targets: (B, T) ids of the next tokens, 0 where padded.
            source: as in `logits`.
            terms: terms of the loss.
            tokens: number of real targets; None if unknown.
        """
        features, weight = output.features, self.linear.weight
        if self.linear.bias is not None:
            features, weight = _with_bias(features, weight, self.linear.bias)
        mixture = self.mixture(output, source)
        return blockwise_cross_entropy(
            features, weight, targets, terms, mixture, tokens, self.softcap
        )


_ROUNDING = 1e-3  # rounding error of weights that sum to 1, in bfloat16


class PointerHead(Head):
    """The pointer-generator (See et al. 2017, arXiv 1704.04368, eq. 8 and 9).

    P(w) = (p + (1 - p) u) P_vocab(w) + (1 - p) sum of a_i over the positions i with x_i = w

    over a joint vocabulary. a are the weights of the last cross-attention, the mean over its heads;
    p = sigmoid(W [context; state; input word] + b). u is the weight on non-text tokens, such as the
    source's end: nothing is copied from there, and attending there defers to the vocabulary (as the
    sentinel of Merity et al. 2017, arXiv 1609.07843). So the end's probability is only the
    vocabulary's; with u = 0 this is eq. 9.

    Takes T * S numbers besides the logits, and S^2 bits per source.

    Args: as in `Head`, and `evidence_dim`, the width of the gate's input.
    """

    needs_weights = True

    def __init__(
        self,
        dim: int,
        vocabulary_size: int,
        tied: Tensor | None,
        evidence_dim: int,
        bias: bool = False,
        softcap: float | None = None,
    ) -> None:
        super().__init__(dim, vocabulary_size, tied, bias, softcap)
        self.gate = Linear(evidence_dim, 1)
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def source_tokens(self, ids: Tensor) -> SourceTokens:
        return SourceTokens.of(ids)

    def log_probabilities(self, output: DecoderOutput, source: SourceTokens | None) -> Tensor:
        return self.logits(output, source)  # normalized already

    def mixture(self, output: DecoderOutput, source: SourceTokens | None) -> Mixture:
        """Return the mixture, for weights that sum to 1, or less after edits or without keys."""
        assert output.weights is not None
        assert output.evidence is not None
        assert source is not None
        gate, weights = wide(self.gate(output.evidence)[..., 0]), wide(output.weights)
        beams = len(weights) // len(source.ids)
        ids, first, text = (
            part.repeat_interleave(beams, dim=0)[:, None].expand_as(weights) for part in source
        )  # (B, S) -> (B*K, T, S)
        idle = weights.masked_fill(text, 0.0).sum(dim=-1)
        missing = 1 - weights.sum(dim=-1)  # removed by edits, or 1 without visible keys
        idle = idle + missing.where(missing > _ROUNDING, 0.0)
        mass = torch.zeros_like(weights).scatter_add(2, first, weights.masked_fill(~text, 0.0))
        copies = F.logsigmoid(-gate)
        generate = torch.logaddexp(F.logsigmoid(gate), copies + _log(idle))
        return Mixture(generate, copies[..., None] + _log(mass), ids)


def make_head(
    dim: int,
    size: int,
    tied: Tensor | None,
    evidence_dim: int | None,
    bias: bool = False,
    softcap: float | None = None,
) -> Head:
    """Create a pointer head if `evidence_dim` is given, else a linear one. Args: as in `Head`."""
    if evidence_dim is None:
        return Head(dim, size, tied, bias, softcap)
    return PointerHead(dim, size, tied, evidence_dim, bias, softcap)


_ALIGNMENT = 8  # a GPU multiplies matrices of such widths faster


def _with_bias(features: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Append a 1 to features (B, T, D), and the bias as a column to weights (V, D), zero-padded."""
    ones = F.pad(features.new_ones(*features.shape[:-1], 1), (0, _ALIGNMENT - 1))
    column = F.pad(bias[:, None], (0, _ALIGNMENT - 1))
    return torch.cat((features, ones), dim=-1), torch.cat((weight, column.to(weight)), dim=-1)


def _log(x: Tensor) -> Tensor:
    """Return log x of probabilities, -inf without a gradient where x is 0 or subnormal."""
    least = torch.finfo(x.dtype).tiny
    return torch.where(x >= least, x.clamp(min=least).log(), -torch.inf)


def check_joint(share_embeddings: str, copy: bool, joint: bool) -> None:
    """Raise UserError for shared tables or copying without the joint vocabulary they need."""
    if joint:
        return
    if share_embeddings in ("all", "inputs"):
        raise UserError(
            f"model.share_embeddings={share_embeddings} needs one vocabulary for both sides; set "
            "tokenizer.joint=true, or model.share_embeddings=target"
        )
    if copy:
        raise UserError(
            "model.copy=true needs one vocabulary for both sides; set tokenizer.joint=true, or "
            "model.copy=false"
        )
