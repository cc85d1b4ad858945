"""Settings of a search."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seqattn.checking import Count, Seed
from seqattn.errors import UserError
from seqattn.extras.search.search_budget import Budget
from seqattn.extras.search.search_space import SearchSpace

_NOT_TAKEN = ("resume", "init_from", "embeddings", "find_lr")
"""Keys of train that a search does not accept."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Settings of a search.

    Args:
        run_dir: directory of all files; repeat the command to resume.
        settings: settings of `Training`.
        overrides: overrides on the command line of that training, used to start runs.
        space: parts of the model to vary.
        budget: limits of time and steps.
        jobs: concurrent training runs, one thread each; None for one per core, or one on a GPU.
        seed: seed of the order of models and of their first training.
        options: Hydra options: --config-dir and hydra.searchpath.

    Raises:
        UserError: if a key of training is of no use in a search.
    """

    run_dir: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    space: SearchSpace = field(default_factory=SearchSpace)
    budget: Budget = field(default_factory=Budget)
    jobs: Count | None = None
    seed: Seed = 1
    options: Sequence[str] = ()

    def __post_init__(self) -> None:
        for word in self.overrides:
            key = word.partition("=")[0]
            if key in _NOT_TAKEN or key[:1] in "+~":
                raise UserError(f"search does not support {key}; remove it")
        if isinstance(self.settings.get("attention"), list):
            raise UserError("search needs one attention for all layers; remove the list")
