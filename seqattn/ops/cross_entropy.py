"""Cross-entropy over a vocabulary, summed over real tokens, with and without copying: the
reference for `ops.vocabulary_loss`."""

from dataclasses import dataclass, fields
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from seqattn.checking import BadValue, Dropout, NotNegative
from seqattn.ops.precision import wide
from seqattn.tokens import PAD


@dataclass(frozen=True, kw_only=True)
class LossTerms:
    """Terms of a token's loss besides its likelihood; settings of a task.

    Args:
        label_smoothing: share of a target's probability spread over the vocabulary.
        r_drop: alpha of R-Drop (Liang et al. 2021, arXiv 2106.14448): every batch is read twice,
            with different dropout, and the loss of a token is the mean of both cross-entropies +
            alpha/2 times the mean of KL(P1 || P2) and KL(P2 || P1), which is half of eq. 4; the
            paper uses 5 for translation. 0 reads each batch once.
        simcut: alpha of SimCut (Gao et al. 2022, arXiv 2206.02368): every batch is also read with
            some embeddings cut, and the loss of a token is its cross-entropy in the intact pass
            + alpha KL(P || P_cut), with gradients through both passes; the paper uses 3. 0 reads
            each batch once. Excludes `r_drop`.
        simcut_cutoff: share of source and target words whose embedding is cut, see `Embedding`.
    """

    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0
    r_drop: NotNegative = 0.0
    simcut: NotNegative = 0.0
    simcut_cutoff: Dropout = 0.05

    @property
    def divergence_weight(self) -> float:
        """Weight of the divergence of two passes over the batch; 0 for a single pass."""
        return self.r_drop / 2 or self.simcut

    def check_only(self, *names: str) -> None:
        """Raise BadValue for a term that is set and is not among those that a loss computes."""
        for term in fields(LossTerms):
            if term.name not in names and getattr(self, term.name) != term.default:
                came = f"got {getattr(self, term.name)}"
                raise BadValue(
                    term.name, f"does not apply to this task; leave it at {term.default}, {came}"
                )

    def terms(self) -> "LossTerms":
        """Return these terms, without the further fields of a subclass."""
        return LossTerms(**{term.name: getattr(self, term.name) for term in fields(LossTerms)})


class TokenLoss(NamedTuple):
    """Sums over the real tokens of a batch.

    `smoothed` is what training minimizes, `nll` the plain negative log-likelihood, both in nats;
    `correct` counts targets with the highest probability (on ties only the first, but any in
    training by `blockwise_cross_entropy`), `tokens` counts all. `divergence` is
    KL(P1 || P2) + KL(P2 || P1) in nats if the batch holds two passes over the same tokens; with
    `simcut` it is KL(P1 || P2), and all else counts the first pass alone.
    """

    smoothed: Tensor
    nll: Tensor
    correct: Tensor
    tokens: Tensor
    divergence: Tensor


class Mixture(NamedTuple):
    """Log-probabilities of generating and of copying each token, in nats, in at least float32."""

    generate: Tensor
    """(B*K, T) log-probability of generating from the vocabulary."""
    copy: Tensor
    """(B*K, T, S) log-probability of copying a source token: the total over its positions at the
    first of them, -inf at the others."""
    ids: Tensor
    """(B*K, T, S) ids of the source tokens."""

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Return log-probabilities (B*K, T, V) from the logits (B*K, T, V) of the vocabulary."""
        scores = wide(logits).log_softmax(dim=-1) + self.generate[..., None]
        more = gain(scores.gather(-1, self.ids), self.copy)
        return scores.scatter_add(-1, self.ids, more)


def gain(generated: Tensor, copied: Tensor) -> Tensor:
    """Return the increase in log-probability from copying: log(1 + exp(copied - generated))."""
    return torch.logaddexp(torch.zeros_like(generated), copied - generated)


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float) -> TokenLoss:
    """Compute label-smoothed cross-entropy (Szegedy et al. 2016, arXiv 1512.00567, section 7).

    Args:
        logits: (..., V), or log-probabilities.
        targets: (...) ids, 0 where padded.
        smoothing: share of the target's probability spread over the whole vocabulary.
    """
    real = targets != PAD
    log_probabilities = wide(logits[real]).log_softmax(dim=-1)  # (N, V)
    gold = targets[real]
    nll = -log_probabilities.gather(1, gold[:, None]).sum()
    spread = -log_probabilities.mean(dim=-1).sum()
    smoothed = (1 - smoothing) * nll + smoothing * spread if smoothing else nll
    correct = (log_probabilities.argmax(dim=-1) == gold).sum()
    return TokenLoss(smoothed, nll, correct, real.sum(), nll.new_zeros(()))


def symmetric_divergence(log_probabilities: Tensor) -> Tensor:
    """Return KL(P1 || P2) + KL(P2 || P1), summed over pairs.

    Args:
        log_probabilities: (2*N, V) in nats, P2 of a pair N rows after P1. Entries where both are
            -inf, or the lowest finite number, add nothing.
    """
    first, second = log_probabilities.clamp(min=torch.finfo(log_probabilities.dtype).min).chunk(2)
    return ((first.exp() - second.exp()) * (first - second)).sum()
