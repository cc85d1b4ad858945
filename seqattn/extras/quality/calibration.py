"""Expected scores from signals: a fit that is monotone in each of them, and how good it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, inf

import numpy as np
import torch
import torch.nn.functional as F

from seqattn.checking import Count
from seqattn.errors import UserError
from seqattn.extras.quality.figures import BINS, Floats, reliability, spearman
from seqattn.extras.quality.signals import SIGNALS, Reading, merit

Signals = Mapping[str, float]
_DECAY, _LEAST = 1e-4, 1e9


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Logistic regression of a sentence's score on its signals, with weights of at least 0.

    So the expected score never falls where a signal gets better: higher, lower, or nearer to its
    mean, see `SIGNALS`.

    Args:
        score: name of the score.
        bias: log-odds of the score, as a share of 100, for a pair of mean signals.
        signals: mean, standard deviation and weight of each signal.
        support, use: bounds of output words and of source words; those below are marked.
        sentences: number of sentences of the fit.
        correlation: Spearman's rank correlation with the score, of `expected` and of each signal.
        reliability: number of sentences, mean expected score and mean score of each tenth of the
            sentences, by expected score. These scores, and those of `correlation`, are of two fits,
            each of one half of the sentences for the other.

    Raises:
        UserError: for an unknown signal, or one without its three numbers.
    """

    score: str
    bias: float
    signals: Mapping[str, Sequence[float]]
    support: float = -_LEAST
    use: float = -_LEAST
    sentences: Count = 1
    correlation: Mapping[str, float] = field(default_factory=dict)
    reliability: Sequence[Sequence[float]] = ()

    def __post_init__(self) -> None:
        for name, numbers in self.signals.items():
            match numbers:
                case [float(), float() as spread, float() as weight]:
                    sound = name in SIGNALS and spread > 0 and weight >= 0
                case _:
                    sound = False
            if not sound:
                raise UserError(f"calibration.signals.{name} is damaged; calibrate again")

    def expected(self, signals: Signals) -> float:
        """Return the expected score, 0 to 100; an absent signal counts as its mean."""
        parts = [
            weight * merit(name, signals[name], mean, spread)
            for name, (mean, spread, weight) in self.signals.items()
            if name in signals
        ]
        return 100 / (1 + exp(-max(-500.0, self.bias + sum(parts))))

    def merits(self, signals: Sequence[Signals]) -> dict[str, Floats]:
        """Return how good each signal is (N,), see `merit`, and before them the expected scores."""
        return {
            "expected": np.array([self.expected(row) for row in signals]),
            **{
                name: np.array([merit(name, row.get(name, mean), mean, spread) for row in signals])
                for name, (mean, spread, _) in self.signals.items()
            },
        }

    @classmethod
    def fit(cls, signals: Sequence[Signals], scores: Floats, score: str) -> "Calibration":
        """Fit scores (N,), 0 to 100, of sentences. Args: score: their name."""
        table = {name: np.array([row.get(name, np.nan) for row in signals]) for name in SIGNALS}
        table = {name: values for name, values in table.items() if not np.isnan(values).all()}
        sizes = {name: (np.nanmean(v), np.nanstd(v) or 1.0) for name, v in table.items()}
        columns = [merit(name, values, *sizes[name]) for name, values in table.items()]
        x, y = torch.tensor(np.nan_to_num(np.stack(columns, 1))), torch.tensor(scores) / 100
        roots, bias = x.new_full((x.shape[1],), 0.3), x.new_zeros(1)  # weights are squares
        adjusted = [roots.requires_grad_(), bias.requires_grad_()]
        fitting = torch.optim.LBFGS(adjusted, max_iter=200, line_search_fn="strong_wolfe")

        def loss() -> float:
            fitting.zero_grad()
            odds = x @ roots.square() + bias
            value = F.binary_cross_entropy_with_logits(odds, y) + _DECAY * roots.square().sum()
            value.backward()
            return float(value.detach())

        fitting.step(loss)
        weights = roots.detach().square().tolist()
        numbers = {
            name: [float(mean), float(spread), weight]
            for (name, (mean, spread)), weight in zip(sizes.items(), weights, strict=True)
        }
        return cls(score=score, bias=float(bias.detach()), signals=numbers, sentences=len(signals))


def calibrated(
    readings: Sequence[Reading], scores: Floats, score: str, marked: float
) -> Calibration:
    """Return the fit of all sentences, with the figures of two halves and the bounds of words.

    Args:
        readings: signals of N sentences.
        scores: (N,) their scores, 0 to 100, higher for better outputs.
        score: name of the scores.
        marked: share of the words of each side to mark.

    Raises:
        UserError: for fewer than 20 sentences.
    """
    if len(readings) < 2 * BINS:
        raise UserError(f"a calibration needs {2 * BINS} outputs with words, got {len(readings)}")
    rows, expected = [reading.signals for reading in readings], np.zeros(len(readings))
    for half in (0, 1):
        fit = Calibration.fit(rows[half::2], scores[half::2], score)
        expected[1 - half :: 2] = [fit.expected(row) for row in rows[1 - half :: 2]]
    fit = Calibration.fit(rows, scores, score)
    merits = {**fit.merits(rows), "expected": expected}
    return replace(
        fit,
        support=_bound([value for reading in readings for value in reading.support], marked),
        use=_bound([value for reading in readings for value in reading.use], marked),
        correlation={name: spearman(values, scores) for name, values in merits.items()},
        reliability=reliability(expected, scores),
    )


def _bound(values: Sequence[float], share: float) -> float:
    """Return the number below which a share of the finite values is."""
    finite = [value for value in values if value < inf]
    return float(np.quantile(finite, share)) if finite else -_LEAST
