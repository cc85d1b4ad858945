"""A watch over a search: what it has said so far, and whether anybody still waits for it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from torch import Tensor, nn

from seqattn.generation.base import Search, listed
from seqattn.generation.processors import Processor

Left = Callable[[], bool]
"""Whether the clients have gone for whom the work is done."""


class Gone(Exception):
    """Nobody waits for the work any more."""


class Watch(Processor):
    """Forbids nothing: ends the search at its next step when its clients have gone.

    Args:
        left: asked at each step.
        tell: told the tokens of the best hypothesis.
    """

    def __init__(self, left: Left, tell: Callable[[list[int]], object] | None = None) -> None:
        self.left, self.tell = left, tell

    def __call__(self, scores: Tensor, said: Tensor) -> None:
        if self.left():
            raise Gone
        if self.tell is not None and said.shape[1]:
            self.tell(said[0].tolist())


def watched(search: Search, watch: Watch) -> Search:
    """The same search, with one more processor."""
    return replace(search, processors=[*listed(search.processors), watch])


@contextmanager
def passes_watched(model: nn.Module, left: Left) -> Iterator[None]:
    """Within the block a pass through the model ends with `Gone` when its clients have gone."""

    def check(*given: object) -> None:
        if left():
            raise Gone

    with ExitStack() as stack:
        for part in model.modules():
            stack.enter_context(part.register_forward_pre_hook(check))
        yield
