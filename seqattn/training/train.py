"""A training run, as a typed value."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import torch
from lightning.pytorch.callbacks import LambdaCallback

from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.screen import print_table, progress
from seqattn.training.finish import TrainingResult
from seqattn.training.options import TrainingOptions
from seqattn.training.range_test import RangeTest
from seqattn.training.ranks import as_started, launch
from seqattn.training.rendezvous import rendezvous
from seqattn.training.resume import phase_of, settings_before
from seqattn.training.run import run_training
from seqattn.training.run_directory import claimed, rank, world_size
from seqattn.training.setup import setup_of
from seqattn.training.start import start_of

_ROWS = 5  # steps from one row of the table of rates to the next
_HORIZON = 100_000  # steps within which a schedule has its peak, which is 1 for all but Noam's


class Training(TrainingOptions):
    """One training, from its settings to a bundle. Args: as `TrainingOptions`."""

    def run(self) -> TrainingResult:
        """Trains, and writes the bundle; goes on with a run that was stopped.

        Returns:
            What it came to; on ranks above the first, as far as they know.

        Raises:
            UserError: where the data or a run directory cannot be used.
            Stopped: where a signal has ended it.
        """
        try:
            run = self.settled()
            run.check()
            return run._run()
        except UserError as error:
            rendezvous.refuse(str(error))
            raise

    def settled(self) -> "Training":
        """Return the training with what the machine, its ranks and its data decide."""
        trainer = self.settings["trainer"]
        decided = {"precision": self.trainer.precision, **as_started(self.trainer)}
        return _with_vocabulary(self.changed(trainer={**trainer, **decided}))

    def _run(self) -> TrainingResult:
        home = Path(self.run_dir)
        with ExitStack() as held:

            def begin() -> str:
                held.enter_context(claimed(home))
                return phase_of(self)

            phase = rendezvous.agreed(begin)
            if phase == "finished":
                return self._finished()
            if world_size() == 1 and self.trainer.ranks > 1:
                held.close()  # the first rank holds the directory
                return launch(self)
            if rank() == 0 and phase == "go on":
                print(f"training goes on in {home}", file=sys.stderr)
            goes_on = phase == "go on"
            before = settings_before(home, f"resume={self.resume}") if goes_on else {}
            with threads_of(self.trainer.threads, before.get("threads")):
                return run_training(replace(self, resume=self.run_dir if goes_on else None))

    def _finished(self) -> TrainingResult:
        """Says so, and trains nothing."""
        home = Path(self.run_dir)
        result = TrainingResult.kept(home)
        if rank() == 0:
            print(
                f"run_dir={home} is finished after {result.steps:,} steps, its bundle is "
                f"{result.bundle}; to train on, add resume={home} and a higher trainer.max_steps "
                "or trainer.max_epochs",
                file=sys.stderr,
            )
        return result

    def find_rate(self) -> float:
        """Trains for 100 steps at growing rates and prints what became of the loss; writes no run.

        Returns:
            A peak rate, as `optimizer.lr`.

        Raises:
            UserError: where the data cannot be read, or the loss falls at no rate.
        """
        run = self.settled()
        run.check()
        if run.resumes_another:
            raise UserError("find_lr=true is for a new run; leave resume out")
        start = start_of(replace(run, resume=None))
        setup = setup_of(start)
        ranks = run.trainer.ranks * run.trainer.num_nodes
        batches = start.step_batches or ranks * run.trainer.accumulate_grad_batches
        test = RangeTest()
        alone = run.trainer.alone(**{**run.trainer.lightning, "limit_val_batches": 0})
        options = replace(
            alone, max_steps=test.steps, max_epochs=-1, val_check_interval=1.0,
            accumulate_grad_batches=batches,
        )  # fmt: skip
        with progress("finding a learning rate", "steps") as tell:
            told = LambdaCallback(on_train_batch_end=lambda *_: tell(len(test.rates), test.steps))
            trainer = options.trainer(Path(run.run_dir), [test, told])
            trainer.fit(setup.task, datamodule=setup.data)
        found = test.suggestion
        if found is None:
            raise UserError(
                f"the loss falls at no learning rate from {test.lowest:g} to {test.highest:g}"
            )
        pairs = [*zip(test.rates, test.losses, strict=True)]
        rows = {f"{rate:.1e}": f"{loss:.3f}" for rate, loss in pairs[::_ROWS]}
        print_table("Loss by rate", rows, ["loss"])
        peak = max(map(run.schedule(), range(_HORIZON)))
        print(f"optimizer.lr={found / peak:.2g}")
        return found / peak


@contextmanager
def threads_of(asked: int | None, before: int | None) -> Iterator[None]:
    """Set the threads of a training on a CPU.

    Args:
        asked: `trainer.threads`; None for all, or for those that the run began with.
        before: those of a run that is resumed, whose sums depend on their number.
    """
    most = torch.get_num_threads()
    torch.set_num_threads(asked or min(before or most, most))
    try:
        yield
    finally:
        torch.set_num_threads(most)


def _with_vocabulary(run: Training) -> Training:
    """The run with the settings of the vocabulary that its data brings, where that is prepared.

    Raises:
        UserError: it was told of another one.
    """
    theirs = getattr(run.data, "tokenizer_config", None)
    if theirs is None or theirs == run.tokenizer:
        return run
    asked = run.typed("tokenizer")
    if asked or not (run.overrides or run.tokenizer == TokenizerConfig()):
        made = " ".join(f"tokenizer.{key}={value}" for key, value in asdict(theirs).items())
        raise UserError(
            f"the data was prepared with a vocabulary of its own ({made}); leave "
            f"{' '.join(asked) or 'tokenizer'} out, or prepare it again"
        )
    return run.changed(tokenizer={**run.settings["tokenizer"], **asdict(theirs)})
