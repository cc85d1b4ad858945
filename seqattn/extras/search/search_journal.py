"""Optuna study of a search, stored as JSON lines; reading it executes no code."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.pruners import SuccessiveHalvingPruner
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from seqattn.errors import UserError
from seqattn.extras.search.search_budget import Budget
from seqattn.inputs import check_json, check_there, read_bytes
from seqattn.storage import write_whole

JOURNAL = "journal.log"
_LARGEST = 1 << 26
"""Maximum bytes of a journal."""


class _Study(BaseModel):
    """Contents of a study's notes."""

    made_from: dict[str, Any] = {}
    spent: Annotated[FiniteFloat, Field(ge=0)] = 0.0


class _Trial(BaseModel):
    """Fields of a trial that are read here and by Optuna's samplers and pruners."""

    model_config = ConfigDict(from_attributes=True, strict=True)
    params: dict[str, str | float]
    intermediate_values: dict[int, float]
    system_attrs: dict[str, float | dict[str, str | float]]
    user_attrs: dict[str, str]


def is_log(low: float, high: float) -> bool:
    """Return True for a range that is sampled on a logarithmic scale."""
    return low > 0 and high >= 10 * low


def distributions(
    models: Sequence[str], ranges: Mapping[str, Sequence[float]]
) -> dict[str, BaseDistribution]:
    """Return Optuna's distributions: the models' names, and numbers within ranges."""
    numbers = {
        key: FloatDistribution(low, high, log=is_log(low, high))
        for key, (low, high) in ranges.items()
    }
    return {"model": CategoricalDistribution(models), **numbers}


def open_study(
    run_dir: Path,
    budget: Budget,
    seed: int,
    space: Mapping[str, BaseDistribution],
    made_from: dict[str, Any],
) -> tuple[optuna.Study, list[Trial]]:
    """Open the study of a directory, or create one.

    Args:
        run_dir: directory, locked by this process.
        budget: determines when models are halved.
        seed: seed of the sampler.
        space: distributions of every trial.
        made_from: plain values that must equal those of the earlier search.

    Returns:
        The study, and its trials that were running when the search was interrupted.

    Raises:
        UserError: if it belongs to another search, or is damaged.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", module="optuna")
    file = run_dir / JOURNAL
    if file.exists():
        check_there(file, "an Optuna journal")
        _mend(file)
    file.with_name(f"{JOURNAL}.lock").unlink(missing_ok=True)  # left by a killed process
    damaged = UserError(f"{file} is damaged; choose another run_dir")
    try:
        storage = JournalStorage(JournalFileBackend(str(file)))
        study = optuna.create_study(
            storage=storage, study_name="search",
            pruner=SuccessiveHalvingPruner(budget.first_steps, budget.factor), load_if_exists=True,
        )  # fmt: skip
        trials = study.trials
        previous = _Study.model_validate(study.user_attrs).made_from
        for trial in trials:
            _Trial.model_validate(trial)
    except OSError:
        raise
    except Exception as error:  # replaying a foreign file may raise anything
        raise damaged from error
    changed_keys = [key for key in made_from if previous and previous.get(key) != made_from[key]]
    if changed_keys:
        raise UserError(
            f"run_dir={run_dir} holds a search with different {', '.join(changed_keys)}; use the "
            "same, or choose another directory"
        )
    if not all(_fits(trial, space) for trial in trials):
        raise damaged
    study.set_user_attr("made_from", made_from)
    study.sampler = TPESampler(seed=seed + len(trials))  # otherwise it would repeat its draws
    number = storage.get_study_id_from_name(study.study_name)
    running = [trial.number for trial in trials if trial.state is TrialState.RUNNING]
    ids = [storage.get_trial_id_from_study_id_trial_number(number, n) for n in running]
    return study, [Trial(study, n) for n in ids]


def _mend(file: Path) -> None:
    """Remove an incomplete last line that an interruption may leave in a journal."""
    content = read_bytes(file, _LARGEST)
    check_json(content.splitlines(), file, by_line=True)
    complete = content[: content.rfind(b"\n") + 1]
    if complete != content:
        write_whole(file, complete)


def _fits(trial: FrozenTrial, space: Mapping[str, BaseDistribution]) -> bool:
    """Return True if a trial's values are within the space."""
    try:
        for name, value in trial.system_attrs.get("fixed_params", {}).items():
            space[name].to_internal_repr(value)
    except (KeyError, ValueError):
        return False
    return all(space.get(name) == one for name, one in trial.distributions.items())
