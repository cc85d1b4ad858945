"""`benchmark`: our speed, or scores, beside those of what one would use instead."""

import itertools
import json
import platform
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from seqattn.cli.benchmark_attention import attention_suite
from seqattn.cli.benchmark_baselines import baselines_suite
from seqattn.cli.benchmark_recurrent import recurrent_suite
from seqattn.cli.config import compose_config, plain, require_values
from seqattn.cli.tables import console, shown
from seqattn.errors import UserError

if TYPE_CHECKING:
    from seqattn.benchmarks import decoding, training
    from seqattn.benchmarks.profile import Operation
    from seqattn.benchmarks.shape import Shape

Config = dict[str, Any]
SUITES = ("training", "decoding", "attention", "recurrent", "baselines")
_PROFILED = 20  # operators that a profile shows


def benchmark(overrides: Sequence[str]) -> None:
    """Runs the verb on the user's overrides."""
    config = compose_config("benchmark", overrides)
    require_values(config)
    settled = plain(config)
    _check(settled)
    import torch  # it takes seconds to import

    if settled["threads"] is not None:
        torch.set_num_threads(settled["threads"])
    suites: dict[str, Callable[[Config], list[Any]]] = {
        "training": _training,
        "decoding": _decoding,
        "attention": attention_suite,
        "recurrent": partial(recurrent_suite, batches_of=_batches),
        "baselines": baselines_suite,
    }
    found = suites[settled["suite"]](settled)
    results = {**_machine(), "settings": settled, "results": found}
    if settled["output"] is not None:
        path = Path(settled["output"]).expanduser()
        path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        print(f"written to {path}", file=sys.stderr)


def _check(config: Config) -> None:
    if config["suite"] not in SUITES:
        raise UserError(f"suite must be one of {', '.join(SUITES)}, got {config['suite']}")
    for name in ("max_tokens", "beam"):
        values = config[name] if isinstance(config[name], list) else [config[name]]
        config[name] = values
        if not values or not all(isinstance(value, int) and value > 0 for value in values):
            raise UserError(f"{name} must be a whole number above 0, or several as [1,5]")
    for name in ("steps", "rounds", "batch_size", "length", "threads"):
        value = config[name]
        if value is not None and (not isinstance(value, int) or value < 1):
            raise UserError(f"{name} must be a whole number above 0, got {value}")
    output = config["output"]
    if output is not None and not Path(output).expanduser().parent.is_dir():
        raise UserError(f"output={output}: its directory is not there; make it first")


def _machine() -> dict[str, Any]:
    import torch

    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def _training(config: Config) -> list[Config]:
    from seqattn.benchmarks.profile import profile_training
    from seqattn.benchmarks.training import TrainingPlan, measure_training
    from seqattn.training.memory import keep_freed_memory

    results: list[Config] = []
    for max_tokens in config["max_tokens"]:
        batches, shape = _batches(config, max_tokens)
        plan = TrainingPlan(
            shape, batches, config["steps"], tuple(map(str, config["precisions"])),
            config["threads"], config["seed"],
        )  # fmt: skip
        if config["profile"]:
            keep_freed_memory()
            for precision in plan.precisions:
                found = profile_training(shape, batches, precision)
                title = f"Our training step, {max_tokens:,} tokens, {precision}"
                _print_profile(title, "step", found)
                results.append({"max_tokens": max_tokens, "precision": precision,
                                "operations": [o._asdict() for o in found]})  # fmt: skip
            continue
        rows = measure_training(plan)
        _print_training(max_tokens, shape, rows)
        results += [{"max_tokens": max_tokens, **_named(row)} for row in rows]
    return results


def _batches(config: Config, max_tokens: int) -> "tuple[Any, Shape]":
    """The first batches of an epoch, as a run would train on them."""
    from seqattn.benchmarks.shape import Shape

    data = _data(config, max_tokens)
    data.setup("fit")
    wanted = config["steps"] * (config["rounds"] + 1)
    batches = tuple(itertools.islice(data.train_dataloader(), wanted))
    if len(batches) < wanted:
        raise UserError(
            f"{config['rounds']} rounds of {config['steps']} steps and a warm-up need {wanted} "
            f"batches, the data gives {len(batches)} of {max_tokens:,} tokens; lower one of them"
        )
    return batches, Shape(data.tokenizer.source_size, **config["shape"])


def _data(config: Config, max_tokens: int) -> Any:
    from seqattn.cli.build import build_data

    node = {"_target_": "seqattn.data.module.LoaderOptions", "max_tokens": max_tokens,
            "max_length": min(128, max_tokens)}  # fmt: skip
    data = build_data({**config, "loader": node})
    if not data.tokenizer.joint:
        raise UserError("the contestants share one vocabulary; set tokenizer.joint=true")
    return data


def _decoding(config: Config) -> list[Config]:
    from seqattn.benchmarks.decoding import DecodingPlan, measure_decoding, profile_decoding
    from seqattn.benchmarks.shape import Shape
    from seqattn.training.memory import keep_freed_memory

    data = _data(config, 4096)
    texts = data.rows("test")[0]
    encoded = data.tokenizer.encode_source(texts[: config["sentences"] or len(texts)])
    plan = DecodingPlan(
        Shape(data.tokenizer.source_size, **config["shape"]),
        tuple(tuple(ids) for ids in encoded if len(ids) > 1),
        tuple(config["beam"]), config["length"], config["batch_size"], config["seed"],
    )  # fmt: skip
    if config["keep_memory"]:
        keep_freed_memory()
    if config["profile"]:
        results = []
        for beams in plan.beams:
            found = profile_decoding(plan, beams)
            _print_profile(f"Our search with {beams} beams", "position", found)
            results.append({"beams": beams, "operations": [o._asdict() for o in found]})
        return results
    rows = measure_decoding(plan)
    _print_decoding(rows, plan.length)
    return [_named(row) for row in rows]


def _named(row: Any) -> Any:
    """Named tuples as dicts, those within too."""
    if hasattr(row, "_asdict"):
        return {name: _named(value) for name, value in row._asdict().items()}
    return row


def _print_training(max_tokens: int, shape: "Shape", rows: "Sequence[training.Row]") -> None:
    table = Table(title=f"Training, batches of {max_tokens:,} tokens, V {shape.vocabulary:,}")
    table.add_column("loop")
    table.add_column("precision")
    table.add_column("allocator")
    names = ("parameters", "target tokens/s", "x plain as written", "x plain, same allocator")
    for name in (*names, "the same, CPU time"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row.turn.loop,
            row.turn.precision,
            "keeps" if row.turn.keeps_memory else "default",
            f"{row.parameters:,}",
            f"{row.tokens_per_second.median:,.0f}",
            shown(row.over_plain),
            shown(row.over_plain_same_memory),
            shown(row.over_plain_same_memory_cpu),
        )
    console().print(table)


def _print_decoding(rows: "Sequence[decoding.Row]", length: int) -> None:
    table = Table(title=f"Decoding, {length} tokens each, against MarianMTModel.generate")
    names = ("sentences", "sentences/s", "theirs", "tokens/s", "theirs", "ratio", "by CPU time")
    table.add_column("search")
    for name in (*names, "parameters", "theirs"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            "greedy" if row.beams == 1 else f"beam {row.beams}",
            f"{row.sentences:,}",
            f"{row.tokens_per_second / length:,.1f}",
            f"{row.their_tokens_per_second / length:,.1f}",
            f"{row.tokens_per_second:,.0f}",
            f"{row.their_tokens_per_second:,.0f}",
            shown(row.ratio),
            shown(row.ratio_cpu),
            f"{row.parameters:,}",
            f"{row.their_parameters:,}",
        )
    console().print(table)


def _print_profile(title: str, piece: str, operations: "Sequence[Operation]") -> None:
    table = Table(title=title)
    table.add_column("operator")
    for name in ("share", f"ms a {piece}", f"calls a {piece}"):
        table.add_column(name, justify="right")
    for found in operations[:_PROFILED]:
        table.add_row(
            found.name, f"{found.share:.1%}", f"{found.milliseconds:.2f}", f"{found.calls:.0f}"
        )
    console().print(table)
