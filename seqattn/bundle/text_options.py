"""Options of generating texts: what a request may have besides its texts, as extras provide it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from seqattn.analysis.word_alignment import WordAlignment
from seqattn.bundle.outputs import Outputs
from seqattn.checking import shown
from seqattn.data.base import Texts
from seqattn.data.text_lines import TextLines
from seqattn.errors import UserError
from seqattn.generation.base import Search
from seqattn.generation.constraints import Constraints
from seqattn.settings.choices import choices, types_at
from seqattn.settings.nodes import TARGET, build, import_path, nearest, with_settings

Align = Callable[[list[str], list[str]], list[WordAlignment]]
"""Function that aligns texts and their outputs."""


class Segments(Protocol):
    """A text as segments, which are generated in its place."""

    @property
    def texts(self) -> list[str]:
        """The segments without markup."""


class Whole(NamedTuple):
    """A text as a single segment."""

    texts: list[str]


class Restored(Protocol):
    """The output of segments, put together."""

    @property
    def text(self) -> str:
        """The output."""


class OutputOf(NamedTuple):
    """An output of a text.

    Attributes:
        number: of the text in the input, from 1.
        text, output: the text and its output without markup, of one line or several.
        of_lines: what `TextOption.of_lines` returned for their lines.
        raw: the text with markup.
        restored: what `TextOption.restore` returned; None without markup.
        is_best: True for the best output of the text.
    """

    number: int
    text: str
    output: str
    of_lines: Sequence[Any]
    raw: str
    restored: Any
    is_best: bool


class Note(NamedTuple):
    """What an option writes about an output: keys of JSON lines, and columns of tsv."""

    keys: Mapping[str, Any] = {}
    columns: Sequence[str] = ()


class TextOption:
    """Base class of options, whose methods change nothing.

    A choice `conf/KEY/NAME.yaml` of a subclass makes KEY an option of `Bundle.generate`, and of
    each subcommand that lists the group in its defaults and takes `options`.
    """

    has_columns: ClassVar[bool] = False
    """True if it writes columns about outputs; `Bundle.generate` has no such options."""
    splits: ClassVar[bool] = False
    """True if texts are generated in segments, by its `split` and `restore`."""
    words_by: ClassVar[Any] = None
    """Function that finds the words of segments to align, a `WordsOf`; None for the usual ones."""
    pages: ClassVar[Sequence[str]] = ()
    """Suffixes of files that are one text, which its `read` returns."""

    @property
    def files(self) -> Mapping[str, Path]:
        """Files that it is read from, by key."""
        return {}

    def of(self, bundle: Any) -> "TextOption":
        """Return the option for the outputs of a bundle, with none counted.

        Raises:
            UserError: if it does not fit.
        """
        return self

    def search(self, search: Search) -> Search:
        """Return the search that outputs need. Raises: UserError for one that cannot be used."""
        return search

    def constraints(
        self, bundle: Any, lines: TextLines, each: Sequence[Constraints] | None
    ) -> Sequence[Constraints] | None:
        """Return the constraints on the outputs of lines, from other ones; None for none."""
        return each

    def read(self, path: Path) -> str:
        """Return the text of a page; see `pages`."""
        raise NotImplementedError

    def split(self, texts: Sequence[str]) -> Sequence[Segments]:
        """Return the segments of each text; see `splits`."""
        raise NotImplementedError

    def restore(
        self, outputs: Sequence[tuple[Any, Sequence[str]]], align: Align
    ) -> Sequence[Restored]:
        """Return outputs with markup, each from its text's segments and their outputs."""
        raise NotImplementedError

    def of_lines(self, lines: Sequence[str], outputs: Sequence[str]) -> Sequence[Any]:
        """Return what it says of each line and its output."""
        return [None] * len(lines)

    def note(self, output: OutputOf) -> Note:
        """Return the note on an output, and count it for `say` if it is the best of its text."""
        return Note()

    def say(self) -> None:
        """Print to standard error what became of the outputs."""

    def check_split(self, bundle: Any, rows: Texts, scorer: Any, split: str, part: Any) -> None:
        """Check before a search that the outputs of a split can be evaluated.

        Args: as `evaluated`, and `scorer`.

        Raises:
            UserError: if they cannot.
        """

    def evaluated(
        self, bundle: Any, outputs: Outputs, scorer: Any, split: str, directory: Path, part: Any
    ) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        """Return figures of the outputs of a split, and rows of a table.

        Args:
            bundle, outputs: the bundle, and its outputs with their rows.
            scorer: of the evaluation.
            split: train, val or test.
            directory: for files of its own.
            part: the rows of the split's file, as in `chosen_lines`.
        """
        return {}, {}


def is_option(key: str) -> bool:
    """Return True if a key is that of an option of `Bundle.generate`."""
    kinds: list[Any] = [import_path(node[TARGET], key) for node in types_at(key).values()]
    options = (one for one in kinds if isinstance(one, type) and issubclass(one, TextOption))
    return any(not one.has_columns for one in options)


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


def splitter_of(options: Mapping[str, TextOption], others: Sequence[str]) -> TextOption | None:
    """Return the option that splits texts into segments, if any.

    Raises:
        UserError: for another such option beside it. Args: others: keys that it cannot have.
    """
    for key, option in options.items():
        if option.splits:
            also = [name for name, one in options.items() if one.splits and name != key]
            if also or others:
                raise UserError(f"{key} does not support {', '.join([*others, *also])}; remove one")
            return option
    return None


def grouped(outputs: Iterable[str], documents: Iterable[Segments]) -> Iterator[list[str]]:
    """Yield the outputs of each document's segments."""
    remaining = iter(outputs)
    return ([*islice(remaining, len(one.texts))] for one in documents)


def all_texts(documents: Iterable[Segments]) -> list[str]:
    """Return the texts of all segments, in order."""
    return [*chain.from_iterable(one.texts for one in documents)]
