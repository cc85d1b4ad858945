"""Tables of `heads` for the report and the terminal."""

from collections.abc import Mapping

from seqattn.extras.explain.head_figures import AttentionHeads, HeadRow
from seqattn.extras.explain.head_plots import AblationCurve
from seqattn.extras.explain.method_tables import rounded
from seqattn.screen import print_table
from seqattn.subcommands.run_tables import TableDocument
from seqattn.subcommands.tables import numbers_told

_FIGURES = ("importance", "entropy", "relative", "confidence", "mark", "-1", "0", "+1", "rare",
            "aligned")  # fmt: skip
_ROLES = (
    "role: the first that fits: positional (at least 0.9 of the largest weights at one relative "
    "position), alignment (0.5 of them on the decisive source token), end or begin (0.5 of the "
    "weight on that token), broad (0.8 of the entropy of uniform weights)"
)


def heads_table(attentions: Mapping[str, AttentionHeads], split: str, pairs: int) -> TableDocument:
    """Return a row for each head, by its attention's name and its number from 1.

    Args:
        attentions: attentions by name.
        split: split that was analyzed.
        pairs: number of pairs.
    """
    notes = [f"{name}: {reason}" for name, heads in attentions.items() for reason in heads.reasons]
    notes.append(
        f"means over the tokens of {pairs:,} pairs of {split}; entropy: in nats; relative: as a "
        f"share of the entropy of uniform weights; {_ROLES}"
    )
    return {
        "title": f"Heads on {split}",
        "columns": ["attention", "head", "role", *_FIGURES],
        "rows": [
            [name, f"expert {number}" if attention.experts else str(number), *_row(head)]
            for name, attention in attentions.items()
            for number, head in enumerate(attention.heads, 1)
        ],
        "notes": notes,
    }


def ablation_table(curve: AblationCurve) -> TableDocument:
    """Return scores by number of removed heads, in order of importance and at random."""
    means = [sum(scores) / len(scores) for scores in zip(*curve.at_random, strict=True)]
    orders = {
        "least important first": curve.by_importance,
        f"random, mean of {len(curve.at_random)}": means,
    }
    return {
        "title": f"{curve.name} by number of heads removed",
        "columns": ["order", *map(str, curve.out)],
        "rows": [[order, *(round(one, 2) for one in scores)] for order, scores in orders.items()],
        "notes": [f"{curve.name}: {curve.signature}"],
    }


def print_heads(table: TableDocument, attentions: Mapping[str, AttentionHeads]) -> None:
    """Print `heads_table` with slots and layers instead of names."""
    rows = {}
    for name, head, *values in table["rows"]:
        attention = attentions[str(name)]
        label = f"{attention.slot} {attention.layer}" if attention.layer else name
        rows[f"{label}.{head}"] = numbers_told(values, [2] * len(values))
    print_table(table["title"], rows, table["columns"][2:], table["notes"])


def _row(head: HeadRow) -> list[str | float | None]:
    figures, role = head.figures, head.role
    statistics: list[float | None] = [None] * (len(_FIGURES) - 1)
    if figures is not None:
        statistics = [*figures[:8], figures.alignment]
        role += f" {figures.place:+d}" if role == "positional" else ""
    return [role, *(rounded(x, 2) for x in (head.importance, *statistics))]
