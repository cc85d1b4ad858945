"""Training itself: from settings that are checked to a bundle that is scored."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml
from lightning import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import LambdaCallback, ModelCheckpoint, RichProgressBar

from seqattn.bundle.files import write_bundle
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.ops.memory import keep_freed_memory
from seqattn.runs.fitting import Fitting
from seqattn.runs.quiet import quieten
from seqattn.runs.run_directory import rank
from seqattn.runs.starting import begin_from, check_resumed, starting_bundle
from seqattn.runs.tables import print_table
from seqattn.runs.train import FORMAT, Training, TrainingResult
from seqattn.training.averaging import average_weights
from seqattn.training.callbacks import EpochLines


def fit(run: Training) -> TrainingResult:
    """Trains on this process's share of the batches; the first rank writes the files.

    Raises:
        UserError: where the data cannot be read, or a start does not fit.
    """
    quieten()
    keep_freed_memory()
    home = Path(run.run_dir)
    tokenizer = None
    if run.resume is not None:
        check_resumed(run)
        tokenizer = Tokenizer.load(home / "tokenizer")
    start, run = starting_bundle(run)
    fitting = run.task.fitting(run, start.tokenizer if start else tokenizer)
    tokenizer = fitting.data.tokenizer
    seed_everything(run.seed, verbose=False)
    fitting.make_model()
    if start is not None:
        begin_from(start, fitting.model, run)
    fitting.data.setup("fit")
    fitting.make_task()
    _check_lengths(fitting)
    fitted = Fit(run, fitting)
    if rank() == 0:
        reports: list[str] = getattr(run.data, "report", list)()  # of what was mended while reading
        for line in [*run.trainer.advice(), *reports, *fitting.data.report()]:
            print(line, file=sys.stderr)
        tokenizer.save(home / "tokenizer")
    return fitted.run()


def _check_lengths(fitting: Fitting) -> None:
    """Refuses texts that the model has no positions for, before the first step meets one."""
    for side, key, longest, limit in fitting.longest():
        if limit is not None and longest > limit:
            raise UserError(
                f"position.max_length is {limit} tokens and the longest {side} has {longest}; set "
                f"{key}={limit} to leave out what is beyond, or raise position.max_length"
            )


class Fit:
    """Training of a model that is ready: trainer and callbacks, average, scores, bundle.

    Args:
        run: its settings.
        fitting: its data, model and task.
    """

    def __init__(self, run: Training, fitting: Fitting) -> None:
        self.settings, self.fitting = run, fitting
        self.home = Path(run.run_dir)
        mode = run.task.monitors[run.checkpoint.monitor]
        directory = self.home / "checkpoints"
        self.kept = run.checkpoint.kept(directory, mode)
        self.monitored = Monitored(run.checkpoint.monitor, mode)
        last = ModelCheckpoint(dirpath=directory, filename="last", enable_version_counter=False)
        # once training begins: a resumption that is refused leaves the run's own settings
        settings = LambdaCallback(on_train_start=lambda trainer, task: self._keep_settings())
        throughput = fitting.throughput
        bar = RichProgressBar() if sys.stderr.isatty() else EpochLines(throughput)
        callbacks = [throughput, self.kept, last, bar, *fitting.callbacks(self.home)]
        callbacks += [*run.checkpoint.stopping(mode), self.monitored, settings]
        self.trainer = run.trainer.trainer(callbacks, self._loggers(), self.home)

    def _loggers(self) -> list[Any]:
        try:
            return [make() for make in self.settings.logger.values()]
        except ImportError as error:  # Lightning has some that need packages of their own
            raise UserError(f"logger: {error}") from error

    def run(self) -> TrainingResult:
        """Trains, averages, measures, writes the bundle and prints the summary."""
        began = time.perf_counter()
        for logger in self.trainer.loggers:
            logger.log_hyperparams(self.settings.settings)
        self._train()
        seconds = time.perf_counter() - began
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()  # what follows is the first rank's alone
        steps, bundle = self.trainer.global_step, self.home / "model"
        best = self.monitored.best
        if not self.trainer.is_global_zero:
            return TrainingResult(self.home, bundle, best, steps, {})
        weights = self._load_average()
        scores = self._final_scores()
        self._write(bundle, scores)
        self._print(weights, scores, seconds)
        return TrainingResult(self.home, bundle, best, steps, scores)

    def _train(self) -> None:
        last = self.home / "checkpoints" / "last.ckpt" if self.settings.resume else None
        self.trainer.fit(
            self.fitting.task, datamodule=self.fitting.data, ckpt_path=last,
            weights_only=True if last else None,
        )  # fmt: skip

    def _keep_settings(self) -> None:
        if rank() > 0:
            return
        settings = {"format": FORMAT, **self.settings.settings}
        for name, content in (("config", settings), ("overrides", list(self.settings.overrides))):
            text = yaml.safe_dump(content, sort_keys=False)
            (self.home / f"{name}.yaml").write_text(text, encoding="utf-8")

    def _load_average(self) -> str:
        """Puts the averaged weights into the model; says which checkpoints they are of."""
        kept = sorted(self.kept.best_k_models)
        if not kept:
            return "the last step"
        prefix = "model."
        states = (
            torch.load(path, map_location="cpu", weights_only=True)["state_dict"] for path in kept
        )
        mean = average_weights(
            {n.removeprefix(prefix): w for n, w in state.items() if n.startswith(prefix)}
            for state in states
        )
        self.fitting.model.load_state_dict(mean)
        steps = ", ".join(Path(path).stem.partition("step=")[2].lstrip("0") for path in kept)
        return f"step {steps}" if len(kept) == 1 else f"the mean of steps {steps}"

    def _final_scores(self) -> dict[str, Any]:
        """Loss of the averaged weights on the validation split, and its scores by generation."""
        hasty = bool(self.settings.trainer.fast_dev_run)
        trainer = Trainer(
            accelerator=self.settings.trainer.accelerator,
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            limit_val_batches=1 if hasty else 1.0,
        )
        self.fitting.task.validation = None  # from here on validation gives losses alone
        losses = trainer.validate(self.fitting.task, datamodule=self.fitting.data, verbose=False)[0]
        scores: dict[str, Any] = {name: float(value) for name, value in losses.items()}
        return scores | self.fitting.scores(8 if hasty else None)

    def _write(self, bundle: Path, scores: dict[str, Any]) -> None:
        run = replace(self.settings, generation=self.fitting.generation)
        config = run.settings
        write_bundle(bundle, config, self.fitting.model.cpu(), self.fitting.data.tokenizer, scores)

    def _print(self, weights: str, scores: dict[str, Any], seconds: float) -> None:
        speed, unit = self.fitting.throughput.summary(), self.fitting.throughput.unit
        rows = {"steps": f"{self.trainer.global_step:,}", "weights kept": weights}
        for name, value in scores.items():
            rows[name] = f"{value:.4g}" if isinstance(value, float) else str(value)
        minutes, rest = divmod(round(seconds), 60)
        rows["time"] = f"{minutes} min {rest} s"
        rows[f"{unit} a second"] = f"{speed['tokens_per_second']:,.0f}"
        rows["padding"] = f"{speed['padding_share']:.1%}"
        rows["waiting for data"] = f"{speed['waiting_share']:.1%}"
        rows["bundle"] = str(self.home / "model")
        print_table("Training", rows)


class Monitored(Callback):
    """The best value of a logged number so far, which a sweeper is given.

    Args:
        name: of the number.
        mode: which way is better, min or max.
    """

    def __init__(self, name: str, mode: str) -> None:
        self.name, self.better = name, min if mode == "min" else max
        self.best: float | None = None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called by Lightning."""
        if trainer.state.fn != "fit" or self.name not in trainer.callback_metrics:
            return
        value = float(trainer.callback_metrics[self.name])
        self.best = value if self.best is None else self.better(self.best, value)

    def state_dict(self) -> dict[str, Any]:
        """Kept in a checkpoint."""
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.best = state_dict["best"]
