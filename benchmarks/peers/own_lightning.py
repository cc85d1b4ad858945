"""This package's training step as its runs have it, under Lightning."""

from benchmarks.loops import LightningLoop
from benchmarks.peers import own
from benchmarks.transformer_models import Shape, own_transformer


class Contestant(own.Trained):
    """Args: as `Worker.make`."""

    def loop(self, shape: Shape, precision: str) -> LightningLoop:
        """The model in its training loop."""
        return LightningLoop(own_transformer(shape), precision)
