"""Training runs."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from seqattn.data.base import Source
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.layers.transformer_layer import LayerShape
from seqattn.screen import log_to, note
from seqattn.training.rank_messages import rank_messages
from seqattn.training.ranks import world_size
from seqattn.training.result import TrainingResult
from seqattn.training.settings import TrainingSettings


@dataclass(frozen=True)
class Training(TrainingSettings):
    """A training run, from its settings to a bundle; see `TrainingSettings`."""

    def run(self) -> TrainingResult:
        """Train and write the bundle; resume a run that was stopped.

        Returns:
            The result; incomplete on ranks above the first.

        Raises:
            UserError: if the data or a run directory cannot be used.
            Stopped: if a signal has ended it.
        """
        try:
            run = self.resolved()
            run.check()
            run.check_files()
            from seqattn.training.run import start_or_resume  # and Lightning

            return start_or_resume(run)
        except Exception as error:
            note(f"error: {error}")
            if isinstance(error, UserError):
                rank_messages.fail(str(error))
            raise
        finally:
            log_to(None)

    def find_rate(self) -> float:
        """Print and return a learning rate for this run; see `range_test.find_rate`."""
        run = self.resolved()
        run.check()
        run.check_files()
        from seqattn.training.range_test import find_rate  # as in `run`

        return find_rate(run)

    def resolved(self) -> "Training":
        """Return the training with settings filled in from the machine, its ranks and its data."""
        started = self.trainer.as_started()
        trainer = replace(self.trainer, **started) if started else self.trainer
        node = {**self.settings["trainer"], "precision": trainer.precision, **started}
        settings = {**self.settings, "trainer": node}
        return _with_vocabulary(self.with_fields(trainer=trainer, settings=settings))

    def check(self) -> None:
        """Check what needs neither data nor Lightning, which takes seconds to import.

        Raises:
            UserError: for settings that this machine does not support, or choices that do not fit
                each other.
        """
        if self.trainer.compile and not isinstance(self.model, LayerShape):
            raise UserError("trainer.compile=true needs a Transformer, such as model=transformer")
        self.trainer.check_device()
        if self.trainer.num_nodes > 1 and world_size() == 1:
            raise UserError("trainer.num_nodes above 1 needs torchrun or SLURM to start the ranks")
        self.trainer.rank_batches(self.loader.step_batches)  # refuses what ranks cannot share
        self.schedule()
        model = self.architecture.check(self.tokenizer.joint)
        self.generation.check(model)

    def check_files(self) -> None:
        """Raise UserError if files of data do not exist, unless the run has begun: a finished one
        needs none."""
        begun = (Path(self.run_dir) / "config.yaml").is_file()
        if isinstance(self.data, Source) and not begun:
            final = self.task.final.splits if self.task.final else []
            self.data.check_files(["train", "val", *final])


def _with_vocabulary(run: Training) -> Training:
    """Return the run with the vocabulary settings of its data, if that is a prepared corpus.

    Raises:
        UserError: if the run has other vocabulary settings.
    """
    theirs = getattr(run.data, "tokenizer_config", None)
    if theirs is None or theirs == run.tokenizer:
        return run
    typed = run.typed("tokenizer")
    if typed or not (run.overrides or run.tokenizer == TokenizerConfig()):
        prepared = " ".join(f"tokenizer.{key}={value}" for key, value in asdict(theirs).items())
        raise UserError(
            f"the data was prepared with its own vocabulary ({prepared}); remove "
            f"{' '.join(typed) or 'tokenizer'}, or prepare it again"
        )
    return run.changed(tokenizer={**run.settings["tokenizer"], **asdict(theirs)})
