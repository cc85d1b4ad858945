"""What searches have in common: what they ask of a model, limits, and batches of sources."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Protocol

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from seqattn.attention.base import length_key
from seqattn.attention.masks import padded_right
from seqattn.checking import BadValue, CountOrNone, shown
from seqattn.errors import UserError
from seqattn.generation.processors import Processor
from seqattn.models.base import Memory, Prediction
from seqattn.ops.gpu import without_cudnn_attention
from seqattn.roles import Role

if TYPE_CHECKING:
    from seqattn.generation.generator import Generator

Processors = Sequence[Processor] | Mapping[str, Processor]
"""Applied in their order; of a mapping, its values."""
Tokens = Annotated[int, Ge(0), Le(10_000)]
WorkersOrNone = Annotated[int, Ge(1), Le(1_000)] | None
Progress = Callable[[int, int], object]
"""Told after each batch how many sources are done, and how many there are."""


def listed(processors: Processors) -> list[Processor]:
    """Processors in their order, without their names."""
    return list(processors.values() if isinstance(processors, Mapping) else processors)


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


@dataclass(frozen=True)
class LengthLimit:
    """How long a hypothesis may be, from its own source's length: ratio * source + extra.

    Args:
        ratio: target tokens allowed for each source token, end included.
        extra: target tokens allowed beside them.
        minimum: the end is forbidden before this many tokens stand; no more than the positions of
            the model, see `check`.
    """

    ratio: Annotated[float, Ge(0), Le(100)] = 1.5
    extra: Tokens = 10
    minimum: Tokens = 0

    def of(self, sizes: Tensor, longest: int | None) -> Tensor:
        """The most tokens (B,) for sources of these sizes; `longest` caps them for positions."""
        limit = (sizes * self.ratio).long() + self.extra
        limit = limit.clamp(min=max(1, self.minimum))
        return limit if longest is None else limit.clamp(max=longest)

    def check(self, model: SearchModel) -> None:
        """Refuses a minimum that no output of a model can reach.

        Raises:
            UserError: naming the key and what is possible.
        """
        longest = model.max_target_length
        if longest is not None and self.minimum > longest:
            raise UserError(
                f"generation.limit.minimum must be at most {longest:,}, the tokens that this model "
                f"can write, got {self.minimum:,}; lower it, or train with a larger "
                f"{length_key(model, longest)}"
            )


class Hypothesis(NamedTuple):
    """One output.

    `ids` leave out begin and end; `log_probability` is the model's, in nats, the end included where
    it was reached; `score` is that over the length penalty, with what a search adds to it, by which
    hypotheses are ranked.
    """

    ids: tuple[int, ...]
    score: float
    log_probability: float


class AnySearch:
    """Settings of a search for outputs of any kind; `Search` is for texts."""

    output: ClassVar[str]
    """What it finds, as a model and a task say: text or spans."""

    def giving(self, count: int) -> Any:
        """Return the same search for the best `count` different outputs of each input.

        Raises:
            UserError: it finds fewer.
        """
        raise NotImplementedError

    def check(self, model: Any) -> None:
        """Refuse settings that a model cannot meet."""

    def check_scorer(self, scorer: Any) -> None:
        """Refuse a scorer that does not fit this search."""


@dataclass(frozen=True)
class Search(AnySearch, ABC):
    """Turns one batch of memories into ranked hypotheses.

    Args:
        limit: how long a hypothesis may be.
        processors: of what a hypothesis may say next.
        batch_size, batch_tokens, workers: of `over`, as `Generator`.
    """

    limit: LengthLimit = field(default_factory=LengthLimit)
    processors: Processors = field(default=(), kw_only=True)
    batch_size: Annotated[CountOrNone, Role.NOTE] = field(default=128, kw_only=True)
    batch_tokens: Annotated[CountOrNone, Role.NOTE] = field(default=16_384, kw_only=True)
    workers: Annotated[WorkersOrNone, Role.NOTE] = field(default=None, kw_only=True)

    output: ClassVar[str] = "text"

    @property
    def beams(self) -> int:
        """Hypotheses of a source that are extended at once."""
        return 1

    def __post_init__(self) -> None:
        named = self.processors  # a bundle has each by a name
        if not isinstance(named, Mapping):
            named = {str(number): one for number, one in enumerate(named)}
            object.__setattr__(self, "processors", named)
        for name, one in named.items():
            if not callable(one):
                raise BadValue(f"processors.{name}", f"must be a processor, got {shown(one)}")

    def giving(self, count: int) -> "Search":
        if not hasattr(self, "n_best"):
            if count == 1:
                return self
            raise UserError(
                "this search gives one hypothesis; n_best needs generation=beam or sampling"
            )
        # hypotheses that differ in tokens may read the same: the whole beam is asked for
        whole = max(count, getattr(self, "beam_size", 1)) if count > 1 else 1
        changes: Any = {"n_best": whole}
        return replace(self, **changes)

    def check(self, model: SearchModel) -> None:
        self.limit.check(model)

    def over(self, model: SearchModel) -> "Generator":
        """The search over any number of sources."""
        from seqattn.generation.generator import Generator  # which knows what a search is

        return Generator(model, self, self.batch_size, self.batch_tokens, self.workers)

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
        with torch.inference_mode(), padded_right(), without_cudnn_attention():
            yield next(model.parameters()).device
    finally:
        model.train(was_training)
