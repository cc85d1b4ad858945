"""Training runs."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import torch
from lightning.pytorch.callbacks import LambdaCallback, StochasticWeightAveraging, WeightAveraging

from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.layers.transformer_layer import LayerShape
from seqattn.screen import log_to, note, print_table, progress, say
from seqattn.training.finish import TrainingResult
from seqattn.training.launch import as_started, launch
from seqattn.training.loop import TrainingLoop
from seqattn.training.monitors import GradientHistograms
from seqattn.training.options import TrainingOptions
from seqattn.training.range_test import RangeTest
from seqattn.training.ranks import rank, world_size
from seqattn.training.rendezvous import rendezvous
from seqattn.training.resume import phase_of, settings_before
from seqattn.training.run import LOG, run_training
from seqattn.training.run_directory import claimed
from seqattn.training.setup import setup_of
from seqattn.training.start import start_of

_ROWS = 5  # steps between rows of the table of rates
_HORIZON = 100_000  # steps within which schedules peak, at 1 except for Noam's


class Training(TrainingOptions):
    """A training run, from its settings to a bundle. Args: as `TrainingOptions`."""

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
            return run._run(run.check())
        except Exception as error:
            note(f"error: {error}")
            if isinstance(error, UserError):
                rendezvous.refuse(str(error))
            raise
        finally:
            log_to(None)

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

    def _run(self, loop: TrainingLoop | None) -> TrainingResult:
        run_dir = Path(self.run_dir)
        with ExitStack() as stack:

            def begin() -> str:
                stack.enter_context(claimed(run_dir))
                return phase_of(self)

            phase = rendezvous.agreed(begin)
            if phase == "finished":
                return self._finished()
            if loop is None:
                stack.close()  # the first rank holds the directory
                return launch(self)
            if rank() == 0 and phase == "resumable":
                log_to(run_dir / LOG)
                say(f"resuming training in {run_dir}")
            resuming = phase == "resumable"
            before = settings_before(run_dir, f"resume={self.resume}") if resuming else {}
            with threads_of(self.trainer.threads, before.get("threads")):
                return run_training(
                    self.with_fields(resume=self.run_dir if resuming else None), loop
                )

    def _finished(self) -> TrainingResult:
        """Report that the run is finished; return its result."""
        path = Path(self.run_dir)
        result = TrainingResult.load(path)
        if rank() == 0:
            print(
                f"run_dir={path} finished after {result.steps:,} steps; its bundle is "
                f"{result.bundle}; to continue, add resume={path} and a higher trainer.max_steps "
                "or trainer.max_epochs",
                file=sys.stderr,
            )
        return result

    def find_rate(self) -> float:
        """Train for 100 steps at increasing rates and print the losses, without writing a run.

        Returns:
            A peak rate, as `optimizer.lr`.

        Raises:
            UserError: if the data cannot be read, or the loss decreases at no rate.
        """
        run = self.resolved()
        run.check()
        if run.resumes_another:
            raise UserError("find_lr=true works on a new run only; remove resume")
        start = start_of(run.with_fields(resume=None))
        setup = setup_of(start)
        ranks = run.trainer.ranks * run.trainer.num_nodes
        batches = start.step_batches or ranks * run.trainer.accumulate_grad_batches
        test = RangeTest()
        single = run.trainer.alone(**{**run.trainer.lightning, "limit_val_batches": 0})
        options = replace(
            single, max_steps=test.steps, max_epochs=-1, val_check_interval=1.0,
            accumulate_grad_batches=batches,
        )  # fmt: skip
        with progress("finding a learning rate", "steps") as tell:
            ticks = LambdaCallback(on_train_batch_end=lambda *_: tell(len(test.rates), test.steps))
            trainer = options.trainer(Path(run.run_dir), [test, ticks])
            trainer.fit(setup.task, datamodule=setup.data)
        suggested = test.suggestion
        if suggested is None:
            raise UserError(
                "the loss does not decrease at any learning rate from "
                f"{test.lowest:g} to {test.highest:g}"
            )
        pairs = [*zip(test.rates, test.losses, strict=True)]
        rows = {f"{rate:.1e}": f"{loss:.3f}" for rate, loss in pairs[::_ROWS]}
        print_table("Loss by rate", rows, ["loss"])
        peak = max(map(run.schedule(), range(_HORIZON)))
        print(f"optimizer.lr={suggested / peak:.2g}")
        return suggested / peak


@contextmanager
def threads_of(requested: int | None, before: int | None) -> Iterator[None]:
    """Set the threads of a training run on a CPU.

    Args:
        requested: `trainer.threads`; None for all, or for the number that the run began with.
        before: number of threads of a resumed run, on which its sums depend.
    """
    most = torch.get_num_threads()
    torch.set_num_threads(requested or min(before or most, most))
    try:
        yield
    finally:
        torch.set_num_threads(most)


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
