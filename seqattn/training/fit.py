"""Fitting, with one restart from a checkpoint after divergence, and advice on failures."""

import sys
import traceback

import torch
from lightning import Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException

from seqattn.errors import UserError
from seqattn.ops.memory import ran_out
from seqattn.screen import say
from seqattn.training.checkpoint_files import newest_whole, step_of
from seqattn.training.loop import TrainingLoop
from seqattn.training.ranks import rank
from seqattn.training.settings import TrainingSettings
from seqattn.training.setup import Setup
from seqattn.training.sharding import FullySharded
from seqattn.training.stopping import Diverged

_REFUSALS = (MisconfigurationException, ArithmeticError, ValueError, TypeError, AttributeError)
"""Errors of Lightning for arguments that it does not accept."""


def fit(loop: TrainingLoop, setup: Setup) -> Trainer:
    """Train; if it diverges, restart once from the last checkpoint, after the bad batches.

    Args:
        loop: the trainer and its callback.
        setup: data, model and task.

    Returns:
        The trainer that has trained to the end.

    Raises:
        UserError: if memory runs out or a data worker dies; the message names a setting to change.
    """
    checkpoint = setup.checkpoint
    diverged, first = False, step_of(checkpoint) if checkpoint else 0
    trainer, files = loop.trainer, loop.checkpoints.files
    while True:
        try:
            trainer.fit(
                setup.task,
                setup.data.loader("train", trainer),
                setup.data.loader("val", trainer),
                ckpt_path=checkpoint,
                weights_only=True if checkpoint else None,
            )
            break
        except RuntimeError as error:
            message = _message_for(error, setup.run)
            if message is None:
                raise
            raise UserError(message) from error
        except Diverged as error:
            files.wait()
            trainer.strategy.barrier()  # the other ranks read what the first has written
            checkpoint = newest_whole(files.directory, tells=rank() == 0)
            if checkpoint is None or diverged:
                raise
            diverged = True
            if rank() == 0:
                say(f"{error}; resuming from {checkpoint.name}")
            trainer = loop.build_trainer()
        except _REFUSALS as error:
            arguments = ", ".join(setup.run.trainer.lightning)
            if isinstance(error, UserError) or not arguments or trainer.global_step > first + 1:
                raise  # after a step, Lightning has accepted its arguments
            if not _is_theirs(error):
                raise
            line = " ".join(str(error).split())
            raise UserError(f"trainer.lightning ({arguments}): {line}") from error
        finally:
            files.wait()
    setup.task.free_graphs()
    if isinstance(trainer.strategy, FullySharded):
        weights = trainer.strategy.lightning_module_state_dict()  # a collective call
        if trainer.is_global_zero:
            setup.rebuild(weights)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # the rest is for the first rank only
    return trainer


def _is_theirs(error: Exception) -> bool:
    """Return True if only code of Lightning, PyTorch and Python ran between `fit` and an error."""
    packages = {"lightning", "lightning_utilities", "torch", *sys.stdlib_module_names}
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][1:]
    return all(frame.f_globals.get("__name__", "").split(".")[0] in packages for frame in frames)


def _message_for(error: RuntimeError, run: TrainingSettings) -> str | None:
    """Return advice for running out of memory or a dead data worker; None for other errors."""
    if ran_out(error):
        return _smaller_batches(run)
    if "DataLoader worker" in str(error):
        return (
            f"{str(error).strip().rstrip('.')}; if memory ran out, lower loader.num_workers; "
            "rerun the same command to resume from the last checkpoint"
        )
    return None


def _smaller_batches(run: TrainingSettings) -> str:
    """Return advice on a budget of tokens that halves the batches, if a row fits into it."""
    loader = run.loader
    key, longest = loader.longest_row
    tokens = max(loader.max_tokens // 2, longest)
    if tokens >= loader.max_tokens:
        return (
            f"out of memory on a batch of one row; lower loader.{key} (now {getattr(loader, key)}) "
            "or use a smaller model"
        )
    batches = f"trainer.accumulate_grad_batches={2 * run.trainer.accumulate_grad_batches}"
    if loader.step_batches is not None:
        batches = f"loader.step_batches={2 * loader.step_batches}"
    return (
        f"out of memory; set loader.max_tokens={tokens} (now {loader.max_tokens}), and {batches} "
        "to keep the effective batch size"
    )
