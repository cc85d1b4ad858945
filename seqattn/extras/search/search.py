"""Search for the model that suits given data under a budget."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seqattn.errors import UserError
from seqattn.extras.search.search_options import SearchOptions
from seqattn.installation import install
from seqattn.processes import cores
from seqattn.settings.nodes import build
from seqattn.storage import file_faults
from seqattn.subcommands.provenance import data_contents
from seqattn.training.run_directory import claimed


@dataclass(frozen=True, kw_only=True)
class ModelSearch(SearchOptions):
    """Find the attention, heads, window, position, depth and width that suit some data.

    Many models train for a few steps, the better ones for more (asynchronous successive halving,
    Li et al. 2020, arXiv 1810.05934), all on the same batches. The costs of the finalists are
    measured (after HAT, Wang et al. 2020, arXiv 2005.14187).

    Args: as `SearchOptions`.
    """

    def run(self) -> None:
        """Start or resume a search; write a report with the command that trains the best model.

        Raises:
            UserError: if nothing can be trained, Optuna is not installed, or the directory holds
                another search.
        """
        try:
            import optuna  # noqa: F401  before scipy, whose absence names another extra

            from seqattn.extras.search.search_report import report
            from seqattn.extras.search.search_study import Halving
        except ModuleNotFoundError as error:
            if error.name != "optuna":
                raise
            raise UserError(f"search needs optuna; {install('search')}") from error
        max_count = None if self.space.ranges else self.budget.candidates
        models = self.space.draw(self.settings, max_count, self.seed)
        if len(models.candidates) < 2 and not self.space.ranges:
            raise UserError(f"the space contains only one valid model; {models.lines[-1]}")
        on_cpu = build(self.settings["trainer"], "trainer").on_cpu
        run_dir = Path(self.run_dir)
        with claimed(run_dir), file_faults("write", run_dir):
            jobs = self.jobs or (cores() if on_cpu else 1)
            halving = Halving(self, models.candidates, jobs, self._made_from())
            print(*models.lines, sep="\n", file=sys.stderr)
            try:
                halving.try_models()
                halving.train_finalists()
                print("comparing the finalists", file=sys.stderr)
                report(halving, models.lines)
            except KeyboardInterrupt:
                print("repeat the command to resume", file=sys.stderr)
                raise
            finally:
                halving.save()

    def _made_from(self) -> dict[str, Any]:
        """Return the plain values that must stay the same to resume."""
        fixed = ("first_steps", "steps", "factor", "candidates")
        return {
            "overrides": sorted(self.overrides), "space": asdict(self.space), "seed": self.seed,
            "budget": {key: getattr(self.budget, key) for key in fixed},
            "data": data_contents(build(self.settings["data"], "data"), ("train", "val")),
        }  # fmt: skip
