"""Outputs of a bundle for the rows of a split, with the time taken."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from seqattn.data.base import Rows, Texts
from seqattn.data.lines import in_one_line, write_lines
from seqattn.generation.base import Hypothesis
from seqattn.storage import write_json

Found = list[list[Hypothesis]]
Rank = Callable[[Sequence[str], Found], Found]


@dataclass(frozen=True)
class Outputs(ABC):
    """Best output for each row, "" for none, and the total seconds."""

    unit: ClassVar[str]
    """Name of the rows, such as sentences."""

    rows: Rows
    texts: list[str]
    seconds: float

    @property
    def rates(self) -> dict[str, float]:
        """Outputs per second, by unit."""
        return {self.unit: len(self.texts) / self.seconds}

    def scores(self, scorer: Any) -> list[Any]:
        """Return a scorer's scores of the outputs."""
        return list(self.rows.score(scorer, self.texts))

    def table(self) -> dict[str, str]:
        """Return the number of outputs and the speed, as rows of a table."""
        return {self.unit: f"{len(self.texts):,} ({self.rates[self.unit]:,.1f} per second)"}

    @abstractmethod
    def write(self, directory: Path) -> None:
        """Write the evaluation files of this kind of output."""


@dataclass(frozen=True)
class TextOutputs(Outputs):
    """Texts, and the number of their target tokens, end marks included."""

    unit = "sentences"
    rows: Texts
    tokens: int

    @property
    def rates(self) -> dict[str, float]:
        return {**super().rates, "tokens": self.tokens / self.seconds}

    def table(self) -> dict[str, str]:
        tokens = f"{self.tokens:,} ({self.rates['tokens']:,.0f} per second)"
        return {**super().table(), "target tokens": tokens}

    def write(self, directory: Path) -> None:
        write_lines(map(in_one_line, self.texts), str(directory / "hypotheses.txt"))
        if self.rows.ids is not None:
            predictions = dict(zip(self.rows.ids, self.texts, strict=True))
            write_json(directory / "predictions.json", predictions)
