"""What searches have in common: limits, hypotheses, and batches of sorted sources."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from seqattn.errors import UserError
from seqattn.generation.packed import packed
from seqattn.models.base import PAD, Memory, Seq2SeqModel


@dataclass(frozen=True)
class LengthLimit:
    """How long a hypothesis may be, from its own source's length: ratio * source + extra.

    Args:
        ratio: target tokens allowed for each source token, end included.
        extra: target tokens allowed beside them.
        minimum: the end is forbidden before this many tokens stand.
    """

    ratio: float = 1.5
    extra: int = 10
    minimum: int = 0

    def __post_init__(self) -> None:
        if self.ratio < 0 or self.extra < 0 or self.minimum < 0:
            raise UserError(
                f"generation.limit must have ratio, extra and minimum of at least 0, got "
                f"{self.ratio}, {self.extra} and {self.minimum}"
            )

    def of(self, memory: Memory, longest: int | None) -> Tensor:
        """The most tokens (B,) of each sentence; `longest` caps them where positions end."""
        limit = (memory.real.sum(dim=1) * self.ratio).long() + self.extra
        limit = limit.clamp(min=max(1, self.minimum))
        return limit if longest is None else limit.clamp(max=longest)


class Hypothesis(NamedTuple):
    """One output.

    `ids` leave out begin and end; `log_probability` is the model's, in nats, the end included where
    it was reached; `score` is that over the length penalty, with what a search adds to it, by which
    hypotheses are ranked.
    """

    ids: tuple[int, ...]
    score: float
    log_probability: float


class Search(ABC):
    """Turns one batch of memories into ranked hypotheses."""

    @abstractmethod
    def search(
        self, model: Seq2SeqModel, memory: Memory, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each sentence of `memory`, best first, distinct.

        Args:
            model: in eval mode.
            memory: of B sources.
            numbers: (B) each source's place in the user's input, which seeds what is random.
        """


@dataclass(frozen=True)
class Generator:
    """Runs a search over any number of sources: sorted by length, batched, in their own order.

    Args:
        model: the model.
        search: greedy, beam or sampling.
        batch_size: sources in a batch at most; 0 for no such limit.
        batch_tokens: padded source tokens in a batch at most; 0 for no such limit.

    Raises:
        UserError: for a negative bound.
    """

    model: Seq2SeqModel
    search: Search
    batch_size: int = 64
    batch_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("batch_size", "batch_tokens"):
            if getattr(self, name) < 0:
                raise UserError(f"generation.{name} must be at least 0, got {getattr(self, name)}")

    def generate(self, sources: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        """Hypotheses for each source, best first.

        Args:
            sources: ids of each source, end included; an empty one gets one empty hypothesis.

        Raises:
            UserError: where a source is longer than the model's positions.
        """
        limit = self.model.max_source_length
        for number, source in enumerate(sources, start=1):
            if limit is not None and len(source) > limit:
                raise UserError(
                    f"source {number} has {len(source)} tokens and this model reads at most "
                    f"{limit}; shorten it, or train with a larger position.max_length"
                )
        results: list[list[Hypothesis]] = [[Hypothesis((), 0.0, 0.0)] for _ in sources]
        was_training = self.model.training
        self.model.eval()
        device = next(self.model.parameters()).device
        try:
            with torch.inference_mode(), packed(self.model.output):
                for numbers in self._batches(sources):
                    ids = _padded([sources[number] for number in numbers]).to(device)
                    found = self.search.search(self.model, self.model.encode(ids), numbers)
                    for number, hypotheses in zip(numbers, found, strict=True):
                        results[number] = hypotheses
        finally:
            self.model.train(was_training)
        return results

    def _batches(self, sources: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Numbers of the non-empty sources, longest first, so that memory runs out at once."""
        order = sorted((n for n, s in enumerate(sources) if len(s)), key=lambda n: -len(sources[n]))
        batch: list[int] = []
        for number in order:
            full = self.batch_size and len(batch) >= self.batch_size
            longest = len(sources[batch[0]]) if batch else 0
            if batch and (
                full or (self.batch_tokens and longest * (len(batch) + 1) > self.batch_tokens)
            ):
                yield batch
                batch = []
            batch.append(number)
        if batch:
            yield batch


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])


def largest(x: Tensor, bonus: Tensor, count: int, columns: int = 128) -> tuple[Tensor, Tensor]:
    """The `count` largest of all x + bonus in each row, by looking into the best columns alone.

    Every line of V numbers is folded into a table of so many columns. The largest numbers lie in
    the columns with the largest maxima, so one quick pass of maxima replaces a sort of everything.

    Args:
        x: (B, K, V).
        bonus: (B, K), added to each line.
        count: at most K * V.

    Returns:
        Values, and places in the flattened K * V, each (B, count), largest first.
    """
    lines, size = x.shape[1:]
    whole = size // columns * columns
    if lines * columns <= count or whole < 8 * columns:
        return (x + bonus[..., None]).flatten(1).topk(count, dim=1)
    table = x[..., :whole].unflatten(-1, (-1, columns))  # (B, K, V) -> (B, K, V/columns, columns)
    maxima = (table.amax(dim=2) + bonus[..., None]).flatten(1)  # (B, K*columns)
    column = maxima.topk(count, dim=1).indices
    start = column // columns * size + column % columns
    down = torch.arange(0, whole, columns, device=x.device)
    rest = torch.arange(whole, size, device=x.device)
    ends = torch.arange(0, lines * size, size, device=x.device)[:, None] + rest
    inside = (start[..., None] + down).flatten(1)
    places = torch.cat((inside, ends.flatten().expand(len(x), -1)), dim=1)
    values = x.flatten(1).gather(1, places) + bonus.gather(1, places // size)
    best, order = values.topk(count, dim=1)
    return best, places.gather(1, order)


def worth_shrinking(live: int, held: int) -> bool:
    """Whether so many rows are done that dropping them pays for the copy.

    A tenth of the rows is the least that leaves, so a batch copies its caches a bounded number of
    times however long it runs.
    """
    return live <= 0.9 * held
