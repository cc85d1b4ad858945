"""When a run's place is saved, which weights are kept, and how it goes on from there."""

import math
import time
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, WeightAveraging

from seqattn.errors import Stopped
from seqattn.training.checkpoint_files import KEPT, CheckpointFiles
from seqattn.training.place import Place, steps_now


class Checkpoints(Checkpoint):
    """Saves after each validation, every so often, and when a signal asks for an end.

    Saving stands between two optimizer steps, so that a place is three numbers (`Place`), and
    nothing of it depends on how many ranks there are.

    Args:
        monitor: by which validated weights are kept: a logged number, or step for the last.
        mode: which way of it is better, min or max.
        count: how many weights are kept.
        every_steps: optimizer steps from one checkpoint to the next; None for validations alone.
        every_minutes: minutes after which another is due; None likewise.

    Attributes:
        kept: (value, step) of the weights that are kept, the best first.
        passed: where training goes on with the weights of a checkpoint before it; None for there.
    """

    def __init__(
        self,
        files: CheckpointFiles,
        monitor: str = "val/loss",
        mode: str = "min",
        count: int = 1,
        every_steps: int | None = None,
        every_minutes: float | None = None,
    ) -> None:
        self.files, self.monitor, self.mode, self.count = files, monitor, mode, count
        self._by = [monitor, mode]
        self.every_steps, self.every_seconds = every_steps, 60 * (every_minutes or math.inf)
        self.kept: list[tuple[float, int]] = []
        self.passed: Place | None = None
        self._place = Place()
        self._saved, self._saved_at = 0, time.monotonic()

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        _validate_between_steps(trainer)
        # in place of Lightning's handlers, which save nothing
        pl_module.agreement.signals.listen()
        # nor need ranks ask each other at every step, which would wait for a GPU
        trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        pl_module.agreement.signals.restore()

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        pl_module.agreement.signals.restore()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: Any, optimizer: Any) -> None:
        late = time.monotonic() - self._saved_at > self.every_seconds
        pl_module.agreement.wants_save = late and trainer.is_global_zero

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        # after a resumption Lightning's own count may stand at one more
        trainer.fit_loop.epoch_loop._batches_that_stepped = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        loop, agreed, step = trainer.fit_loop, pl_module.agreement, trainer.global_step
        if not steps_now(trainer):
            return
        self.files.check()
        validates = trainer.enable_validation and loop.epoch_loop._should_check_val_fx(
            loop._data_fetcher  # type: ignore[arg-type]
        )
        # of the last step the validation is made first: no run would go on with it
        if agreed.stop and not (validates and trainer.should_stop):
            trainer._logger_connector.update_train_step_metrics()  # which would come after this
            self._stop(trainer, agreed.stop, validated=not validates)
        late = agreed.save and step > self._saved + 1
        due = late or trainer.should_stop or (self.every_steps and step % self.every_steps == 0)
        if due and not validates:
            self._save(trainer)

    def on_validation_batch_end(self, trainer: Trainer, pl_module: Any, *at: Any) -> None:
        fits = trainer.state.fn == "fit" and not trainer.sanity_checking
        loader: Any = trainer.val_dataloaders
        # the last one ends first, as no run would go on with it
        if not fits or trainer.should_stop or at[2] >= loader.batches.on_every_rank:
            return
        stop = pl_module.agreement.stops_now(trainer)
        if stop:
            self._stop(trainer, stop, validated=False)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        step = trainer.global_step
        value = step if self.monitor == "step" else trainer.callback_metrics.get(self.monitor)
        if value is not None:
            worse = float(value) * (1 if self.mode == "min" else -1)
            found = [*self.kept, (math.inf if math.isnan(worse) else worse, step)]
            self.kept = sorted(found, key=lambda one: one[0])[: self.count]
        self._save(trainer)
        stop = trainer.should_stop and pl_module.agreement.stops_now(trainer)
        if stop:
            self._end(trainer, stop)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        del checkpoint["loops"]  # made anew from the place
        checkpoint["place"] = list(self._place)
        checkpoint["step_batches"] = trainer.world_size * trainer.accumulate_grad_batches
        checkpoint["plan"] = trainer.train_dataloader.batches.plan  # type: ignore[union-attr]
        checkpoint[KEPT] = [step for _, step in self.kept]

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        place, data = Place(*checkpoint["place"]), trainer.datamodule  # type: ignore[attr-defined]
        if self.passed is not None:
            place = self.passed._replace(step=place.step)
        data.start = None
        loader, limit = data.train_dataloader(), trainer.limit_train_batches
        batches = len(loader)
        if limit is not None:
            batches = min(batches, limit if isinstance(limit, int) else int(batches * limit))
        if checkpoint["plan"] == loader.batches.plan:  # else it was settled, or is within an epoch
            place = place.settled(-(-batches // trainer.accumulate_grad_batches))
        data.start = (place.epoch, place.within, checkpoint["plan"])
        checkpoint["loops"] = place.counters(batches, trainer.accumulate_grad_batches)
        self._saved = place.step
        weights = checkpoint.get("current_model_state")  # of a run that kept a moving average
        if weights and not any(isinstance(one, WeightAveraging) for one in trainer.callbacks):  # type: ignore[attr-defined]
            trainer.strategy.load_model_state_dict({"state_dict": weights})

    def state_dict(self) -> dict[str, Any]:
        return {"kept": [list(one) for one in self.kept], "by": self._by}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on with the weights that were kept; by another measure any new ones are better."""
        same = state_dict.get("by", self._by) == self._by
        kept = [(value if same else math.inf, step) for value, step in state_dict["kept"]]
        self.kept = kept[: self.count]

    def _save(self, trainer: Trainer, validated: bool = True) -> None:
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        steps = -(-int(trainer.num_training_batches) // trainer.accumulate_grad_batches)
        self._place = Place.of(trainer, validated).settled(steps)
        self._saved, self._saved_at = trainer.global_step, time.monotonic()
        trainer.save_checkpoint(self.files.directory / f"step-{trainer.global_step:06d}.ckpt")

    def _stop(self, trainer: Trainer, signal: int, validated: bool) -> None:
        self._save(trainer, validated)
        self._end(trainer, signal)

    def _end(self, trainer: Trainer, signal: int) -> None:
        self.files.wait()
        trainer.strategy.barrier()
        raise Stopped(signal, trainer.global_step)


def _validate_between_steps(trainer: Trainer) -> None:
    """A share of an epoch from one validation to the next is a whole number of optimizer steps."""
    every: Any = trainer.val_check_batch
    together = trainer.accumulate_grad_batches
    if every < trainer.num_training_batches:
        trainer.val_check_batch = max(1, int(every) // together) * together
