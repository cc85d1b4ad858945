"""Short further training of a converted bundle."""

import sys
from dataclasses import fields, replace
from typing import Any

import torch
from lightning import seed_everything

from seqattn.bundle.bundle import Bundle
from seqattn.data.module import Seq2SeqData
from seqattn.ops.cross_entropy import LossTerms
from seqattn.settings.nodes import PARTIAL, build
from seqattn.training.lightning_trainer import made_trainer
from seqattn.training.schedules import constant
from seqattn.training.setup import join_of
from seqattn.training.task_options import task_class
from seqattn.training.tasks.seq2seq import Seq2SeqTask
from seqattn.training.tasks.settings import Optimization


def uptrain(bundle: Bundle, data: Any, steps: int, device: str, cache_dir: str | None) -> None:
    """Train a bundle's model in place for a number of optimizer steps.

    Uses the training split, and the optimizer, batches and loss of the bundle's configuration, at
    the highest learning rate of its schedule after a warm-up over a tenth of the steps.

    Args:
        bundle: the bundle whose model is trained.
        data: source of the training data.
        steps: number of optimizer steps.
        device: device to train on.
        cache_dir: cache directory of the data; None for the bundle's own.

    Raises:
        UserError: if the data cannot be read.
    """
    config, seed = bundle.config, int(bundle.config["seed"])
    loader, tokenizer = (build(config[part], part) for part in ("loader", "tokenizer"))
    source, cache = task_class(config).source(data), cache_dir or config.get("cache_dir")
    join = join_of(source, tokenizer, loader)
    module = Seq2SeqData(source, tokenizer, loader, cache, seed, bundle.tokenizer, **join)
    module.load()
    seed_everything(seed, verbose=False)
    schedule = build({**config["schedule"], PARTIAL: True}, "schedule")()
    warmup = int(config["schedule"].get("warmup_steps", 1))
    peak, rise = schedule(max(0, warmup - 1)), constant(max(1, steps // 10))
    names = {term.name for term in fields(LossTerms)}
    on_cpu = device == "cpu"
    options = build(config["trainer"], "trainer").alone(limit_val_batches=0)
    task = Seq2SeqTask(
        bundle.model,
        Optimization(
            build(config["optimizer"], "optimizer"),
            lambda step: peak * rise(step),
            clip=options.gradient_clip_val,
            terms=LossTerms(**{name: x for name, x in config["task"].items() if name in names}),
        ),
    )
    options = replace(
        options,
        accelerator="cpu" if on_cpu else "gpu",
        devices=1 if on_cpu else [torch.device(device).index or 0],
        max_steps=steps,
        max_epochs=-1,
        precision=32 if on_cpu and options.precision == "16-mixed" else options.precision,
    )
    module.rank_batches = options.rank_batches(loader.step_batches)
    print(f"uptraining for {steps:,} steps", file=sys.stderr)
    bundle.model.train()
    trainer = made_trainer(options, bundle.path)
    trainer.fit(task, *(module.loader(name, trainer) for name in ("train", "val")))
    bundle.model.to(device).eval()
