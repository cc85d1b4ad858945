"""Search of a request: built once, limited, and cancelled with its client."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqattn.bundle.bundle import Bundle
from seqattn.errors import UserError
from seqattn.extras.serve.limits import TooMuch
from seqattn.extras.serve.schemas import SearchSettings
from seqattn.generation.base import Search, listed
from seqattn.generation.constraints import Constraints
from seqattn.generation.generator import line_index
from seqattn.generation.processors import NoRepeatNgram, Processor

_ROWS = 1_024  # maximum hypotheses extended at once, each with scores over the vocabulary


def search_for(bundle: Bundle, request: str | SearchSettings | None, n_best: int) -> Any:
    """Build a single-process search that returns `n_best` different outputs.

    Raises:
        UserError: if a search or a setting is unknown, or unsuitable for this bundle.
    """
    if not isinstance(request, SearchSettings):
        request = SearchSettings(name=request)
    settings = request.model_dump(exclude_none=True)
    name, ngram = settings.pop("name", None), settings.pop("no_repeat_ngram", None)
    search = bundle.search(name, **settings).giving(n_best)
    if not isinstance(search, Search):
        if ngram is not None:
            raise UserError("this search does not support no_repeat_ngram; remove it")
        return search
    if ngram is not None:
        search = replace(search, processors=[*listed(search.processors), NoRepeatNgram(ngram)])
    rows = max(1, _ROWS // search.beams)
    return replace(search, workers=1, batch_size=min(search.batch_size or rows, rows))


def check_target(search: Search, sizes: Sequence[int], longest: int | None, most: int) -> None:
    """Raise TooMuch if the hypotheses of all sources may have too many target tokens.

    Args:
        search: search with its limit.
        sizes: tokens of each source.
        longest: maximum output length of the model, None if its positions are unlimited.
        most: `Limits.target_tokens`.

    Raises:
        TooMuch: if there are more than `most`.
    """
    lengths = search.limit.of(torch.tensor([size for size in sizes if size]), longest)
    count = search.beams * int(lengths.sum())
    if count > most:
        raise TooMuch(
            f"the hypotheses of a request may have at most {most:,} tokens, got up to {count:,}; "
            "split it, or request fewer or shorter hypotheses"
        )


class Input(NamedTuple):
    """Text prepared for a search.

    Args:
        windows: ids of its source, in one window or several.
        place: index in the request.
        line: its number in a text of several lines, from 0; None for a whole text.
        search: the search.
        constraints: constraints on its outputs; None for none.
        text: the text.
    """

    windows: list[list[int]]
    place: int
    line: int | None
    search: Search
    constraints: Constraints | None
    text: str

    @property
    def drawn_by(self) -> int:
        """Index by which random numbers are drawn."""
        return line_index(self.place, self.line or 0)

    @property
    def size(self) -> int:
        """Number of source tokens."""
        return sum(map(len, self.windows))

    @property
    def longest(self) -> list[int]:
        """Longest window."""
        return max(self.windows, key=len)


Left = Callable[[], bool]
"""Function that returns True if all clients of the work have disconnected."""


class Gone(Exception):
    """Raised when all clients of the work have disconnected."""


class Event(NamedTuple):
    """Partial output of an input, or of a line of it; `best` if a later event may replace it."""

    place: int
    line: int | None
    ids: "array[int]"
    best: bool


OnEvent = Callable[[Event], None]


class Watch(Processor):
    """Processor without constraints that ends the search when its clients have disconnected.

    Args:
        left: called at each step; returns True if the clients have disconnected.
        on_output: callback with the tokens of the best hypothesis.
        needs: what a request needs from its search besides outputs, such as "streams".
    """

    def __init__(
        self, left: Left, on_output: Callable[[list[int]], object] | None = None, needs: str = ""
    ) -> None:
        self.left, self.on_output, self.needs = left, on_output, needs
        self.constrains = bool(needs)  # then no other engine can run the search

    def __str__(self) -> str:
        return self.needs

    def __call__(self, scores: Tensor, prefix: Tensor) -> None:
        if self.left():
            raise Gone
        if self.on_output is not None and prefix.shape[1]:
            self.on_output(prefix[0].tolist())


def watched(search: Search, watch: Watch) -> Search:
    """Return the same search with one more processor."""
    return replace(search, processors=[*listed(search.processors), watch])


def input_search(one: Input, left: Left, on_event: OnEvent | None, looks: bool = False) -> Search:
    """Return an input's search with a `Watch`, reporting steps if it has a single window.

    Args:
        one: the input.
        left, on_event: as `Watch`; None for no reports.
        looks: the request also asks for attention weights.
    """
    needs = "streams" if on_event is not None else "attention weights" if looks else ""
    if on_event is None or len(one.windows) > 1:
        return watched(one.search, Watch(left, needs=needs))
    best = hasattr(one.search, "beam_size")

    def on_output(ids: list[int]) -> None:
        on_event(Event(one.place, one.line, array("i", ids), best))

    return watched(one.search, Watch(left, on_output, needs))


@contextmanager
def passes_watched(model: nn.Module, left: Left) -> Iterator[None]:
    """Raise `Gone` in passes of the model within the block once its clients have disconnected."""

    def check(*args: object) -> None:
        if left():
            raise Gone

    with ExitStack() as stack:
        for part in model.modules():
            stack.enter_context(part.register_forward_pre_hook(check))
        yield
