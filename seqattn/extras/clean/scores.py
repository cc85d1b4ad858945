"""Scores of pairs by trained models."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from seqattn.bundle.bundle import Bundle
from seqattn.generation.forced_decoding import forced_log_probabilities

_AT_ONCE, _TRIED = 1_024, 50  # pairs, and texts among which one that is not alike is sought
Scores = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PairScores:
    """Scores of pairs.

    Args:
        forward: a bundle.
        reverse: a bundle of the reverse direction; None for none.
    """

    forward: Bundle
    reverse: Bundle | None = None

    def log_probabilities(self, sources: Sequence[str], targets: Sequence[str]) -> Iterator[float]:
        """Yield for each pair the log-probability per token, the mean of all directions.

        A pair that a model cannot read has the lowest.
        """
        yield from np.nan_to_num(self._mean(_log_probabilities, sources, targets), nan=-np.inf)

    def information(self, sources: Sequence[str], targets: Sequence[str]) -> Iterator[float]:
        """Yield what the source of each pair tells of its target; NaN if a model cannot read it.

        In nats per token: the log-probability of the target after its source, less that of the
        target after another source of about the same length. The mean of all directions. NaN, too,
        where all other sources are alike.
        """
        for at in range(0, len(sources), _AT_ONCE):
            part = sources[at : at + _AT_ONCE], targets[at : at + _AT_ONCE]
            yield from self._mean(_information, *part)

    def _mean(
        self, score: Callable[..., Scores], sources: Sequence[str], targets: Sequence[str]
    ) -> Scores:
        scores = score(self.forward, sources, targets)
        if self.reverse is not None:
            scores = (scores + score(self.reverse, targets, sources)) / 2
        return scores


def _information(bundle: Bundle, sources: Sequence[str], targets: Sequence[str]) -> Scores:
    own = _log_probabilities(bundle, sources, targets)
    return own - _log_probabilities(bundle, _others(sources), targets)


def _log_probabilities(bundle: Bundle, sources: Sequence[str], targets: Sequence[str]) -> Scores:
    """Return (N,) log-probabilities of targets per token; NaN for a pair that is not readable."""
    scores = np.full(len(sources), np.nan)
    fitting = bundle.fitting_pairs(sources, targets)
    found = forced_log_probabilities(bundle.model, [*fitting.values()])
    for (number, (_, target)), likely in zip(fitting.items(), found, strict=True):
        scores[number] = likely / len(target)
    return scores


def _others(texts: Sequence[str]) -> list[str]:
    """Return for each text another of about its length that is not alike; "" if there is none."""
    ordered = sorted(set(texts), key=lambda text: (len(text), _digest(text)))
    parts = [{text[at : at + 3] for at in range(max(1, len(text) - 2))} for text in ordered]
    others = dict[str, str]()
    for number, text in enumerate(ordered):
        places = ((number + step) % len(ordered) for step in range(1, min(_TRIED, len(ordered))))
        apart = (at for at in places if 2 * len(parts[number] & parts[at]) < len(parts[number]))
        others[text] = ordered[at] if (at := next(apart, None)) is not None else ""
    return [others[text] for text in texts]


def _digest(text: str) -> bytes:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
