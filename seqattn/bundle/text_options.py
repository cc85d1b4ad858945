"""Options of generating texts: what a request may have besides its texts, as extras provide it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from seqattn.analysis.word_alignment import WordAlignment
from seqattn.checking import shown
from seqattn.data.text_lines import TextLines
from seqattn.errors import UserError
from seqattn.generation.base import Search
from seqattn.generation.constraints import Constraints
from seqattn.settings.choices import choices, types_at
from seqattn.settings.nodes import TARGET, build, import_path, nearest, with_settings

Generate = Callable[[list[str]], list[str]]
"""Function that returns the outputs of texts."""
Align = Callable[[list[str], list[str]], list[WordAlignment]]
"""Function that aligns texts and their outputs."""


class TextOption:
    """Base class of options, whose methods change nothing.

    A choice `conf/KEY/NAME.yaml` of a subclass makes KEY an option of `Bundle.generate`.
    """

    in_parts: ClassVar[bool] = False
    """True if texts are generated in parts, by its `generate`."""
    words_by: ClassVar[Any] = None
    """Function that finds the words of parts to align, a `WordsOf`; None for the usual ones."""

    def search(self, search: Search) -> Search:
        """Return the search that outputs need. Raises: UserError for one that cannot be used."""
        return search

    def constraints(
        self, bundle: Any, lines: TextLines, each: Sequence[Constraints] | None
    ) -> Sequence[Constraints] | None:
        """Return the constraints on the outputs of lines, from other ones; None for none."""
        return each

    def generate(self, texts: Sequence[str], generate: Generate, align: Align) -> list[str]:
        """Return the outputs of texts from those of their parts; see `in_parts`."""
        raise NotImplementedError


def is_option(key: str) -> bool:
    """Return True if a key is that of an option of `Bundle.generate`."""
    kinds: list[Any] = [import_path(node[TARGET], key) for node in types_at(key).values()]
    return any(isinstance(one, type) and issubclass(one, TextOption) for one in kinds)


def options_of(values: Mapping[str, Any]) -> dict[str, TextOption]:
    """Return options by key, without those that are None.

    Args:
        values: an object, a name among the group's choices, a node of these, or settings of the
            group's only choice.

    Raises:
        UserError: for an unknown choice or setting.
    """
    return {key: _option(key, value) for key, value in values.items() if value is not None}


def _option(key: str, value: Any) -> TextOption:
    known = choices(key)
    if isinstance(value, str):
        if value not in known:
            raise UserError(f"unknown choice {key}={value}{nearest(value, known)}")
        value = known[value]
    elif isinstance(value, Mapping) and TARGET not in value and len(known) == 1:
        (only,) = known.values()
        value = with_settings(only, {**value})
    option = build(value, key)
    if not isinstance(option, TextOption):
        raise UserError(f"{key} must be {'|'.join(known)} or such an object, got {shown(option)}")
    return option


def search_with(options: Iterable[TextOption], search: Search) -> Search:
    """Return the search that the outputs of options need."""
    for one in options:
        search = one.search(search)
    return search


def check_parts(options: Mapping[str, TextOption], others: Sequence[str]) -> TextOption | None:
    """Return the option that generates in parts, if any.

    Raises:
        UserError: for other options beside it. Args: others: further keys that it cannot have.
    """
    for key, one in options.items():
        if one.in_parts:
            if beside := [*others, *(name for name in options if name != key)]:
                raise UserError(f"{key} does not support {', '.join(beside)}; remove one")
            return one
    return None
