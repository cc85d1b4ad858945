"""Costs of a system: parameters, training, decoding and memory."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean, median
from typing import Any

import torch

from seqattn.bundle.load import load_bundle
from seqattn.data.base import Texts
from seqattn.errors import UserError
from seqattn.extras.compare.run_results import ComparedRun, trusted
from seqattn.models.base import Seq2SeqModel
from seqattn.screen import progress
from seqattn.tokens import BOS, EOS
from seqattn.training.measurements import read_figures, training_of

CACHED = 32
"""Target tokens after which a cache is measured."""


@dataclass(frozen=True)
class Cost:
    """Costs of a system; None where unknown.

    Args:
        parameters: number of parameters of its model.
        training_seconds: training time without validation, mean over seeds.
        tokens_per_second: target tokens in training, mean over seeds.
        peak_memory_mb: peak of the training process, or of its GPU, in 10^6 bytes; the minimum over
            seeds, since jobs of a multirun may share a process.
        cache_bytes: cache of one sentence and one hypothesis after `CACHED` target tokens.
        cache_bytes_per_token: growth of that cache with one more target token.
        sentences_per_second: decoding speed in each round, with the batches of its evaluation.
    """

    parameters: int | None = None
    training_seconds: float | None = None
    tokens_per_second: float | None = None
    peak_memory_mb: float | None = None
    cache_bytes: int | None = None
    cache_bytes_per_token: int | None = None
    sentences_per_second: tuple[float, ...] = ()

    @property
    def milliseconds(self) -> float | None:
        """Milliseconds to decode a sentence, median over rounds."""
        rates = self.sentences_per_second
        return 1000 / median(rates) if rates else None

    def decodes_faster(self, other: "Cost") -> bool:
        """Return True if its slowest round is faster than the fastest round of `other`."""
        return min(self.sentences_per_second) > max(other.sentences_per_second)


def measure_costs(
    systems: Mapping[str, Sequence[ComparedRun]],
    sources: Sequence[str],
    rounds: int,
    device: str,
    trust: Sequence[str],
) -> dict[str, Cost]:
    """Measure the cost of each system, by name.

    Args:
        systems: runs by system; the model of the first run represents the system.
        sources: texts to decode.
        rounds: times that all systems decode them in turn; 0 for no decoding.
        device, trust: arguments of `load_bundle`.
    """
    bundles = {
        name: load_bundle(runs[0].bundle, device, trust)
        for name, runs in systems.items()
        if runs[0].bundle is not None
    }
    decoders, rows = {}, Texts(list(sources), [], [], None)
    for name, bundle in bundles.items() if rounds else ():
        first = systems[name][0]
        search = trusted(first.results.generation, "generation", first.path, trust)
        try:
            decoders[name] = partial(bundle.texts("measuring speed").outputs, search=search)
        except UserError as error:
            print(error, file=sys.stderr)
    rates: dict[str, list[float]] = {name: [] for name in decoders}
    with progress("measuring decoding speed", "rounds") as advance:
        for number in range(rounds):
            for name, decode in decoders.items():
                if number == 0:
                    decode(rows.first(8))
                rates[name].append(len(sources) / decode(rows).seconds)
            advance(number + 1, rounds)
    costs = {}
    for name, runs in systems.items():
        sizes = sizes_of(bundles[name].model) if name in bundles else {}
        training = _training([read_figures(run.run_dir) for run in runs])
        costs[name] = Cost(**training, **sizes, sentences_per_second=tuple(rates.get(name, ())))
    return costs


def _training(seeds: Sequence[Sequence[Mapping[str, str]]]) -> dict[str, Any]:
    speeds = [figures for rows in seeds if (figures := training_of(rows))]
    seconds = [duration for duration, _ in speeds if duration is not None]
    key = "train/peak_memory_mb"
    memory = [[float(row[key]) for row in rows if row.get(key)] for rows in seeds]
    return {
        "training_seconds": mean(seconds) if seconds and len(seconds) == len(speeds) else None,
        "tokens_per_second": mean(rate for _, rate in speeds) if speeds else None,
        "peak_memory_mb": min((max(values) for values in memory if values), default=None),
    }


@torch.inference_mode()
def sizes_of(model: Any) -> dict[str, int]:
    """Return the number of parameters, and bytes of the cache if the model has one."""
    sizes = {"parameters": sum(parameter.numel() for parameter in model.parameters())}
    if not isinstance(model, Seq2SeqModel):
        return sizes
    if model.max_target_length is not None and model.max_target_length <= CACHED:
        return sizes
    device = next(model.parameters()).device
    source, token = (torch.full((1, 1), mark, device=device) for mark in (EOS, BOS))
    state = model.start(model.encode(source))
    for _ in range(CACHED):
        model.features(token, state)
    sizes["cache_bytes"] = state.nbytes
    model.features(token, state)
    return {**sizes, "cache_bytes_per_token": state.nbytes - sizes["cache_bytes"]}
