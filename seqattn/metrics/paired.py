"""Whether two systems differ by more than chance, by sacrebleu's paired tests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from seqattn.metrics.text import References, reference_lists


def paired_bootstrap(
    systems: Sequence[Sequence[str]], references: References, metric: Metric
) -> list[float]:
    """The p-value of each system's difference from the first (Koehn 2004, 1,000 resamples).

    Args:
        systems: outputs of two systems or more, each N texts.
        references: a text for each row, or a list of texts.
        metric: of sacrebleu.
    """
    lists = reference_lists(references, len(systems[0]))
    named: list[tuple[str, Sequence[str]]] = [
        (str(number), outputs) for number, outputs in enumerate(systems)
    ]
    streams = [list(stream) for stream in zip_longest(*lists)]
    _, found = PairedTest(named, {"it": metric}, streams, "bs", n_samples=1000)()
    results: Any = next(some for name, some in found.items() if name != "System")
    same = results[0].score  # of which resampling would find every difference as large
    return [1.0 if one.score == same else float(one.p_value) for one in results]
