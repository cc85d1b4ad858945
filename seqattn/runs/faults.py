"""What is said of a training whose memory runs out, or whose helpers die."""

from collections.abc import Iterator
from contextlib import contextmanager

from seqattn.data.options import SpanOptions
from seqattn.errors import UserError
from seqattn.ops.memory import ran_out
from seqattn.runs.training_options import TrainingOptions

_WORKER = "DataLoader worker"


@contextmanager
def training_faults(run: TrainingOptions) -> Iterator[None]:
    """Words what PyTorch says when memory runs out inside the block, or a data worker dies.

    Raises:
        UserError: with a budget of tokens that halves the batches, if one row fits into it; with
            what to do without the worker.
    """
    try:
        yield
    except RuntimeError as error:
        if ran_out(error):
            raise UserError(_advice(run)) from error
        if _WORKER in str(error):
            raise UserError(
                f"{str(error).strip().rstrip('.')}; if memory was short, lower loader.num_workers; "
                "the same command goes on from the last checkpoint"
            ) from error
        raise


def _advice(run: TrainingOptions) -> str:
    loader, too_large = run.loader, "is too large for the memory"
    if isinstance(loader, SpanOptions):
        key, longest = "window", max(loader.window, loader.max_question)
    else:
        key, longest = "max_length", max(loader.max_length, loader.source_length)
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
