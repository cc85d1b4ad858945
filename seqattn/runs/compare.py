"""Evaluations side by side, as a table and as curves by source length."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import FiniteFloat, TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from seqattn.analysis.plots import length_curves, save
from seqattn.checking import checked
from seqattn.errors import UserError
from seqattn.runs.tables import print_comparison


class _Value(TypedDict):
    value: FiniteFloat


class _Score(_Value):
    signature: str


class _Bin(TypedDict):
    words: str
    sentences: int
    scores: dict[str, _Value]


class Results(TypedDict):
    """What is read of scores.json."""

    scores: dict[str, _Score]
    by_length: NotRequired[list[_Bin]]


_RESULTS = TypeAdapter(Results)


@checked
@dataclass(frozen=True)
class Comparison:
    """Scores of several evaluations.

    Args:
        evaluations: directories that an evaluation wrote.
        output: a picture of the first score by source length, for evaluations with the same
            lengths.

    Raises:
        UserError: for no evaluation.
    """

    evaluations: list[str]
    output: str | None = None

    def __post_init__(self) -> None:
        if not self.evaluations:
            raise UserError("evaluations must name some directories, got []")

    def run(self) -> None:
        """Reads, prints, and draws where that is asked for.

        Raises:
            UserError: where an evaluation cannot be read, or they have nothing in common.
        """
        directories = [Path(name).expanduser() for name in self.evaluations]
        found = dict(zip(distinct_names(directories), map(_read, directories), strict=True))
        first = next(iter(found.values()))
        shared = [
            name for name in first["scores"] if all(name in one["scores"] for one in found.values())
        ]
        if not shared:
            raise UserError(
                "these evaluations have no score in common; evaluate them with one scorer"
            )
        rows = {
            name: [f"{one['scores'][score]['value']:.2f}" for score in shared]
            for name, one in found.items()
        }
        print_comparison("Evaluations", shared, rows, _signatures(found, shared))
        if self.output is not None:
            _draw(found, shared[0], Path(self.output).expanduser())


def distinct_names(directories: Sequence[Path]) -> list[str]:
    """The parts of each path that tell it from the others."""
    parts = [path.parts for path in directories]
    longest = max(map(len, parts), default=0)
    padded = [("",) * (longest - len(row)) + tuple(row) for row in parts]
    telling = [n for n in range(longest) if len({row[n] for row in padded}) > 1]
    return [
        "/".join(row[n] for n in telling if row[n]) or str(path)
        for row, path in zip(padded, directories, strict=True)
    ]


def _read(directory: Path) -> Results:
    file = directory / "scores.json"
    if not file.is_file():
        raise UserError(f"{directory} is no evaluation: {file} is not there; run evaluate first")
    try:
        return _RESULTS.validate_json(file.read_bytes())
    except ValidationError as error:
        raise UserError(f"{file} cannot be read; evaluate again") from error


def _signatures(evaluations: Mapping[str, Results], shared: Sequence[str]) -> list[str]:
    notes = []
    for score in shared:
        found = {one["scores"][score]["signature"] for one in evaluations.values()}
        if len(found) > 1:
            notes.append(f"{score} was not computed alike: {' and '.join(sorted(found))}")
    return notes


def _draw(evaluations: Mapping[str, Results], score: str, path: Path) -> None:
    bins = [
        [(part["words"], part["sentences"]) for part in one.get("by_length", ())]
        for one in evaluations.values()
    ]
    scored = all(score in part["scores"] for one in evaluations.values()
                 for part in one.get("by_length", ()))  # fmt: skip
    if not scored or not bins[0] or any(other != bins[0] for other in bins):
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
