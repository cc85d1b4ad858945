"""Means that add up over batches and ranks."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torchmetrics import MeanMetric, Metric, MetricCollection

Floats = npt.NDArray[np.float64]


class Means(MetricCollection):
    """Several means of the same things, each kept as its sum and the number of things.

    Sums are float64, so that a small batch is not lost beside many large ones.
    """

    def __init__(self, names: Iterable[str]) -> None:
        # a NaN stays one, so that a loss that diverged shows; "disable" would drop the weights
        metrics: dict[str, Metric | MetricCollection] = {
            name: MeanMetric(nan_strategy=math.nan) for name in names
        }
        super().__init__(metrics, compute_groups=False)
        self.set_dtype(torch.float64)

    def add(self, sums: Mapping[str, Tensor | float], count: Tensor | int) -> None:
        """Adds a batch: for each name the sum over its `count` things."""
        for name, value in sums.items():
            mean = torch.as_tensor(value).detach().double() / count
            # of its own and on the same device, since torchmetrics writes in it where one is NaN
            weight = count.clone() if isinstance(count, Tensor) else mean.new_full((), count)
            self[name].update(mean, weight=weight)

    def compute(self) -> dict[str, Tensor]:
        """Each mean by its name, float32."""
        return {name: value.float() for name, value in super().compute().items()}


class TextMeans(Means):
    """Means over texts of what is measured of each.

    Args:
        measure: texts and references, line by line, to values (N, measures).
    """

    def __init__(self, names: Iterable[str], measure: Callable[..., Floats]) -> None:
        self.names = list(names)
        super().__init__(self.names)
        self.measure = measure

    def update(  # type: ignore[override]
        self, hypotheses: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]]
    ) -> None:
        """Adds line-aligned texts, with one reference or several each."""
        values = self.measure(hypotheses, references)
        if len(values):
            self.add(dict(zip(self.names, values.sum(0), strict=True)), len(values))


class TokenScores(Means):
    """Loss, perplexity and accuracy per real token."""

    def __init__(self) -> None:
        super().__init__(("loss", "nll", "accuracy"))

    def update(  # type: ignore[override]
        self, smoothed: Tensor, nll: Tensor, correct: Tensor, tokens: Tensor
    ) -> None:
        """Adds a batch's sums: of both losses in nats, of tokens guessed right, of tokens."""
        self.add({"loss": smoothed, "nll": nll, "accuracy": correct}, tokens)

    def compute(self) -> dict[str, Tensor]:
        """`loss` (smoothed) and `nll` in nats a token, `perplexity`, `accuracy` from 0 to 1."""
        means = super().compute()
        return {**means, "perplexity": means["nll"].exp()}


class SpanPlaces(Means):
    """Loss and accuracy of the places of answers, per window."""

    def __init__(self) -> None:
        super().__init__(("loss", "accuracy"))

    def update(  # type: ignore[override]
        self, loss: Tensor, right: Tensor, windows: int
    ) -> None:
        """Adds a batch's sums: of start and end's losses in nats, of windows that are right."""
        if windows:
            self.add({"loss": loss, "accuracy": right}, windows)
