"""A training run: everything around a model and its data, from the first step to the bundle."""

import sys
import time
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, RichProgressBar
from torch import nn

from seqattn.cli.build import make
from seqattn.cli.bundle_files import write_bundle
from seqattn.cli.fitting import learns
from seqattn.cli.job import Job
from seqattn.cli.pairs import PairsJob
from seqattn.cli.spans import SpansJob
from seqattn.cli.summary import print_summary
from seqattn.cli.train_checks import monitors
from seqattn.data.module import Seq2SeqData
from seqattn.data.span_module import SpanData
from seqattn.errors import UserError
from seqattn.models.base import Seq2SeqModel
from seqattn.models.span import SpanModel
from seqattn.training.averaging import average_weights
from seqattn.training.callbacks import EpochLines

Config = dict[str, Any]
RunData = Seq2SeqData | SpanData


class Run:
    """One training run: trainer, task and callbacks around a model and its data.

    Args:
        config: resolved.
        run_dir: where its files go.
        data: set up.
        model: initialised.
    """

    def __init__(self, config: Config, run_dir: Path, data: RunData, model: nn.Module) -> None:
        self.config = config
        self.run_dir = run_dir
        self.data = data
        self.model = model
        self.job = build_job(config, data, model)
        self.throughput = self.job.throughput
        self.averaged = self._averaged()
        self.trainer = self._trainer()

    def go(self) -> None:
        """Trains, averages, measures, writes the bundle and prints the summary."""
        began = time.perf_counter()
        for logger in self.trainer.loggers:
            logger.log_hyperparams(self.config)
        last = self.run_dir / "checkpoints" / "last.ckpt"
        self.trainer.fit(
            self.job.task,
            datamodule=self.data,
            ckpt_path=last if self.config["resume"] else None,
            weights_only=False if self.config["resume"] else None,
        )
        seconds = time.perf_counter() - began
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()  # what follows is the first rank's alone
        if not self.trainer.is_global_zero:
            return
        best = self._load_average()
        scores = self._final_scores()
        self._write(scores)
        print_summary(
            run_dir=self.run_dir,
            steps=self.trainer.global_step,
            best=best,
            scores=scores,
            seconds=seconds,
            speed=self.throughput.summary(),
            unit=self.throughput.unit,
        )

    def _averaged(self) -> ModelCheckpoint:
        """The callback that keeps the checkpoints whose weights the bundle averages."""
        plan = self.config["checkpoint"]
        best = plan["average"] == "best"
        return ModelCheckpoint(
            dirpath=self.run_dir / "checkpoints",
            filename="weights-{step:06d}",
            monitor=plan["monitor"] if best else "step",
            mode=monitors(self.config)[plan["monitor"]] if best else "max",
            save_top_k=plan["count"],
            save_weights_only=True,
        )

    def _trainer(self) -> Trainer:
        plan = self.config["checkpoint"]
        last = ModelCheckpoint(
            dirpath=self.run_dir / "checkpoints", filename="last", enable_version_counter=False
        )
        bar = RichProgressBar() if sys.stderr.isatty() else EpochLines(self.throughput)
        tellers = self.job.tellers(self.run_dir)
        callbacks: list[Callback] = [self.throughput, self.averaged, last, bar, *tellers]
        if plan["patience"] is not None:
            stop = EarlyStopping(
                plan["monitor"],
                mode=monitors(self.config)[plan["monitor"]],
                patience=plan["patience"],
            )
            callbacks.append(stop)
        node = {**self.config["trainer"]}
        if isinstance(node["val_check_interval"], int):
            node["check_val_every_n_epoch"] = None  # steps run on over the ends of epochs
        loggers = [make(logger) for logger in (self.config.get("logger") or {}).values()]
        try:
            trainer: Trainer = make(node)(
                logger=loggers,
                callbacks=callbacks,
                default_root_dir=str(self.run_dir),
                use_distributed_sampler=False,
                num_sanity_val_steps=0,
                enable_model_summary=False,
                enable_progress_bar=sys.stderr.isatty(),
            )
        except (MisconfigurationException, ValueError) as error:
            raise UserError(f"trainer: {' '.join(str(error).split())}") from error
        return trainer

    def _load_average(self) -> str:
        """Puts the averaged weights into the model; says which checkpoints they are of."""
        kept = sorted(self.averaged.best_k_models)
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
        self.model.load_state_dict(mean)
        steps = ", ".join(Path(path).stem.partition("step=")[2].lstrip("0") for path in kept)
        return f"step {steps}" if len(kept) == 1 else f"the mean of steps {steps}"

    def _final_scores(self) -> dict[str, Any]:
        """Loss of the averaged weights on the validation split, and its scores by generation."""
        trainer = Trainer(
            accelerator=self.config["trainer"]["accelerator"],
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            limit_val_batches=1 if self.config["trainer"]["fast_dev_run"] else 1.0,
        )
        self.job.quiet()
        losses = trainer.validate(self.job.task, datamodule=self.data, verbose=False)[0]
        scores: dict[str, Any] = {name: float(value) for name, value in losses.items()}
        return scores | self.job.scores(8 if self.config["trainer"]["fast_dev_run"] else None)

    def _write(self, scores: Config) -> None:
        tokenizer = self.data.tokenizer
        write_bundle(self.run_dir / "model", self.config, self.model.cpu(), tokenizer, scores)


def build_job(config: Config, data: RunData, model: nn.Module) -> Job:
    """The job of a resolved configuration."""
    if learns(config) == "spans":
        assert isinstance(data, SpanData)
        assert isinstance(model, SpanModel)
        return SpansJob(config, data, model)
    assert isinstance(data, Seq2SeqData)
    assert isinstance(model, Seq2SeqModel)
    return PairsJob(config, data, model)
