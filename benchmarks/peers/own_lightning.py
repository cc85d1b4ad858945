"""Training step of this package as in its runs, under Lightning."""

from benchmarks.loops import LightningLoop
from benchmarks.peers import own
from benchmarks.transformer_models import Shape, own_transformer


class Contestant(own.Trained):
    """Contestant. Args: as `Worker.make`."""

    def loop(self, shape: Shape, precision: str) -> LightningLoop:
        """Return the model in its training loop."""
        return LightningLoop(own_transformer(shape), precision)
