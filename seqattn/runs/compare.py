"""Evaluations side by side, as a table and as curves by source length."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from pydantic import BaseModel, FiniteFloat, ValidationError

from seqattn.analysis.plots import length_curves, save
from seqattn.checking import checked
from seqattn.errors import UserError
from seqattn.runs.tables import print_table


class Score(BaseModel):
    """A score, with what must be the same for two to be compared."""

    value: FiniteFloat
    signature: str = ""


class Bin(BaseModel):
    """Scores of sources of similar length."""

    words: str
    sentences: int
    scores: dict[str, Score]


class Results(BaseModel):
    """What is read of scores.json."""

    scores: dict[str, Score]
    by_length: list[Bin] = []


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
        shared = [
            name
            for name in next(iter(found.values())).scores
            if all(name in one.scores for one in found.values())
        ]
        if not shared:
            raise UserError(
                "these evaluations have no score in common; evaluate them with one scorer"
            )
        rows = {
            name: [f"{one.scores[score].value:.2f}" for score in shared]
            for name, one in found.items()
        }
        print_table("Evaluations", rows, shared, _signatures(found, shared))
        if self.output is not None:
            _draw(found, shared[0], Path(self.output).expanduser())


def distinct_names(directories: Sequence[Path]) -> list[str]:
    """The parts of each path that tell it from the others."""
    from_the_end = zip_longest(*(path.parts[::-1] for path in directories), fillvalue="")
    telling = [parts for parts in reversed([*from_the_end]) if len(set(parts)) > 1]
    return [
        "/".join(parts[number] for parts in telling if parts[number]) or str(path)
        for number, path in enumerate(directories)
    ]


def _read(directory: Path) -> Results:
    file = directory / "scores.json"
    if not file.is_file():
        raise UserError(f"{directory} is no evaluation: {file} is not there; run evaluate first")
    try:
        return Results.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise UserError(f"{file} cannot be read; evaluate again") from error


def _signatures(evaluations: Mapping[str, Results], shared: Sequence[str]) -> list[str]:
    notes = []
    for score in shared:
        found = {one.scores[score].signature for one in evaluations.values()}
        if len(found) > 1:
            notes.append(f"{score} was not computed alike: {' and '.join(sorted(found))}")
    return notes


def _draw(evaluations: Mapping[str, Results], score: str, path: Path) -> None:
    each = [one.by_length for one in evaluations.values()]
    bins = [[(part.words, part.sentences) for part in parts] for parts in each]
    scored = all(score in part.scores for parts in each for part in parts)
    if not scored or not bins[0] or any(other != bins[0] for other in bins):
        raise UserError(
            "a picture needs evaluations of one split with the same lengths; evaluate each with "
            "the same lengths=[8,12,16,20]"
        )
    series = {
        name: [part.scores[score].value for part in parts]
        for name, parts in zip(evaluations, each, strict=True)
    }
    words, counts = zip(*bins[0], strict=True)
    print(f"drawn to {save(length_curves(series, words, counts, score), path)}", file=sys.stderr)
