"""`compare`: evaluations side by side, as a table and as curves by source length."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqattn.cli.config import compose_config, plain, require_values
from seqattn.cli.kinds import check_kinds
from seqattn.cli.summary import print_comparison
from seqattn.errors import UserError

Config = dict[str, Any]


def compare(overrides: Sequence[str]) -> None:
    """Runs the verb on the user's overrides."""
    config = compose_config("compare", overrides)
    require_values(config)
    settled = plain(config)
    check_kinds(settled)
    directories = [Path(name).expanduser() for name in settled["evaluations"]]
    evaluations = {name: _read(path) for name, path in zip(names(directories), directories)}
    shared = [
        score
        for score in next(iter(evaluations.values()))["scores"]
        if all(score in one["scores"] for one in evaluations.values())
    ]
    if not shared:
        raise UserError("these evaluations have no score in common; evaluate them with one scorer")
    rows = {
        name: [f"{one['scores'][score]['value']:.2f}" for score in shared]
        for name, one in evaluations.items()
    }
    print_comparison("Evaluations", shared, rows, _signatures(evaluations, shared))
    if settled["output"] is not None:
        _draw(evaluations, shared[0], Path(settled["output"]).expanduser())


def names(directories: Sequence[Path]) -> list[str]:
    """The shortest ends of these paths' fronts that tell them apart: the parts that differ."""
    parts = [path.parts for path in directories]
    longest = max(map(len, parts), default=0)
    padded = [("",) * (longest - len(row)) + tuple(row) for row in parts]
    telling = [n for n in range(longest) if len({row[n] for row in padded}) > 1]
    return ["/".join(row[n] for n in telling if row[n]) or str(path)
            for row, path in zip(padded, directories)]  # fmt: skip


def _read(directory: Path) -> Config:
    file = directory / "scores.json"
    if not file.is_file():
        raise UserError(f"{directory} is no evaluation: {file} is not there; run evaluate first")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        _ = [value["value"] for value in found["scores"].values()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file} cannot be read; evaluate again") from error
    assert isinstance(found, dict)
    return found


def _signatures(evaluations: dict[str, Config], shared: Sequence[str]) -> list[str]:
    notes = []
    for score in shared:
        found = {one["scores"][score]["signature"] for one in evaluations.values()}
        if len(found) > 1:
            notes.append(f"{score} was not computed alike: {' and '.join(sorted(found))}")
    return notes


def _draw(evaluations: dict[str, Config], score: str, path: Path) -> None:
    from seqattn.analysis.lengths import length_curves
    from seqattn.analysis.plots import save

    bins = [[(b["words"], b["sentences"]) for b in one.get("by_length", ())]
            for one in evaluations.values()]  # fmt: skip
    if not bins[0] or any(other != bins[0] for other in bins):
        raise UserError(
            "a picture needs evaluations of one split with the same lengths; evaluate each with "
            "the same lengths=[8,12,16,20]"
        )
    series = {
        name: [part["scores"][score]["value"] for part in one["by_length"]]
        for name, one in evaluations.items()
    }
    words, counts = zip(*bins[0], strict=True)
    print(f"drawn to {save(length_curves(series, words, counts, score), path)}", file=sys.stderr)
