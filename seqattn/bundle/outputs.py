"""Outputs of a bundle for the rows of a split, with the time taken."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from seqattn.data.base import Texts
from seqattn.data.lines import in_one_line, write_lines
from seqattn.generation.base import Hypothesis
from seqattn.storage import write_json

Found = list[list[Hypothesis]]
Rank = Callable[[Sequence[str], Found], Found]


@dataclass(frozen=True)
class Outputs:
    """Best output for each row, "" for none, and the total seconds."""

    unit: ClassVar[str] = "sentences"
    """Name of the rows."""

    rows: Texts
    texts: list[str]
    seconds: float
    tokens: int = 0
    """Target tokens, end marks included; 0 if outputs are not made of tokens."""
    again: "Callable[..., Outputs] | None" = field(default=None, kw_only=True, repr=False)
    """Function that returns the outputs for other rows by the same search, if there is one."""

    @property
    def rates(self) -> dict[str, float]:
        """Outputs per second, by unit."""
        tokens = {"tokens": self.tokens / self.seconds} if self.tokens else {}
        return {self.unit: len(self.texts) / self.seconds, **tokens}

    def scores(self, scorer: Any) -> list[Any]:
        """Return a scorer's scores of the outputs; with groups of rows, intervals are over them."""
        scores = self.rows.score(scorer, self.texts)
        if self.rows.groups is not None:
            counts = scorer.sentences(self.texts, self.rows.references)
            ends = {one.name: one.by_group(self.rows.groups).interval() for one in counts}
            scores = [replace(score, interval=ends.get(score.name)) for score in scores]
        return list(scores)

    def table(self) -> dict[str, str]:
        """Return the number of outputs and the speed, as rows of a table."""
        counted = {self.unit: f"{len(self.texts):,} ({self.rates[self.unit]:,.1f} per second)"}
        if self.tokens:
            rate = f"{self.rates['tokens']:,.0f} per second"
            counted["target tokens"] = f"{self.tokens:,} ({rate})"
        return counted

    def write(self, directory: Path) -> None:
        """Write the evaluation files of these outputs."""
        write_lines(map(in_one_line, self.texts), str(directory / "hypotheses.txt"))
        if self.rows.ids is not None:
            predictions = dict(zip(self.rows.ids, self.texts, strict=True))
            write_json(directory / "predictions.json", predictions)
