"""A training run, as a typed value."""

from pathlib import Path

from seqattn.runs.ending import TrainingResult
from seqattn.runs.find_rate import find_rate
from seqattn.runs.fit import fit
from seqattn.runs.ranks import launch
from seqattn.runs.run_directory import claimed, world_size
from seqattn.runs.training_options import TrainingOptions


class Training(TrainingOptions):
    """One training, from its settings to a bundle. Args: as `TrainingOptions`."""

    def run(self) -> TrainingResult:
        """Trains, and writes the bundle.

        Returns:
            What it came to; on ranks above the first, as far as they know.

        Raises:
            UserError: where the data or a run directory cannot be used.
        """
        self.check()
        with claimed(Path(self.run_dir), self.resume is not None):
            alone = self.trainer.ranks == 1 or world_size() > 1
            return fit(self) if alone else launch(self)

    def find_rate(self) -> float:
        """Finds a value for `optimizer.lr` in 100 steps, and writes no run; see `find_rate`."""
        self.check()
        return find_rate(self)
