"""A trained model for inference, with its tokenizer and search."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from seqattn.bundle.files import part_of
from seqattn.data.base import Rows
from seqattn.data.lines import read_texts
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.generation.base import AnySearch, Progress
from seqattn.settings.choices import choices
from seqattn.settings.documents import Config
from seqattn.settings.nodes import Node, build, changed, nearest

if TYPE_CHECKING:
    from seqattn.bundle.outputs import Outputs
    from seqattn.bundle.text_bundle import TextBundle

Choice = str | AnySearch | Mapping[str, Node] | None
"""A search: a name such as "greedy" (the files of `conf/generation`), an object, or a node in the
form of such a file; None for the bundle's own."""

_MEANT = {
    "num_beams": "beam_size", "num_return_sequences": "n_best", "do_sample": '"sampling"',
    "max_length": 'limit={"ratio": 0, "extra": N}', "min_length": 'limit={"minimum": N}',
    "max_new_tokens": 'limit={"ratio": 0, "extra": N}', "min_new_tokens": 'limit={"minimum": N}',
}  # fmt: skip
"""Settings of a search in other toolkits, and what to pass here."""


@dataclass(repr=False)
class Bundle(ABC):
    """A trained model with its tokenizer and configuration, for one kind of task.

    Args:
        model: in eval mode.
        config: its training configuration, as nodes.
        scores: its scores at the end of training.
    """

    model: nn.Module
    tokenizer: Tokenizer
    config: Config
    scores: dict[str, Any]
    path: Path

    batches: ClassVar[str]
    """Kind of batches that its loader makes: pairs or spans."""
    output: ClassVar[str]
    """Kind of output of its model and search: text or spans."""
    unit: ClassVar[str]
    """Description of its inputs."""
    searches: ClassVar[Sequence[str]]
    """Choices of generation that it accepts."""
    reads: ClassVar[Sequence[str]] = ("text",)
    """Keys of an input of `generate`."""
    form: ClassVar[str] = "a text"
    """Form of a typed line."""

    def __repr__(self) -> str:
        size = sum(parameter.numel() for parameter in self.model.parameters())
        return f"{type(self).__name__}({str(self.path)!r}, {size:,} parameters)"

    def search(self, generation: Choice = None, **settings: Any) -> Any:
        """Return the bundle's own search or a chosen one, with some settings changed.

        Args:
            generation: "greedy", "beam", "sampling", "mbr" or "spans"; an object of
                `seqattn.generation`; a node such as `conf/generation/beam.yaml`; None for the
                bundle's own.
            **settings: its settings, such as beam_size=2; nested settings are merged, such as
                limit={"minimum": 3}. Not allowed with an object.

        Raises:
            UserError: for an unknown search or setting, or one that does not fit this bundle.
        """
        node: Any = generation
        if isinstance(generation, str):
            named = choices("generation")
            if generation not in named:
                raise UserError(
                    f"unknown choice generation={generation}{nearest(generation, named)}"
                )
            node = named[generation]
        if generation is None:
            node = part_of(self.config, "generation", self.path)
        if settings and not isinstance(node, Mapping):
            kind = type(node).__name__
            raise UserError(f"cannot change settings of a {kind}; pass a name such as beam instead")
        for key in settings:
            if key in _MEANT and key not in node:
                raise UserError(f"unknown key generation.{key}; use {_MEANT[key]}")
        search = build(changed(node, settings) if settings else node, "generation")
        return self._of_kind(search, "generation", "output")

    def _of_kind(self, part: Any, name: str, trait: str) -> Any:
        """Return a part built from a node, after checking that it fits this kind of bundle."""
        needed = getattr(self, trait)
        if getattr(part, trait, None) != needed:
            raise UserError(
                f"this bundle needs a {name} setting for {needed}, got {type(part).__name__}"
            )
        return part

    def _loader(self) -> Any:
        loader = build(part_of(self.config, "loader", self.path), "loader")
        return self._of_kind(loader, "loader", "batches")

    def texts(self, use: str) -> "TextBundle":
        """Return this bundle if it generates text.

        Raises:
            UserError: if it does not; `use` names what needs text, for the message.
        """
        raise UserError(
            f"{use} needs a bundle that outputs text, but {self.path} outputs {self.output}"
        )

    @abstractmethod
    def check(self) -> None:
        """Check that the search and the loader named by its files can be used."""

    def as_input(self, *values: str) -> Any:
        """Return an input of `generate`, from the values of its keys."""
        return values[0]

    def read_inputs(self, path: Path | None) -> Iterator[list[tuple[int, Any]]]:
        """Yield the inputs of a file with their line numbers, in parts; see `read_texts`."""
        return read_texts(path, self.config.get("data"))

    @abstractmethod
    def rows(self, table: Any, split: str) -> Rows:
        """Return the rows of a split, for scoring.

        Raises:
            UserError: if they have no references.
        """

    @abstractmethod
    def outputs(
        self, rows: Any, search: Choice = None, progress: Progress | None = None
    ) -> "Outputs":
        """Return the best output for each row, and the seconds taken."""
