"""Scores of pairs by trained models."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seqattn.analysis.word_alignment import WordAlignment
from seqattn.bundle.bundle import Bundle
from seqattn.generation.forced_decoding import forced_log_probabilities

_AT_ONCE = 1_024  # pairs


@dataclass(frozen=True)
class PairScores:
    """Scores of pairs.

    Args:
        forward: a bundle.
        reverse: a bundle of the reverse direction; None for none.
    """

    forward: Bundle
    reverse: Bundle | None = None

    def unlinked(self, sources: Sequence[str], targets: Sequence[str]) -> Iterator[float | None]:
        """Yield for each pair the share of source words without a link; None if it has none.

        Each target word is linked to a source word. With two bundles, links are those that both
        have, each from the words of its own target.
        """
        for at in range(0, len(sources), _AT_ONCE):
            part = sources[at : at + _AT_ONCE], targets[at : at + _AT_ONCE]
            forward = self.forward.align(*part)
            backward = self.reverse.align(part[1], part[0]) if self.reverse else forward
            for one, other in zip(forward, backward, strict=True):
                yield _unlinked(one, other if self.reverse else None)

    def log_probabilities(self, sources: Sequence[str], targets: Sequence[str]) -> Iterator[float]:
        """Yield for each pair the sum of the log-probabilities per token of both directions.

        A pair that a model cannot read has the lowest.
        """
        for at in range(0, len(sources), _AT_ONCE):
            part = sources[at : at + _AT_ONCE], targets[at : at + _AT_ONCE]
            sums = [0.0] * len(part[0])
            for bundle, sides in ((self.forward, part), (self.reverse, part[::-1])):
                if bundle is None:
                    continue
                fitting = bundle.fitting_pairs(*sides)
                found = forced_log_probabilities(bundle.model, [*fitting.values()])
                scores = {
                    number: likely / len(pair[1])
                    for (number, pair), likely in zip(fitting.items(), found, strict=True)
                }
                sums = [scores.get(number, -1e9) + one for number, one in enumerate(sums)]
            yield from sums


def _unlinked(forward: WordAlignment, backward: WordAlignment | None) -> float | None:
    if not forward.links:
        return None
    linked = set(forward.links)
    if backward is not None:
        if not backward.links:
            return None
        links = enumerate(forward.links)
        linked = {
            source
            for target, source in links
            if source < len(backward.links) and backward.links[source] == target
        }
    return 1 - len(linked) / len(forward.source)
