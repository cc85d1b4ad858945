"""The benchmark's recurrent suite: its settings and its table."""

from collections.abc import Callable
from typing import Any

from rich.table import Table

from seqattn.cli.tables import console, shown
from seqattn.errors import UserError

Config = dict[str, Any]
Batches = Callable[[Config, int], tuple[Any, Any]]


def recurrent_suite(config: Config, batches_of: Batches) -> list[Any]:
    """Runs the suite on the first batches of an epoch.

    Args:
        config: the settings.
        batches_of: gives batches of so many tokens, and a shape of the data's vocabulary.

    Raises:
        UserError: for an attention that is not one of those compared.
    """
    from seqattn.benchmarks.recurrent import RecurrentPlan, measure_recurrent
    from seqattn.benchmarks.shape import RECURRENT, RecurrentShape
    from seqattn.training.memory import keep_freed_memory

    asked = config["recurrent"]
    wrong = [name for name in asked["attentions"] if name not in RECURRENT]
    if wrong:
        raise UserError(f"recurrent.attentions must be of {', '.join(RECURRENT)}, got {wrong[0]}")
    keep_freed_memory()
    results: list[Any] = []
    for max_tokens in config["max_tokens"]:
        batches, shape = batches_of(config, max_tokens)
        shapes = tuple(
            RecurrentShape(
                shape.vocabulary, asked["dim"], name, feeding, config["shape"]["dropout"]
            )
            for name in asked["attentions"]
            for feeding in (False, True)
            if not (feeding and name == "bahdanau")
        )
        plan = RecurrentPlan(shapes, batches, config["steps"], config["seed"])
        rows = measure_recurrent(plan)
        _print(max_tokens, rows)
        results += [{"max_tokens": max_tokens, **_plain(row)} for row in rows]
    return results


def _plain(row: Any) -> Any:
    """Named tuples as dicts, those within too."""
    if hasattr(row, "_asdict"):
        return {name: _plain(value) for name, value in row._asdict().items()}
    return row


def _print(max_tokens: int, rows: list[Any]) -> None:
    table = Table(title=f"Training recurrent models, batches of {max_tokens:,} tokens")
    table.add_column("model")
    table.add_column("loop")
    names = ("parameters", "target tokens/s", "x textbook", "the same, CPU time", "x Joey NMT")
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row.model,
            row.loop,
            f"{row.parameters:,}",
            f"{row.tokens_per_second.median:,.0f}",
            shown(row.over_textbook),
            shown(row.over_textbook_cpu),
            "" if row.over_joey is None else shown(row.over_joey),
        )
    console().print(table)
