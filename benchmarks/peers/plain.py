"""The model and the loop that one writes by hand around `torch.nn.Transformer`."""

from benchmarks.loops import PlainLoop
from benchmarks.peers import own
from benchmarks.transformer_models import PlainTransformer, Shape


class Contestant(own.Trained):
    """Args: as `Worker.make`."""

    def loop(self, shape: Shape, precision: str) -> PlainLoop:
        """The model in its training loop."""
        return PlainLoop(PlainTransformer(shape), precision)
