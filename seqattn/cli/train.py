"""`train`: from a configuration to a bundle."""

import logging
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from seqattn.cli.config import compose_config, plain, require_values
from seqattn.cli.run_dir import choose_run_dir, claimed
from seqattn.errors import UserError

if TYPE_CHECKING:
    from lightning import Callback, Trainer
    from matplotlib.figure import Figure

    from seqattn.data.module import Seq2SeqData
    from seqattn.tasks.seq2seq import Seq2SeqTask

Config = dict[str, Any]


def train(overrides: Sequence[str]) -> None:
    """Runs one training from the user's overrides."""
    overrides = _with_saved(overrides)
    config = compose_config("train", overrides)
    require_values(config)
    run_dir = choose_run_dir(config.name, config.run_dir, config.resume)
    config.run_dir = str(run_dir)
    settled = plain(config)
    _check(settled)
    _quieten()
    from seqattn.cli import build  # torch and Lightning take seconds to import

    with claimed(run_dir):
        try:
            data = build.build_data(settled)
            tokenizer = data.tokenizer
            model = _seeded_model(settled, tokenizer)
            data.setup("fit")
        except UserError:
            _remove_if_empty(run_dir)
            raise
        for line in data.report():
            print(line, file=sys.stderr)
        _keep_config(run_dir, settled, overrides)
        Run(settled, run_dir, data, model).go()


def _with_saved(overrides: Sequence[str]) -> list[str]:
    """With `resume=RUN`: what that run was started with, then what is new."""
    run = next((o.partition("=")[2] for o in overrides if o.startswith("resume=")), "null")
    if run == "null":
        return list(overrides)
    saved = Path(run).expanduser() / "overrides.yaml"
    if not saved.is_file():
        raise UserError(f"resume={run} is no run: {saved} is not there")
    before = yaml.safe_load(saved.read_text(encoding="utf-8"))
    return [*(o for o in before if not o.startswith(("run_dir=", "resume="))), *overrides]


def _check(config: Config) -> None:
    """Refuses what Lightning would change in silence."""
    import torch

    precision, accelerator = str(config["trainer"]["precision"]), config["trainer"]["accelerator"]
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not torch.cuda.is_available())
    if precision == "16-mixed" and on_cpu:
        raise UserError(
            "trainer.precision=16-mixed needs a GPU; use 32 (quickest) or bf16-mixed on a CPU"
        )
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise UserError("trainer=gpu finds no GPU here; use trainer=cpu")
    known = ("32", "32-true", "bf16-mixed", "16-mixed")
    if precision not in known:
        raise UserError(
            f"trainer.precision must be one of 32, bf16-mixed, 16-mixed, got {precision}"
        )
    choice = config["checkpoint"]["average"]
    if choice not in ("best", "last"):
        raise UserError(f"checkpoint.average must be best or last, got {choice}")
    if config["checkpoint"]["count"] < 1:
        raise UserError(f"checkpoint.count must be at least 1, got {config['checkpoint']['count']}")


def _quieten() -> None:
    """Leaves out what libraries print that a person training a model need not act on."""
    import lightning  # noqa: F401  # it sets the levels of its loggers when it is imported

    for name in ("lightning.pytorch", "lightning.fabric", "pytorch_lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for message in (
        ".*does not have many workers.*",
        ".*litlogger.*",
        ".*Starting from v1.9.0.*",
        ".*isinstance.treespec.*",
        ".*lr_scheduler.step.*",
        ".*You are trying to `self.log.*",
    ):
        warnings.filterwarnings("ignore", message=message)


def _seeded_model(config: Config, tokenizer: Any) -> Any:
    from lightning import seed_everything

    from seqattn.cli.build import build_model
    from seqattn.training.memory import keep_freed_memory

    keep_freed_memory()
    seed_everything(int(config["seed"]), verbose=False)
    return build_model(config, tokenizer)


def _remove_if_empty(run_dir: Path) -> None:
    (run_dir / ".lock").unlink(missing_ok=True)
    for path in (run_dir, *run_dir.parents):
        if path == Path() or not path.is_dir() or any(path.iterdir()):
            return
        path.rmdir()


def _keep_config(run_dir: Path, config: Config, overrides: Sequence[str]) -> None:
    written = yaml.safe_dump(config, sort_keys=False)
    (run_dir / "config.yaml").write_text(written, encoding="utf-8")
    (run_dir / "overrides.yaml").write_text(yaml.safe_dump(list(overrides)), encoding="utf-8")


class Run:
    """One training run: trainer, task and callbacks around a model and its data.

    Args:
        config: resolved.
        run_dir: where its files go.
        data: set up.
        model: initialised.
    """

    def __init__(self, config: Config, run_dir: Path, data: "Seq2SeqData", model: Any) -> None:
        from seqattn.training.callbacks import Throughput

        self.config = config
        self.run_dir = run_dir
        self.data = data
        self.model = model
        self.throughput: Throughput = Throughput()
        self.task = self._task()
        self.averaged = self._averaged()
        self.trainer = self._trainer()

    def go(self) -> None:
        """Trains, averages, measures, writes the bundle and prints the summary."""
        from seqattn.cli.summary import print_summary

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

    def _task(self) -> "Seq2SeqTask":
        from seqattn.cli.build import make
        from seqattn.generation import Generator, GreedySearch
        from seqattn.tasks.seq2seq import Optimization, Seq2SeqTask, Validation

        config, plan = self.config, self.config["task"]["validation"]
        optimization = Optimization(
            make(config["optimizer"]), make(config["schedule"]), config["task"]["label_smoothing"]
        )
        search = GreedySearch(make(config["generation"]["limit"]))
        validation = Validation(
            Generator(self.model, search, batch_size=256),
            make(config["task"]["scorer"]),
            self.data.tokenizer.decode_target,
            lambda: self._texts[1],
            plan["every"],
            plan["sentences"],
        )
        self._texts = self.data.rows("val")
        return Seq2SeqTask(self.model, optimization, validation)

    def _averaged(self) -> Any:
        """The callback that keeps the checkpoints whose weights the bundle averages."""
        from lightning.pytorch.callbacks import ModelCheckpoint

        plan = self.config["checkpoint"]
        best = plan["average"] == "best"
        return ModelCheckpoint(
            dirpath=self.run_dir / "checkpoints",
            filename="weights-{step:06d}",
            monitor=plan["monitor"] if best else "step",
            mode=plan["mode"] if best else "max",
            save_top_k=plan["count"],
            save_weights_only=True,
        )

    def _trainer(self) -> "Trainer":
        from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

        from seqattn.cli.build import make

        plan = self.config["checkpoint"]
        last = ModelCheckpoint(
            dirpath=self.run_dir / "checkpoints", filename="last", enable_version_counter=False
        )
        callbacks: list[Callback] = [self.throughput, self.averaged, last, *self._tellers()]
        if plan["patience"] is not None:
            stop = EarlyStopping(plan["monitor"], mode=plan["mode"], patience=plan["patience"])
            callbacks.append(stop)
        node = {**self.config["trainer"]}
        if isinstance(node["val_check_interval"], int):
            node["check_val_every_n_epoch"] = None  # steps run on over the ends of epochs
        loggers = [make(logger) for logger in (self.config["logger"] or {}).values()]
        trainer: Trainer = make(node)(
            logger=loggers,
            callbacks=callbacks,
            default_root_dir=str(self.run_dir),
            use_distributed_sampler=False,
            num_sanity_val_steps=0,
            enable_model_summary=False,
            enable_progress_bar=sys.stderr.isatty(),
        )
        return trainer

    def _tellers(self) -> "list[Callback]":
        from lightning.pytorch.callbacks import RichProgressBar

        from seqattn.analysis.callbacks import HeatmapCallback
        from seqattn.training.callbacks import EpochLines, SampleTexts

        bar = RichProgressBar() if sys.stderr.isatty() else EpochLines(self.throughput)
        return [
            bar,
            SampleTexts(self._samples, self.run_dir / "samples"),
            HeatmapCallback(self._draw, self.run_dir / "heatmaps"),
        ]

    def _samples(self) -> list[tuple[str, str, str]]:
        sources = self._texts[0]
        return [(sources[s.row], s.hypothesis, s.reference) for s in self.task.samples]

    def _draw(self) -> "Figure | None":
        """The cross-attention of the first validation pair."""
        from seqattn.analysis.look import Sentence, look

        tokenizer = self.data.tokenizer
        source = tokenizer.encode_source(self._texts[0][:1])[0]
        target = tokenizer.encode_target(self._texts[1][:1])[0]
        training = self.model.training
        self.model.eval()
        figures = look(
            self.model,
            Sentence(source, tokenizer.source_pieces(source)),
            Sentence(target, tokenizer.target_pieces(target)),
        )
        self.model.train(training)
        return figures.get("cross")

    def _load_average(self) -> str:
        """Puts the averaged weights into the model; says which checkpoints they are of."""
        import torch

        from seqattn.training.averaging import average_weights

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
        from lightning import Trainer

        from seqattn.cli.build import build_generator, make

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
        generator = build_generator(self.config["generation"], self.model.to(self.task.device))
        found = generator.generate(self.data.tokenizer.encode_source(sources))
        hypotheses = self.data.tokenizer.decode_target([h[0].ids for h in found])
        for score in make(self.config["task"]["scorer"]).score(hypotheses, references):
            scores[f"val/{score.name}"] = score.value
            scores[f"val/{score.name} signature"] = score.signature
        return scores

    def _write(self, scores: Config) -> None:
        from seqattn.cli.bundle import write_bundle

        tokenizer = self.data.tokenizer
        write_bundle(self.run_dir / "model", self.config, self.model.cpu(), tokenizer, scores)
