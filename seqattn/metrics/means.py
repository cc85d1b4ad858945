"""Means over batches and ranks."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric, Metric, MetricCollection

from seqattn.metrics.references import References, reference_lists
from seqattn.metrics.significance import SentenceCounts


class Means(MetricCollection):
    """Means of several quantities over the same items, stored as sums and a count.

    Sums are float64, so that a small batch is not lost beside many large ones.
    """

    def __init__(self, names: Iterable[str]) -> None:
        # keep NaN, so that a diverged loss shows; "disable" would drop the weights
        metrics: dict[str, Metric | MetricCollection] = {
            name: MeanMetric(nan_strategy=math.nan) for name in names
        }
        super().__init__(metrics, compute_groups=False)
        self.set_dtype(torch.float64)

    def add(self, sums: Mapping[str, Tensor | float], count: Tensor | int) -> None:
        """Add a batch: for each name the sum over its `count` items."""
        for name, value in sums.items():
            mean = torch.as_tensor(value).detach().double() / count
            # a copy on the same device, as torchmetrics writes into it if a value is NaN
            weight = count.clone() if isinstance(count, Tensor) else mean.new_full((), count)
            self[name].update(mean, weight=weight)

    def compute(self) -> dict[str, Tensor]:
        """Return each mean by name, in float32."""
        return {name: value.float() for name, value in super().compute().items()}


class TokenScores(Means):
    """Loss, perplexity and accuracy per real token."""

    def __init__(self) -> None:
        super().__init__(("loss", "nll", "accuracy"))

    def update(  # type: ignore[override]
        self, smoothed: Tensor, nll: Tensor, correct: Tensor, tokens: Tensor
    ) -> None:
        """Add a batch's sums of both losses in nats, and counts of correct and all tokens."""
        self.add({"loss": smoothed, "nll": nll, "accuracy": correct}, tokens)

    def compute(self) -> dict[str, Tensor]:
        """Return `loss` (smoothed) and `nll` in nats per token, `perplexity` and `accuracy`."""
        means = super().compute()
        return {**means, "perplexity": means["nll"].exp()}


class CorpusScores(Metric):
    """A scorer's scores of a corpus, whose counts are summed over batches and ranks.

    Args:
        names: names of the scores, such as `bleu`.
        sentences: function of texts and lists of references that returns these scores as counts.
    """

    full_state_update = False

    def __init__(
        self, names: Sequence[str], sentences: Callable[..., list[SentenceCounts]]
    ) -> None:
        super().__init__()
        self.sentences = sentences
        # such as counts of n-grams and words, as sacrebleu sums them over sentences
        self.scores = dict(zip(names, sentences([""], [[""]]), strict=True))
        for name, score in self.scores.items():
            zeros = torch.zeros(score.counts.shape[1], dtype=torch.float64)
            self.add_state(name, default=zeros, dist_reduce_fx="sum")

    def update(self, hypotheses: Sequence[str], references: References) -> None:
        """Add line-aligned texts with one or several references each; none counts as one empty."""
        rows = reference_lists([row or [""] for row in references], len(hypotheses))
        if not rows:  # a batch without scored sentences
            return
        for name, score in zip(self.scores, self.sentences(hypotheses, rows), strict=True):
            counts = getattr(self, name)
            counts += torch.from_numpy(score.counts.sum(0)).to(counts.device)

    def compute(self) -> dict[str, Tensor]:
        """Return the scores by their names in `logged`."""
        sums = {name: getattr(self, name).tolist() for name in self.scores}
        return {name: torch.tensor(one.compute(sums[name])) for name, one in self.scores.items()}


class SeveralMetrics(nn.Module):
    """The values of several metrics with the same updates, such as those of `Scorer.corpus`."""

    def __init__(self, metrics: Sequence[Metric | MetricCollection]) -> None:
        super().__init__()
        self.metrics: Any = nn.ModuleList(metrics)

    def update(self, hypotheses: Sequence[str], references: References) -> None:
        """Add line-aligned texts to each metric."""
        for metric in self.metrics:
            metric.update(hypotheses, references)

    def compute(self) -> dict[str, Tensor]:
        """Return the scores of all metrics by name."""
        return {name: x for metric in self.metrics for name, x in metric.compute().items()}

    def reset(self) -> None:
        """Forget all texts."""
        for metric in self.metrics:
            metric.reset()
