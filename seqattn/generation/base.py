"""Base of searches: the model interface they need, length limits, and hypotheses."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from seqattn.attention.base import length_key
from seqattn.attention.masks import padded_right
from seqattn.checking import BadValue, CountOrNone, shown
from seqattn.errors import UserError
from seqattn.generation.constraints import Constraints, PerSource
from seqattn.generation.processors import Processor
from seqattn.models.base import Memory, Prediction
from seqattn.ops.gpu import without_cudnn_attention
from seqattn.roles import Role

Processors = Sequence[Processor] | Mapping[str, Processor]
"""Processors, applied in order; for a mapping, its values."""
Tokens = Annotated[int, Ge(0), Le(10_000)]
WorkersOrNone = Annotated[int, Ge(1), Le(1_000)] | None
Graph = bool | Literal["compiled"]
Progress = Callable[..., object]
"""Callback `(done, total, tokens)` after each batch: sources so far, of all, and new tokens of the
best hypotheses; searches without tokens leave these out."""


def listed(processors: Processors) -> list[Processor]:
    """Return processors in order, without their names."""
    return list(processors.values() if isinstance(processors, Mapping) else processors)


class SearchModel(Protocol):
    """Interface of a model for search: a `Seq2SeqModel` or an ensemble."""

    has_weights: bool
    max_source_length: int | None
    max_target_length: int | None

    def encode(self, ids: Tensor) -> Any:
        """Return a memory of sources (B, S), with `ids` and `real` as in `Memory`."""

    def start(self, memory: Any, beams: int = 1) -> Any:
        """Return the initial decoding state, with `reorder` and `keep` as in `State`."""

    def log_probabilities(self, ids: Tensor, state: Any, need_weights: bool = False) -> Prediction:
        """Predict the token after ids (B*K, 1), the beams of a sentence adjacent."""


@dataclass(frozen=True)
class LengthLimit:
    """Maximum length of a hypothesis, by the length of its source: ratio * source + extra.

    Args:
        ratio: target tokens allowed for each source token, end included.
        extra: additional target tokens allowed.
        minimum: the end is forbidden before this many tokens; at most the model's longest output,
            see `check`.
    """

    ratio: Annotated[float, Ge(0), Le(100)] = 1.5
    extra: Tokens = 10
    minimum: Tokens = 0

    def of(self, sizes: Tensor, longest: int | None) -> Tensor:
        """Return the maximum tokens (B,) for sources of these sizes, at most `longest`."""
        limit = (sizes * self.ratio).long() + self.extra
        limit = limit.clamp(min=max(1, self.minimum))
        return limit if longest is None else limit.clamp(max=longest)

    def check(self, model: SearchModel) -> None:
        """Check that outputs of a model can reach the minimum.

        Raises:
            UserError: they cannot; the message names the key and its possible values.
        """
        longest = model.max_target_length
        if longest is not None and self.minimum > longest:
            raise UserError(
                f"generation.limit.minimum must be at most {longest:,}, this model's longest "
                f"output in tokens, got {self.minimum:,}; lower it, or train with a larger "
                f"{length_key(model, longest)}"
            )


class Hypothesis(NamedTuple):
    """One output.

    `ids` exclude begin and end; `log_probability` is the model's, in nats, including the end if it
    was reached, and the factor of a `RepetitionPenalty`; hypotheses are ranked by `score`:
    `log_probability` divided by the length penalty, plus terms of the search.
    """

    ids: tuple[int, ...]
    score: float
    log_probability: float


class AnySearch:
    """Settings of a search for any kind of output; `Search` is for texts."""

    output: ClassVar[str]
    """Kind of output, as in models and tasks."""

    def __str__(self) -> str:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(self).__name__).lower()
        width: int | None = getattr(self, "beam_size", None)
        return name if width is None else f"{name}, beam_size={width}"

    def giving(self, count: int) -> Any:
        """Return the same search for the best `count` distinct outputs of each input.

        Raises:
            UserError: the search finds fewer.
        """
        raise NotImplementedError

    def check(self, model: Any) -> None:
        """Raise UserError for settings that do not fit a model."""

    def check_scorer(self, scorer: Any) -> None:
        """Raise UserError for a scorer that does not fit this search."""


@dataclass(frozen=True)
class Search(AnySearch, ABC):
    """Base of searches, from a batch of memories to ranked hypotheses.

    Args:
        limit: maximum length of a hypothesis.
        processors: constraints on the next token of a hypothesis.
        batch_size: maximum sources in a batch; 0 for no limit. On a CPU a batch above 128 is at
            most a sixteenth of all sources, so that processes can share them. A batch never has
            more than 4,096 hypotheses.
        batch_tokens: maximum padded source tokens in a batch; 0 for no limit.
        workers: single-threaded processes that share the batches on a CPU, at most one per batch;
            None for torch's number of threads. Batches, and so results, are the same as with one
            process. With a single batch none is started.
        graph: on a GPU, replay decoding steps as CUDA graphs where the model supports it;
            `compiled` to compile their layers, too, which delays the start.
    """

    limit: LengthLimit = field(default_factory=LengthLimit)
    processors: Processors = field(default=(), kw_only=True)
    batch_size: Annotated[CountOrNone, Role.NOTE] = field(default=128, kw_only=True)
    batch_tokens: Annotated[CountOrNone, Role.NOTE] = field(default=16_384, kw_only=True)
    workers: Annotated[WorkersOrNone, Role.NOTE] = field(default=None, kw_only=True)
    graph: Annotated[Graph, Role.NOTE] = field(default=True, kw_only=True)

    output: ClassVar[str] = "text"

    @property
    def beams(self) -> int:
        """Number of hypotheses per source that are extended in parallel."""
        return 1

    @property
    def captured_as(self) -> Hashable | None:
        """The settings that a whole step depends on, but for the minimum length and processors.

        None if a step reads numbers back, so that only the model's part of it can be captured.
        """
        return None

    def __post_init__(self) -> None:
        named = self.processors  # a bundle names each of them
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
                "this search returns one hypothesis; n_best needs generation=beam or sampling"
            )
        # request the full beam, as hypotheses with different tokens may have the same text
        n_best = max(count, getattr(self, "beam_size", 1)) if count > 1 else 1
        changes: Any = {"n_best": n_best}
        return replace(self, **changes)

    def check(self, model: SearchModel) -> None:
        self.limit.check(model)

    def under(self, each: Sequence[Constraints]) -> "Search":
        """Return the search for a batch with constraints for each of its sources."""
        return replace(self, processors=(PerSource(each, listed(self.processors)),))

    @abstractmethod
    def search(
        self, model: SearchModel, memory: Memory, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """Return distinct hypotheses for each sentence of `memory`, best first.

        Args:
            model: in eval mode.
            memory: memory of B sources.
            numbers: (B) each source's index in the user's input, which seeds sampling.
        """


@contextmanager
def inference(model: nn.Module) -> Iterator[torch.device]:
    """Run a block in eval mode, without gradients, with ids padded on the right.

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
