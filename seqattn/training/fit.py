"""Fitting: once more from a checkpoint where training diverged, advice where it fails."""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from lightning import Trainer

from seqattn.errors import UserError
from seqattn.ops.memory import ran_out
from seqattn.training.callbacks import Diverged
from seqattn.training.checkpoint_files import newest_whole
from seqattn.training.checkpoints import Checkpoints
from seqattn.training.options import TrainingOptions
from seqattn.training.run_directory import rank
from seqattn.training.setup import Setup
from seqattn.training.sharding import FullySharded


def fit(
    make: Callable[[], Trainer], setup: Setup, kept: Checkpoints, checkpoint: Path | None
) -> Trainer:
    """Train; once more from the last checkpoint, past the batches where it diverged.

    Args:
        make: makes the trainer.
        setup: data, model and task.
        kept: saves checkpoints.
        checkpoint: to resume from.

    Raises:
        UserError: memory ran out or a data worker died, with a setting to change.
    """
    diverged = False
    while True:
        trainer = make()
        try:
            trainer.fit(
                setup.task,
                datamodule=setup.data,
                ckpt_path=checkpoint,
                weights_only=True if checkpoint else None,
            )
            break
        except RuntimeError as error:
            advice = _advice(error, setup.run)
            if advice is None:
                raise
            raise UserError(advice) from error
        except Diverged as error:
            kept.files.wait()
            trainer.strategy.barrier()  # before other ranks look at what the first has written
            checkpoint = newest_whole(kept.files.directory, tells=rank() == 0)
            if checkpoint is None or diverged:
                raise
            diverged = True
            if rank() == 0:
                print(f"{error}; going on from {checkpoint.name}", file=sys.stderr)
        finally:
            kept.files.wait()
    if isinstance(trainer.strategy, FullySharded):
        weights = trainer.strategy.lightning_module_state_dict()  # all ranks gather them
        if trainer.is_global_zero:
            setup.rebuild(weights)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # what follows is the first rank's alone
    return trainer


def _advice(error: RuntimeError, run: TrainingOptions) -> str | None:
    """What to do where memory ran out or a data worker died; None for other errors."""
    if ran_out(error):
        return _smaller_batches(run)
    if "DataLoader worker" in str(error):
        return (
            f"{str(error).strip().rstrip('.')}; if memory was short, lower loader.num_workers; "
            "the same command goes on from the last checkpoint"
        )
    return None


def _smaller_batches(run: TrainingOptions) -> str:
    """A budget of tokens that halves the batches, if one row fits into it."""
    loader, too_large = run.loader, "is too large for the memory"
    key, longest = loader.longest_row
    tokens = max(loader.max_tokens // 2, longest)
    if tokens >= loader.max_tokens:
        return (
            f"a batch of one row {too_large}: lower loader.{key} (it is {getattr(loader, key)}), "
            "or choose a smaller model"
        )
    several = f"trainer.accumulate_grad_batches={2 * run.trainer.accumulate_grad_batches}"
    if loader.step_batches is not None:
        several = f"loader.step_batches={2 * loader.step_batches}"
    return (
        f"a batch {too_large}: set loader.max_tokens={tokens} (it is {loader.max_tokens}); with "
        f"{several} a step stays as large"
    )
