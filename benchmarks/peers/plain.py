"""Handwritten model and training loop around `torch.nn.Transformer`."""

from benchmarks.loops import PlainLoop
from benchmarks.peers import own
from benchmarks.transformer_models import PlainTransformer, Shape


class Contestant(own.Trained):
    """Contestant. Args: as `Worker.make`."""

    def loop(self, shape: Shape, precision: str) -> PlainLoop:
        """Return the model in its training loop."""
        return PlainLoop(PlainTransformer(shape), precision)
