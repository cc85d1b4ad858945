"""Callbacks that draw."""

from collections.abc import Callable
from pathlib import Path

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger
from matplotlib.figure import Figure

from seqattn.analysis.plots import save


class HeatmapCallback(Callback):
    """Draws the same sentence's attention after every validation of a training run.

    Args:
        draw: makes the figure from the model as it stands; None for no figure.
        directory: where pictures are written; loggers that show pictures get them too.
    """

    def __init__(self, draw: Callable[[], Figure | None], directory: Path) -> None:
        self.draw = draw
        self.directory = directory

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called by Lightning."""
        if trainer.sanity_checking or trainer.fast_dev_run or not trainer.is_global_zero:  # type: ignore[attr-defined]
            return
        figure = self.draw() if trainer.state.fn == "fit" else None
        if figure is None:
            return
        step = trainer.global_step  # which loggers count from 0
        figure.suptitle(f"{figure.get_suptitle()}, step {step:,}")
        path = save(figure, self.directory / f"cross_attention_step_{step:06d}.png")
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_figure("attention/cross", figure, step - 1)
            elif isinstance(logger, WandbLogger):
                logger.log_image("attention/cross", [str(path)], step=step - 1)
