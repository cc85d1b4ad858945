"""Pictures and health of the attention at each validation of a training run."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from lightning import Callback, LightningModule, Trainer
from matplotlib.figure import Figure

from seqattn.extras.pictures.health import AttentionHealth
from seqattn.extras.pictures.of_bundle import pictures_of
from seqattn.extras.pictures.plots import save
from seqattn.training.run_logger import run_loggers
from seqattn.training.setup import Setup


def watch_attention(setup: Setup, *, health: bool = True) -> list[Callback]:
    """Return callbacks that draw the attention in one sentence and log statistics of its heads.

    Args:
        setup: setup of a training run.
        health: True to log entropy, mass on `</s>`, dead and uniform heads of every attention, for
            the first sentences of the validation split.
    """
    pictures, data = pictures_of(setup.bundle), setup.data
    callbacks: list[Callback] = [
        HeatmapCallback(
            lambda: pictures.sample(setup.rows, data.row_numbers("val")),
            Path(setup.run.run_dir) / "heatmaps",
        )
    ]
    if health:
        callbacks.append(AttentionHealth(partial(pictures.forward_pass, data.first("val"))))
    return callbacks


class HeatmapCallback(Callback):
    """Draw the attention in the same sentence after every validation.

    Args:
        draw: draws the figure with the current model; returns None for no figure.
        directory: for the figures; loggers that show figures get them, too.
    """

    def __init__(self, draw: Callable[[], Figure | None], directory: Path) -> None:
        self.draw = draw
        self.directory = directory

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or trainer.fast_dev_run or not trainer.is_global_zero:  # type: ignore[attr-defined]
            return
        figure = self.draw() if trainer.state.fn == "fit" else None
        if figure is None:
            return
        step = trainer.global_step  # loggers count steps from 0
        figure.suptitle(f"{figure.get_suptitle()}, step {step:,}")
        save(figure, self.directory / f"cross_attention_step_{step:06d}.png")
        for logger in run_loggers(trainer.loggers):
            logger.show_figure("attention/cross", figure, step - 1)
