"""The values of a run from its settings, of which a search has keys of its own beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from seqattn.bundle.nodes import PARTIAL, TARGET, build, describe
from seqattn.checking import CountOrNone, checked, keys_under
from seqattn.errors import UserError
from seqattn.generation import Generator
from seqattn.generation.base import Search
from seqattn.generation.span_search import SpanSearch
from seqattn.models.base import Seq2SeqModel

Value = TypeVar("Value")
_SIZES = ("batch_size", "batch_tokens")


@checked
@dataclass(frozen=True)
class BatchedSearch:
    """A search and how much of it runs at once.

    Args:
        search: greedy, beam or sampling.
        batch_size: sentences at once; 0 for no such limit.
        batch_tokens: padded source tokens at once; 0 for no such limit.
    """

    search: Search
    batch_size: CountOrNone = 64
    batch_tokens: CountOrNone = 0

    output: ClassVar[str] = "text"

    def over(self, model: Seq2SeqModel) -> Generator:
        """The search over a model."""
        return Generator(model, self.search, self.batch_size, self.batch_tokens)


def search_of(node: Mapping[str, Any], where: str = "generation") -> BatchedSearch | SpanSearch:
    """The search that a node describes.

    Args:
        node: such as `conf/generation/beam.yaml`, interpolations resolved.
        where: the key that holds it, for messages.

    Raises:
        UserError: naming the key that is wrong.
    """
    sizes = {name: value for name, value in node.items() if name in _SIZES}
    search = build({name: value for name, value in node.items() if name not in sizes}, where)
    if isinstance(search, SpanSearch):
        return search
    if not isinstance(search, Search):
        raise UserError(f"{where} must be a search, got {type(search).__name__}")
    with keys_under(where):
        return BatchedSearch(search, **sizes)


def from_settings(cls: type[Value], settings: Mapping[str, Any]) -> Value:
    """A run's value from plain settings, nodes under the names of its fields.

    Raises:
        UserError: for a key that is not there or a value that cannot be, naming the key.
    """
    rest = {name: value for name, value in settings.items() if name != "generation"}
    make = build({**rest, TARGET: f"{cls.__module__}.{cls.__qualname__}", PARTIAL: True})
    if "generation" not in settings:
        return make()
    return make(generation=search_of(settings["generation"]))


def search_node(search: BatchedSearch | SpanSearch) -> dict[str, Any]:
    """The node that describes a search."""
    if isinstance(search, SpanSearch):
        return dict(describe(search))
    node = describe(search.search)
    processors = node.get("processors", {})
    if isinstance(processors, list):  # by names, so that others can be put beside them
        processors = {str(number): one for number, one in enumerate(processors)}
    sizes = {name: getattr(search, name) for name in _SIZES}
    return {**node, "processors": processors, **sizes}


def check_search(output: str, search: BatchedSearch | SpanSearch) -> None:
    """Refuses a search that does not give what a bundle's model does.

    Args:
        output: what the model gives, text or spans.
        search: the search.

    Raises:
        UserError: with those that do.
    """
    spans = isinstance(search, SpanSearch)
    if spans != (output == "spans"):
        wanted = "beam, greedy or sampling" if spans else "spans"
        raise UserError(f"this bundle gives {output} and takes generation={wanted}")
