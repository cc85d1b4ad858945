"""What searches have in common: what they ask of a model, limits, and batches of sources."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from seqattn.attention.masks import padded_right
from seqattn.checking import CountOrNone, checked
from seqattn.errors import UserError
from seqattn.generation.processors import Processor
from seqattn.models.base import Memory, Prediction
from seqattn.models.head import Head
from seqattn.tokens import PAD

Processors = Sequence[Processor] | Mapping[str, Processor]
"""Applied in their order; of a mapping, its values."""
Tokens = Annotated[int, Ge(0), Le(1_000_000)]
Progress = Callable[[int, int], object]
"""Told after each batch how many sources are done, and how many there are."""
_WINDOW = 1 << 32  # beyond the numbers of texts


class SearchModel(Protocol):
    """A module that says what follows: a `Seq2SeqModel`, or several of them together."""

    has_weights: bool
    max_source_length: int | None
    max_target_length: int | None

    def encode(self, ids: Tensor) -> Any:
        """A memory of sources (B, S), with the `ids` and `real` of a `Memory`."""

    def start(self, memory: Any, beams: int = 1) -> Any:
        """What goes on token by token, with the `reorder` and `keep` of a `State`."""

    def log_probabilities(self, ids: Tensor, state: Any, need_weights: bool = False) -> Prediction:
        """What follows ids (B*K, 1), the beams of a sentence next to each other."""


@checked
@dataclass(frozen=True)
class LengthLimit:
    """How long a hypothesis may be, from its own source's length: ratio * source + extra.

    Args:
        ratio: target tokens allowed for each source token, end included.
        extra: target tokens allowed beside them.
        minimum: the end is forbidden before this many tokens stand.
    """

    ratio: Annotated[float, Ge(0), Le(1_000)] = 1.5
    extra: Tokens = 10
    minimum: Tokens = 0

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


@checked
@dataclass(frozen=True)
class Search(ABC):
    """Turns one batch of memories into ranked hypotheses.

    Args:
        limit: how long a hypothesis may be.
        processors: of what a hypothesis may say next.
        batch_size, batch_tokens: of `over`, as `Generator`.
    """

    limit: LengthLimit = field(default_factory=LengthLimit)
    processors: Processors = field(default=(), kw_only=True)
    batch_size: CountOrNone = field(default=64, kw_only=True)
    batch_tokens: CountOrNone = field(default=0, kw_only=True)

    output: ClassVar[str] = "text"

    def over(self, model: SearchModel) -> "Generator":
        """The search over any number of sources."""
        return Generator(model, self, self.batch_size, self.batch_tokens)

    @abstractmethod
    def search(
        self, model: SearchModel, memory: Memory, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each sentence of `memory`, best first, distinct.

        Args:
            model: in eval mode.
            memory: of B sources, as the model gives it.
            numbers: (B) each source's place in the user's input, which seeds what is random.
        """


@contextmanager
def inference(model: nn.Module) -> Iterator[torch.device]:
    """Runs a block on ids padded on the right, in eval mode without gradients.

    Yields:
        The model's device.
    """
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(), padded_right():
            yield next(model.parameters()).device
    finally:
        model.train(was_training)


@checked
@dataclass(frozen=True)
class Generator:
    """Runs a search over any number of sources: sorted by length, batched, in their own order.

    Args:
        model: the model, a module.
        search: greedy, beam or sampling.
        batch_size: sources in a batch at most; 0 for no such limit.
        batch_tokens: padded source tokens in a batch at most; 0 for no such limit.
    """

    model: SearchModel
    search: Search
    batch_size: CountOrNone = 64
    batch_tokens: CountOrNone = 0

    def generate(
        self,
        sources: Sequence[Sequence[int]],
        places: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each source, best first.

        Args:
            sources: ids of each source, end included; an empty one gets one empty hypothesis.
            places: each source's place in the user's input; None where these are all of it.
            progress: called after each batch.

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
        places = range(len(sources)) if places is None else places
        done, total = 0, sum(len(source) > 0 for source in sources)
        assert isinstance(self.model, nn.Module)
        with inference(self.model) as device, ExitStack() as heads:
            for module in self.model.modules():
                if isinstance(module, Head):
                    heads.enter_context(module.packed())
            for numbers in self._batches(sources):
                rows = [torch.tensor(sources[n], dtype=torch.long) for n in numbers]
                ids = pad_sequence(rows, batch_first=True, padding_value=PAD).to(device)
                seeds = [places[n] for n in numbers]
                found = self.search.search(self.model, self.model.encode(ids), seeds)
                for number, hypotheses in zip(numbers, found, strict=True):
                    results[number] = hypotheses
                done += len(numbers)
                if progress is not None:
                    progress(done, total)
        return results

    def _batches(self, sources: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Numbers of the non-empty sources, longest first, so that memory runs out at once."""
        order = sorted((n for n, s in enumerate(sources) if len(s)), key=lambda n: -len(sources[n]))
        batch: list[int] = []
        for number in order:
            longest = len(sources[batch[0]]) if batch else 0
            over = self.batch_tokens and longest * (len(batch) + 1) > self.batch_tokens
            if batch and (over or len(batch) == self.batch_size):
                yield batch
                batch = []
            batch.append(number)
        if batch:
            yield batch


def generate_from_windows(
    generator: Generator,
    sources: Sequence[Sequence[Sequence[int]]],
    first: int = 0,
    progress: Progress | None = None,
) -> list[list[Hypothesis]]:
    """Hypotheses for each source from all of its windows, those with the best scores first.

    Args:
        generator: the model with its search.
        sources: the ids of each source's windows; one of a source that is read as a whole.
        first: the place of the first source in the user's input.
        progress: called after each batch; it is told the share of windows done, in sources.

    Returns:
        As `Generator.generate`; as many for each source as a window alone would give at most.
    """
    each = [
        (window, place + number * _WINDOW)
        for place, windows in enumerate(sources, first)
        for number, window in enumerate(windows)
    ]
    windows, places = [window for window, _ in each], [place for _, place in each]

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress(done * len(sources) // total, len(sources))

    found = iter(generator.generate(windows, places, tell))
    results = []
    for source in sources:
        parts = [next(found) for _ in source]
        best: dict[tuple[int, ...], Hypothesis] = {}
        for hypothesis in sorted((h for part in parts for h in part), key=lambda h: -h.score):
            best.setdefault(hypothesis.ids, hypothesis)
        results.append(list(best.values())[: max(map(len, parts))])
    return results
