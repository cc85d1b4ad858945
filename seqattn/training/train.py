"""Training runs."""

from dataclasses import asdict, dataclass, replace

from lightning import Callback
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import StochasticWeightAveraging, WeightAveraging

from seqattn.checking import shown
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.layers.transformer_layer import LayerShape
from seqattn.screen import log_to, note
from seqattn.training.finish import TrainingResult
from seqattn.training.launch import as_started
from seqattn.training.loop import TrainingLoop
from seqattn.training.monitors import GradientHistograms
from seqattn.training.range_test import find_rate
from seqattn.training.ranks import world_size
from seqattn.training.rendezvous import rendezvous
from seqattn.training.run import start_or_resume
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
            return start_or_resume(run, run.check())
        except Exception as error:
            note(f"error: {error}")
            if isinstance(error, UserError):
                rendezvous.refuse(str(error))
            raise
        finally:
            log_to(None)

    def find_rate(self) -> float:
        """Print and return a learning rate for this run; see `range_test.find_rate`."""
        run = self.resolved()
        run.check()
        return find_rate(run)

    def resolved(self) -> "Training":
        """Return the training with settings filled in from the machine, its ranks and its data."""
        started = as_started(self.trainer)
        trainer = replace(self.trainer, **started) if started else self.trainer
        node = {**self.settings["trainer"], "precision": trainer.precision, **started}
        settings = {**self.settings, "trainer": node}
        return _with_vocabulary(self.with_fields(trainer=trainer, settings=settings))

    def check(self) -> TrainingLoop | None:
        """Check everything that needs no data.

        Returns:
            The trainer and its callbacks; None if this process starts others that train.

        Raises:
            UserError: for settings that this machine does not support, or choices that do not fit
                each other.
        """
        if self.trainer.compile and not isinstance(self.model, LayerShape):
            raise UserError("trainer.compile=true needs a Transformer, such as model=transformer")
        self.trainer.check_device()
        if self.trainer.num_nodes > 1 and world_size() == 1:
            raise UserError("trainer.num_nodes above 1 needs torchrun or SLURM to start the ranks")
        callbacks = self.made_callbacks()
        for one in callbacks:
            if isinstance(one, GradientHistograms):
                kinds = [getattr(make, "func", make) for make in self.logger.values()]
                one.check_loggers([kind for kind in kinds if isinstance(kind, type)])
        if any(isinstance(one, StochasticWeightAveraging) for one in callbacks):
            raise UserError(
                "weights averaged by StochasticWeightAveraging are not saved in checkpoints or "
                "bundles; use callbacks=[ema], or checkpoint.average=last checkpoint.count=5"
            )
        if any(isinstance(one, WeightAveraging) for one in callbacks) and self.trainer.sharded:
            raise UserError(
                "trainer=fsdp2 does not support callbacks=[ema], which needs a full copy of the "
                "weights; use trainer=ddp, or checkpoint.average=last checkpoint.count=5"
            )
        self.schedule()
        model = self.architecture.check(self.tokenizer.joint)
        self.generation.check(model)
        starts_others = self.trainer.ranks > 1 and world_size() == 1
        return None if starts_others else TrainingLoop(self, callbacks)

    def made_callbacks(self) -> list[Callback]:
        """Build the user's callbacks.

        Raises:
            UserError: if one cannot be built, or is not a callback.
        """
        callbacks = []
        for name, make in self.callbacks.items():
            try:
                callbacks.append(make())
            except (TypeError, ValueError, MisconfigurationException) as error:
                raise UserError(f"callbacks.{name}: {error}") from error
            if not isinstance(callbacks[-1], Callback):
                raise UserError(
                    f"callbacks.{name} must create a lightning.Callback, got {shown(callbacks[-1])}"
                )
        return callbacks


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
