"""A short further training of a converted bundle."""

import sys
from collections.abc import Mapping
from typing import Any

import torch
from lightning import Trainer, seed_everything

from seqattn.bundle.bundle import TextBundle
from seqattn.bundle.nodes import PARTIAL, build
from seqattn.data.module import Seq2SeqData
from seqattn.data.squad import AnswerPairs
from seqattn.runs.quiet import quieten
from seqattn.runs.task_options import task_class
from seqattn.tasks.base import Optimization
from seqattn.tasks.seq2seq import Seq2SeqTask
from seqattn.training.schedules import constant

Config = Mapping[str, Any]


def uptrain(bundle: TextBundle, data: Any, steps: int, device: str, cache_dir: str | None) -> None:
    """Trains a bundle's model in place for some optimizer steps.

    On the training split and by the optimizer, batches and loss of its own configuration, at the
    highest learning rate of its schedule after a warm-up over a tenth of the steps.

    Args:
        bundle: its model is trained where it stands.
        data: the source.
        steps: how many.
        device: where.
        cache_dir: of the data; None for the bundle's own.

    Raises:
        UserError: where the data cannot be read.
    """
    config = bundle.config
    source = AnswerPairs(data) if task_class(config).reads == "questions" else data
    loader, tokenizer = (build(config[part], part) for part in ("loader", "tokenizer"))
    cache, seed = cache_dir or config.get("cache_dir"), int(config["seed"])
    module = Seq2SeqData(source, tokenizer, loader, cache, seed, bundle.tokenizer)
    module.setup("fit")
    quieten()
    seed_everything(seed, verbose=False)
    task = Seq2SeqTask(bundle.model, _optimization(config, steps))
    trainer = _trainer(config["trainer"], device, steps)
    print(f"uptraining for {steps:,} steps", file=sys.stderr)
    bundle.model.train()
    trainer.fit(task, datamodule=module)
    bundle.model.to(device).eval()


def _optimization(config: Config, steps: int) -> Optimization:
    schedule = build({**config["schedule"], PARTIAL: True}, "schedule")()
    warmup = int(config["schedule"].get("warmup_steps", 1))
    peak, rise = schedule(max(0, warmup - 1)), constant(max(1, steps // 10))
    return Optimization(
        build(config["optimizer"], "optimizer"),
        lambda step: peak * rise(step),
        config["task"]["label_smoothing"],
    )


def _trainer(node: Config, device: str, steps: int) -> Trainer:
    on_cpu = device == "cpu"
    half = node["precision"] == "16-mixed"  # which a CPU does not have
    return Trainer(
        accelerator="cpu" if on_cpu else "gpu",
        devices=1 if on_cpu else [torch.device(device).index or 0],
        max_steps=steps,
        max_epochs=-1,
        precision="32" if on_cpu and half else node["precision"],
        gradient_clip_val=node["gradient_clip_val"],
        accumulate_grad_batches=node["accumulate_grad_batches"],
        limit_val_batches=0,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
