"""A learning rate for a run, found before it begins."""

from dataclasses import replace
from pathlib import Path

from lightning.pytorch.callbacks import LambdaCallback

from seqattn.errors import UserError
from seqattn.runs.fitting import SpanFitting, TextFitting
from seqattn.runs.starting import start_of
from seqattn.runs.tables import print_table
from seqattn.runs.training_options import TrainingOptions
from seqattn.training.range_test import RangeTest
from seqattn.training.screen import progress

_ROWS = 5  # steps from one row of the table to the next
_HORIZON = 100_000  # steps within which a schedule has its peak, which is 1 for all but Noam's


def find_rate(run: TrainingOptions) -> float:
    """Trains for 100 steps at growing rates and prints what became of the loss; writes nothing.

    Returns:
        A peak rate, as `optimizer.lr`.

    Raises:
        UserError: where the data cannot be read, or the loss falls at no rate.
    """
    if run.resumes_another:
        raise UserError("find_lr=true is for a new run; leave resume out")
    start = start_of(replace(run, resume=None))
    fitting = (SpanFitting if run.task.output == "spans" else TextFitting)(start)
    test = RangeTest()
    alone = run.trainer.alone(**{**run.trainer.lightning, "limit_val_batches": 0})
    options = replace(alone, max_steps=test.steps, max_epochs=-1, val_check_interval=1.0)
    with progress("finding a learning rate", "steps") as tell:
        told = LambdaCallback(on_train_batch_end=lambda *_: tell(len(test.rates), test.steps))
        trainer = options.trainer(Path(run.run_dir), [test, told])
        trainer.fit(fitting.task, datamodule=fitting.data)
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
