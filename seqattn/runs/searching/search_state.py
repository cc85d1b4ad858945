"""What a search knows, in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from seqattn.errors import UserError
from seqattn.runs.searching.search_trials import Trial

STATE = "trials.json"


class Rung(BaseModel):
    """Trials that are trained up to the same step, and compared there."""

    steps: int
    trials: list[str] = []


class SearchState(BaseModel):
    """All that a search knows; written after each change."""

    settings: dict[str, Any] = {}
    """What the search was told."""
    drawn: list[str] = []
    """What was drawn from the space, in words."""
    pilot: dict[str, float] = {}
    """Seconds of a step and of a start, and steps of warm-up."""
    rungs: list[Rung] = []
    trials: dict[str, Trial] = {}
    spent: float = 0.0
    """Seconds, over all times that the search went on."""

    @classmethod
    def read(cls, home: Path) -> SearchState:
        """That of a folder; a new one where there is none.

        Raises:
            UserError: it cannot be read.
        """
        file = home / STATE
        try:
            return cls.model_validate_json(file.read_bytes()) if file.is_file() else cls()
        except ValidationError as error:
            raise UserError(f"{file} cannot be read; name another run_dir") from error

    def ranked(self, names: Sequence[str]) -> list[str]:
        """Those that are still in the race, the best loss first."""
        going = [name for name in names if self.trials[name].state == "going"]
        return sorted(going, key=lambda name: self.trials[name].loss)
