"""A trained model at work, with the tokenizer and the search that it was made for."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from seqattn.bundle.choices import choices
from seqattn.bundle.documents import Config
from seqattn.bundle.files import part_of
from seqattn.bundle.nodes import TARGET, Node, build, changed, import_path, nearest
from seqattn.data.base import Rows
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.generation.base import AnySearch, Progress

if TYPE_CHECKING:
    from seqattn.bundle.outputs import Outputs
    from seqattn.bundle.pictures import Look
    from seqattn.bundle.text_bundle import TextBundle

Choice = str | AnySearch | Mapping[str, Node] | None
"""A search: its name such as "greedy" (the files of `conf/generation`), an object, or a node as
such a file holds it; None for the bundle's own."""

Asked = Sequence[tuple[str, str]]
"""Questions, each with its context."""


@dataclass(repr=False)
class Bundle(ABC):
    """A trained model with its tokenizer and configuration, for one kind of task.

    Args:
        model: in eval mode.
        config: the configuration of its training, as nodes.
        scores: what it scored then.
    """

    model: nn.Module
    tokenizer: Tokenizer
    config: Config
    scores: dict[str, Any]
    path: Path

    batches: ClassVar[str]
    """What its loader makes: pairs or spans."""
    output: ClassVar[str]
    """What its model gives, and its search: text or spans."""
    unit: ClassVar[str]
    """What it reads, in words."""
    searches: ClassVar[Sequence[str]]
    """The usual choices of generation."""

    def __repr__(self) -> str:
        size = sum(parameter.numel() for parameter in self.model.parameters())
        return f"{type(self).__name__}({str(self.path)!r}, {size:,} parameters)"

    def search(self, generation: Choice = None, **settings: Any) -> Any:
        """A search: the bundle's own or the chosen one, with some of its settings changed.

        Args:
            generation: "greedy", "beam", "sampling", "mbr" or "spans"; an object of
                `seqattn.generation`; a node such as `conf/generation/beam.yaml`; None for the
                bundle's own.
            **settings: of the search, such as beam_size=2; of settings that stand together the
                changed ones are enough, such as limit={"minimum": 3}. None beside an object.

        Raises:
            UserError: for a search or a setting that is not there, or is not for this bundle.
        """
        node: Any = generation
        if isinstance(generation, str):
            named = choices("generation")
            if generation not in named:
                raise UserError(f"there is no generation={generation}{nearest(generation, named)}")
            node = named[generation]
        if generation is None:
            node = part_of(self.config, "generation", self.path)
        if settings and not isinstance(node, Mapping):
            kind = type(node).__name__
            raise UserError(f"a {kind} has its settings; give a name such as beam to change some")
        made = build(changed(node, settings) if settings else node, "generation")
        return self._of_kind(made, "generation", "output")

    def _of_kind(self, made: Any, name: str, trait: str) -> Any:
        """What a node made, if it is for such bundles as this."""
        needed = getattr(self, trait)
        if getattr(made, trait, None) != needed:
            raise UserError(f"{name} must be of those for {needed}, got a {type(made).__name__}")
        return made

    def _loader(self) -> Any:
        made = build(part_of(self.config, "loader", self.path), "loader")
        return self._of_kind(made, "loader", "batches")

    @property
    def asks(self) -> bool:
        """Whether it reads questions with their contexts, as its task says."""
        node = self.config.get("task")
        task = import_path(node[TARGET], "task") if isinstance(node, dict) else None
        return getattr(task, "reads", "pairs") == "questions"

    def texts(self, use: str) -> "TextBundle":
        """Return this bundle for a use that needs one of texts.

        Raises:
            UserError: it is of another kind.
        """
        raise UserError(f"{self.path} gives {self.output}; {use} takes a bundle that gives text")

    @abstractmethod
    def check(self) -> None:
        """Refuse a search or a loader that cannot be used, which the files may name."""

    @abstractmethod
    def rows(self, table: Any, split: str) -> Rows:
        """Return the rows of a split to score on.

        Raises:
            UserError: they have no references.
        """

    @abstractmethod
    def outputs(
        self, rows: Any, search: Choice = None, progress: Progress | None = None
    ) -> "Outputs":
        """Return the best output for each row, and how long it took."""

    @abstractmethod
    def answer_lines(
        self, asked: Asked, search: Choice, count: int, progress: Progress | None
    ) -> list[dict[str, Any]]:
        """Return answers to questions as plain values by name, `count` for each at most."""

    @abstractmethod
    def look(self, text: str, context: str, target: str | None, heads: bool) -> "Look":
        """Return pictures of the attention in one text, or in one question with its context.

        Args:
            text: the text or question.
            context: of a question.
            target: an output of one's own; None for the model's.
            heads: draw each layer's heads, too.
        """
