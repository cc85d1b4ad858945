"""A training run: everything around a model and its data, from the first step to the bundle."""

import sys
import time
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, RichProgressBar
from matplotlib.figure import Figure

from seqattn.analysis.callbacks import HeatmapCallback
from seqattn.analysis.look import Sentence, look
from seqattn.cli.build import build_generator, make
from seqattn.cli.bundle import write_bundle
from seqattn.cli.summary import print_summary
from seqattn.cli.train import MONITORS
from seqattn.data.module import Seq2SeqData
from seqattn.errors import UserError
from seqattn.generation import Generator, GreedySearch
from seqattn.models.base import Seq2SeqModel
from seqattn.tasks.seq2seq import Optimization, Seq2SeqTask, Validation
from seqattn.training.averaging import average_weights
from seqattn.training.callbacks import EpochLines, SampleTexts, Throughput

Config = dict[str, Any]


class Run:
    """One training run: trainer, task and callbacks around a model and its data.

    Args:
        config: resolved.
        run_dir: where its files go.
        data: set up.
        model: initialised.
    """

    def __init__(
        self, config: Config, run_dir: Path, data: Seq2SeqData, model: Seq2SeqModel
    ) -> None:
        self.config = config
        self.run_dir = run_dir
        self.data = data
        self.model = model
        self.throughput = Throughput()
        self._texts = data.rows("val")
        # made now, since it is used only once training is over
        self.generator = build_generator(config["generation"], model)
        self.task = self._task()
        self.averaged = self._averaged()
        self.trainer = self._trainer()

    def go(self) -> None:
        """Trains, averages, measures, writes the bundle and prints the summary."""
        began = time.perf_counter()
        for logger in self.trainer.loggers:
            logger.log_hyperparams(self.config)
        last = self.run_dir / "checkpoints" / "last.ckpt"
        self.trainer.fit(
            self.task,
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
        )

    def _task(self) -> Seq2SeqTask:
        config, plan = self.config, self.config["task"]["validation"]
        optimization = Optimization(
            make(config["optimizer"]),
            make(config["schedule"]),
            config["task"]["label_smoothing"],
            make(config["task"]["teacher_forcing"]),
        )
        optimization.optimizer(self.model, fused=False)  # refuses its values before the run begins
        search = GreedySearch(make(config["generation"]["limit"]))
        validation = Validation(
            Generator(self.model, search, batch_size=256),
            make(config["task"]["scorer"]),
            self.data.tokenizer.decode_target,
            lambda: self._texts[1],
            plan["every"],
            plan["sentences"],
        )
        return Seq2SeqTask(self.model, optimization, validation)

    def _averaged(self) -> ModelCheckpoint:
        """The callback that keeps the checkpoints whose weights the bundle averages."""
        plan = self.config["checkpoint"]
        best = plan["average"] == "best"
        return ModelCheckpoint(
            dirpath=self.run_dir / "checkpoints",
            filename="weights-{step:06d}",
            monitor=plan["monitor"] if best else "step",
            mode=MONITORS[plan["monitor"]] if best else "max",
            save_top_k=plan["count"],
            save_weights_only=True,
        )

    def _trainer(self) -> Trainer:
        plan = self.config["checkpoint"]
        last = ModelCheckpoint(
            dirpath=self.run_dir / "checkpoints", filename="last", enable_version_counter=False
        )
        callbacks: list[Callback] = [self.throughput, self.averaged, last, *self._tellers()]
        if plan["patience"] is not None:
            stop = EarlyStopping(
                plan["monitor"], mode=MONITORS[plan["monitor"]], patience=plan["patience"]
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

    def _tellers(self) -> list[Callback]:
        bar = RichProgressBar() if sys.stderr.isatty() else EpochLines(self.throughput)
        return [
            bar,
            SampleTexts(self._samples, self.run_dir / "samples"),
            HeatmapCallback(self._draw, self.run_dir / "heatmaps"),
        ]

    def _samples(self) -> list[tuple[str, str, str]]:
        sources = self._texts[0]
        return [(sources[s.row], s.hypothesis, s.reference) for s in self.task.samples]

    def _draw(self) -> Figure | None:
        """The cross-attention of the first validation pair."""
        tokenizer = self.data.tokenizer
        source = tokenizer.encode_source(self._texts[0][:1])[0]
        target = tokenizer.encode_target(self._texts[1][:1])[0]
        training = self.model.training
        self.model.eval()
        figures = look(
            self.model,
            Sentence(source, tokenizer.source_pieces(source)),
            Sentence(target, tokenizer.target_pieces(target)),
            only=["cross"],
        )
        self.model.train(training)
        return figures.get("cross")

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
        self.task.validation = None
        losses = trainer.validate(self.task, datamodule=self.data, verbose=False)[0]
        scores: dict[str, Any] = {name: float(value) for name, value in losses.items()}
        count = 8 if self.config["trainer"]["fast_dev_run"] else len(self._texts[0])
        sources, references = (side[:count] for side in self._texts)
        self.model.to(self.task.device)
        found = self.generator.generate(self.data.tokenizer.encode_source(sources))
        hypotheses = self.data.tokenizer.decode_target([h[0].ids for h in found])
        for score in make(self.config["task"]["scorer"]).score(hypotheses, references):
            scores[f"val/{score.name}"] = score.value
            scores[f"val/{score.name} signature"] = score.signature
        return scores

    def _write(self, scores: Config) -> None:
        tokenizer = self.data.tokenizer
        write_bundle(self.run_dir / "model", self.config, self.model.cpu(), tokenizer, scores)
