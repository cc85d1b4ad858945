"""What `train` refuses, or says, before the first step."""

from typing import Any

from seqattn.cli.fitting import learns
from seqattn.errors import UserError

Config = dict[str, Any]
_LOSSES = {"val/loss": "min", "val/nll": "min", "val/perplexity": "min", "val/accuracy": "max"}


def monitors(config: Config) -> dict[str, str]:
    """What a checkpoint of this task can be the best by, and which way is better: min or max."""
    from seqattn.cli.build import make

    scores = {f"val/{name}": "max" for name in make(config["task"]["scorer"]).logged}
    losses = {"val/loss": "min"} if learns(config) == "spans" else _LOSSES
    return losses | scores


def check_training(config: Config) -> None:
    """Refuses what Lightning would change in silence."""
    import torch

    trainer = config["trainer"]
    precision, accelerator = str(trainer["precision"]), trainer["accelerator"]
    if precision == "16-mixed" and _on_cpu(config):
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
    monitor, every = config["checkpoint"]["monitor"], config["task"]["validation"]["every"]
    known_monitors = monitors(config)
    if monitor not in known_monitors:
        choices = ", ".join(known_monitors)
        raise UserError(f"checkpoint.monitor must be one of {choices}, got {monitor}")
    if monitor not in _LOSSES and every != 1:
        raise UserError(
            f"checkpoint.monitor={monitor} needs that score at every validation: set "
            f"task.validation.every=1, got {every}"
        )
    choice = config["checkpoint"]["average"]
    if choice not in ("best", "last"):
        raise UserError(f"checkpoint.average must be best or last, got {choice}")
    if config["checkpoint"]["count"] < 1:
        raise UserError(f"checkpoint.count must be at least 1, got {config['checkpoint']['count']}")
    patience, accumulated = config["checkpoint"]["patience"], trainer["accumulate_grad_batches"]
    if patience is not None and patience < 1:
        raise UserError(f"checkpoint.patience must be at least 1, got {patience}")
    if isinstance(accumulated, int) and accumulated < 1:
        raise UserError(f"trainer.accumulate_grad_batches must be at least 1, got {accumulated}")
    if not 0 <= config["seed"] < 1 << 32:
        raise UserError(f"seed must be from 0 to {(1 << 32) - 1}, got {config['seed']}")


def advice(config: Config) -> list[str]:
    """What would go quicker with another setting, a line each."""
    import torch

    # a private name of PyTorch: without it nothing is said
    native = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    if str(config["trainer"]["precision"]) != "bf16-mixed" or not _on_cpu(config) or native():
        return []
    return [
        "this CPU has no bfloat16 instructions and spells them out: trainer.precision=32 is "
        "much quicker here"
    ]


def _on_cpu(config: Config) -> bool:
    import torch

    accelerator = config["trainer"]["accelerator"]
    return accelerator == "cpu" or (accelerator == "auto" and not torch.cuda.is_available())


def check_lengths(data: Any, model: Any) -> None:
    """Refuses texts that the model has no positions for, before the first step meets one."""
    from seqattn.models.span import SpanModel

    if isinstance(model, SpanModel):
        limits = [model.max_source_length] * 2
        sides = [("window", "loader.window"), ("question", "loader.max_question")]
    else:
        limits = [model.max_source_length, model.max_target_length]
        sides = [("source", "loader.max_length"), ("target", "loader.max_length")]
    for (side, key), longest, limit in zip(sides, data.longest, limits, strict=True):
        if limit is not None and longest > limit:
            raise UserError(
                f"position.max_length is {limit} tokens and the longest {side} has {longest}; set "
                f"{key}={limit} to leave out what is beyond, or raise position.max_length"
            )
