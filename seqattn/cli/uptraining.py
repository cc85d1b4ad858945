"""A short further training of a converted bundle."""

import sys
from typing import Any

import torch
from lightning import Trainer, seed_everything

from seqattn.cli.build import build_data, make
from seqattn.cli.bundle import TextBundle
from seqattn.cli.quiet import quieten
from seqattn.tasks.seq2seq import Optimization, Seq2SeqTask
from seqattn.training.schedules import constant

Config = dict[str, Any]


def uptrain(bundle: TextBundle, settled: Config) -> None:
    """Trains a bundle's model in place for `uptrain_steps` optimizer steps.

    On the training split and by the optimizer, batches and loss of its own configuration, at the
    highest learning rate of its schedule after a warm-up over a tenth of the steps.

    Args:
        bundle: its model is trained where it stands.
        settled: of `convert`: data, device, cache_dir, uptrain_steps.

    Raises:
        UserError: where the data cannot be read.
    """
    config, steps = bundle.config, settled["uptrain_steps"]
    cache_dir = settled["cache_dir"] or config.get("cache_dir")
    data = build_data({**config, "data": settled["data"], "cache_dir": cache_dir}, bundle.tokenizer)
    data.setup("fit")
    quieten()
    seed_everything(int(config["seed"]), verbose=False)
    task = Seq2SeqTask(bundle.model, _optimization(config, steps))
    trainer = _trainer(config["trainer"], settled["device"], steps)
    print(f"uptraining for {steps:,} steps", file=sys.stderr)
    bundle.model.train()
    trainer.fit(task, datamodule=data)
    bundle.model.to(settled["device"]).eval()


def _optimization(config: Config, steps: int) -> Optimization:
    schedule = make(config["schedule"])
    warmup = int(config["schedule"].get("warmup_steps", 1))
    peak, rise = schedule(max(0, warmup - 1)), constant(max(1, steps // 10))
    return Optimization(
        make(config["optimizer"]),
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
