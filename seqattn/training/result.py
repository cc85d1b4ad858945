"""Result of a training run, and its file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from seqattn.errors import UserError
from seqattn.inputs import read_yaml
from seqattn.storage import write_whole
from seqattn.training.resume import RESULT


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training run.

    Args:
        run_dir: directory of the run.
        bundle: directory of its bundle.
        monitored: best value of `checkpoint.monitor`; None without a validation.
        steps: optimizer steps taken.
        scores: the bundle's scores on the validation split, with signatures.
        first: steps taken before the run was resumed here.
    """

    run_dir: Path
    bundle: Path
    monitored: float | None
    steps: int
    scores: Mapping[str, Any]
    first: int = 0

    def save(self) -> None:
        """Write the result into the run's directory, which marks the run as finished."""
        content = {"monitored": self.monitored, "steps": self.steps, "scores": dict(self.scores)}
        write_whole(self.run_dir / RESULT, yaml.safe_dump(content, sort_keys=False).encode())

    @classmethod
    def load(cls, run_dir: Path) -> "TrainingResult":
        """Load the result of a finished run."""
        try:
            saved = _Saved.model_validate(read_yaml(run_dir / RESULT))
        except ValidationError as error:
            raise UserError(f"cannot read {run_dir / RESULT}; start a new run") from error
        return cls(run_dir, run_dir / "model", saved.monitored, saved.steps, saved.scores)


class _Saved(BaseModel):
    """Fields of a result that are saved."""

    monitored: float | None
    steps: int
    scores: dict[str, Any]
