"""Options of generating texts: what a request may have besides its texts, as extras provide it."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
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
from seqattn.generation.generator import Generator, Hypotheses
from seqattn.inputs import read_yaml
from seqattn.installation import CONF
from seqattn.settings.choices import choice_of_word, choices, types_at
from seqattn.settings.nodes import TARGET, build, import_path, nearest, with_settings

Align = Callable[[list[str], list[str]], list[WordAlignment]]
"""Function that aligns texts and their outputs."""


class Split(NamedTuple):
    """How lines of texts are split further.

    Attributes:
        parts: returns the parts of a line that are generated separately, such as sentences, which
            alternate with the spaces between them; its second text is what the model reads before
            each.
        joins: True if the model reads them together, as lines of a document.
    """

    parts: Callable[[str, str], Sequence[str]]
    joins: bool = False


class Segments(Protocol):
    """A text as segments, which are generated in its place."""

    @property
    def texts(self) -> list[str]:
        """The segments without markup."""


class Whole(NamedTuple):
    """A text as a single segment."""

    texts: list[str]


class LineOutput(NamedTuple):
    """A line of a text, its output, and what `TextOption.of_lines` returned for them.

    A line that is copied is its own output, and nothing was returned for it.
    """

    line: str
    output: str
    result: Any = None
    is_copy: bool = False


class SegmentOutput(NamedTuple):
    """The output of a segment, and of each of its lines that is not blank."""

    output: str
    lines: Sequence[LineOutput]


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
        lines: their lines that are not blank.
        raw: the text with markup.
        restored: what `TextOption.restore` returned; None without markup.
        is_best: True for the best output of the text.
    """

    number: int
    text: str
    output: str
    lines: Sequence[LineOutput]
    raw: str
    restored: Any
    is_best: bool


class Note(NamedTuple):
    """What an option writes about an output: keys of JSON lines, and columns of tsv."""

    keys: Mapping[str, Any] = {}
    columns: Sequence[str] = ()


class TextOption:
    """Base class of options, whose methods change nothing.

    A choice `conf/GROUP/NAME.yaml` of a subclass makes an option of `Bundle.generate`, and of each
    subcommand that takes `options` and lists the group in its defaults, as GROUP or as GROUP@KEY.
    """

    has_columns: ClassVar[bool] = False
    """True if it writes columns about outputs; `Bundle.generate` has no such options."""
    splits: ClassVar[bool] = False
    """True if texts are generated in segments, by its `split` and `restore`."""
    words_by: ClassVar[Any] = None
    """Function that finds the words of segments to align, a `WordsOf`; None for the usual ones."""
    joins_lines: ClassVar[bool] = False
    """True if the lines of a file between blank ones are those of a document; see `generator`."""
    pages: ClassVar[Sequence[str]] = ()
    """Suffixes of files that are one text, which its `read` returns."""

    formats: ClassVar[Sequence[str]] = ()
    """Suffixes of files of several texts, which its `units` returns and its `written` replaces."""
    noted: ClassVar[Sequence[str]] = ()
    """Those of files that have a place for notes, which its `with_notes` writes."""
    units_need: ClassVar[Mapping[str, str]] = {}
    """Choices of other options, by key, that units need."""

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

    def split_by(self, beside: Sequence[str]) -> Split | None:
        """Return what splits the lines of texts further, into sentences; None for nothing.

        Args: beside: keys of the request that need whole lines.

        Raises:
            UserError: if these do not go with it.
        """
        return None

    def generator(
        self, bundle: Any, generator: Generator, lines: TextLines, documents: Sequence[int]
    ) -> Generator:
        """Return the generator of the lines of texts.

        Args:
            bundle, generator: the model, and its search.
            lines: of all texts, which are all that it generates.
            documents: number of the document of each text.
        """
        return generator

    def checked(
        self,
        bundle: Any,
        generator: Generator,
        texts: Sequence[str],
        indices: Sequence[int],
        hypotheses: Hypotheses,
        is_constrained: bool,
    ) -> Hypotheses:
        """Return the hypotheses of texts, some of them searched again.

        Args:
            bundle, generator: the model, and its search.
            texts, indices: what was searched, as from `Bundle.lines`, and its `line_indices`.
            hypotheses: what was found.
            is_constrained: True if outputs have constraints.
        """
        return hypotheses

    def read(self, path: Path) -> str:
        """Return the text of a page; see `pages`."""
        raise NotImplementedError

    def units(self, path: Path) -> Sequence[str]:
        """Return the texts of a file; see `formats`. Raises: UserError if it cannot be read."""
        raise NotImplementedError

    def written(self, path: Path, outputs: Iterable[str]) -> Iterator[bytes]:
        """Yield the content of a file with the outputs of its units in their place."""
        raise NotImplementedError

    def with_notes(self, path: Path, rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
        """Yield the content of a file with outputs, and notes on them; see `noted`.

        Args: rows: of `generate` with format=jsonl, the best of each unit first.
        """
        raise NotImplementedError

    def split(self, texts: Sequence[str]) -> Sequence[Segments]:
        """Return the segments of each text; see `splits`."""
        raise NotImplementedError

    def restore(
        self, outputs: Sequence[tuple[Any, Sequence[SegmentOutput]]], align: Align
    ) -> Sequence[Restored]:
        """Return outputs with markup, each from its text's segments and their outputs."""
        raise NotImplementedError

    def of_lines(self, lines: Sequence[str], outputs: Sequence[str]) -> Sequence[Any]:
        """Return what it says of each line and its output."""
        return [None] * len(lines)

    def note(self, output: OutputOf) -> Note:
        """Return the note on an output, and count it for `say` if it is the best of its text."""
        return Note()

    def notices(self) -> list[str]:
        """Return a line for each thing to know about what became of the texts."""
        return []

    def say(self) -> None:
        """Print to standard error the notices, and what became of the outputs."""
        for line in self.notices():
            print(line, file=sys.stderr)

    def found_in(self, data: Any) -> Mapping[str, Any]:
        """Return what it must know of a training, which bundles store at `text_options`.

        Args: data: a `Seq2SeqData`, loaded.
        """
        return {}

    @property
    def has_effect(self) -> bool:
        """False if outputs, and lines about them, are as without it."""
        return True

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of libraries that outputs depend on."""
        return {}

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


@cache
def _groups() -> dict[str, tuple[str, str | None]]:
    """Return the group of each key of `generate` that has one, and the name of its default.

    Only optional entries have a default, and only where their extra is installed.
    """
    entries = read_yaml(CONF / "generate.yaml")["defaults"]
    groups = dict[str, tuple[str, str | None]]()
    for words, name in chain(*(entry.items() for entry in entries if isinstance(entry, dict))):
        group, _, key = words.removeprefix("optional ").partition("@")
        default = name if words.startswith("optional ") and name in choices(group) else None
        groups[key or group] = group, default
    return groups


def _group(key: str) -> str:
    return _groups().get(key, (key, None))[0]


def is_option(key: str, has_columns: bool = False) -> bool:
    """Return True if a key is that of an option. Args: has_columns: True to include these."""
    kinds: list[Any] = [import_path(node[TARGET], key) for node in types_at(_group(key)).values()]
    options = (one for one in kinds if isinstance(one, type) and issubclass(one, TextOption))
    return any(has_columns or not one.has_columns for one in options)


def node_of(key: str, word: str | int) -> Mapping[str, Any] | None:
    """Return the node of an option's choice, or of a word that its group reads; None for none."""
    return choices(_group(key)).get(str(word)) or choice_of_word(_group(key), word)


def options_of(values: Mapping[str, Any], defaults: bool = False) -> dict[str, TextOption]:
    """Return options by key, without those that are None.

    Args:
        values: an object, a name among the group's choices, a word that the group reads as a
            setting, a node of these, or settings of the group's only choice.
        defaults: True to add those that `generate` has by default, where `values` has no such key.

    Raises:
        UserError: for an unknown key, choice or setting.
    """
    usual = {key: name for key, (_, name) in _groups().items() if name is not None}
    each = {**(usual if defaults else {}), **values}
    return {key: _option(key, value) for key, value in each.items() if value is not None}


def _option(key: str, value: Any) -> TextOption:
    if not isinstance(value, TextOption) and not is_option(key, has_columns=True):
        raise UserError(f"unknown key {key}")
    known = choices(_group(key))
    is_number = isinstance(value, int) and choice_of_word(_group(key), value) is not None
    if isinstance(value, str) or is_number:
        node = node_of(key, value)
        if node is None:
            raise UserError(f"unknown choice {key}={value}{nearest(str(value), known)}")
        value = node
    elif isinstance(value, Mapping) and TARGET not in value and len(known) == 1:
        (only,) = known.values()
        value = with_settings(only, {**value})
    option = build(value, key)
    if not isinstance(option, TextOption):
        kinds = "|".join(known) or "an option"
        raise UserError(f"{key} must be {kinds} or such an object, got {shown(option)}")
    return option


def found_in_training(data: Any) -> dict[str, Any]:
    """Return what options of `generate` must know of a training, by their keys.

    Args: data: a `Seq2SeqData`, loaded.
    """
    found = {key: option.found_in(data) for key, option in options_of({}, True).items()}
    return {key: values for key, values in found.items() if values}


def split_with(options: Iterable[TextOption], beside: Sequence[str] = ()) -> Split | None:
    """Return what splits the lines of texts, as in `TextOption.split_by`.

    Parts are read apart if one option says so.
    """
    each = [split for option in options if (split := option.split_by(beside))]
    if not each:
        return None
    return max(each, key=lambda split: split.joins)._replace(joins=all(one.joins for one in each))


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


def generator_with(
    options: Iterable[TextOption],
    bundle: Any,
    generator: Generator,
    lines: TextLines,
    documents: Sequence[int],
) -> Generator:
    """Return the generator that the outputs of options need. Args: as of `TextOption.generator`."""
    for one in options:
        generator = one.generator(bundle, generator, lines, documents)
    return generator


def checked_by(
    options: Iterable[TextOption],
    bundle: Any,
    generator: Generator,
    texts: Sequence[str],
    indices: Sequence[int],
    hypotheses: Hypotheses,
    is_constrained: bool,
) -> Hypotheses:
    """Return hypotheses after the checks of options. Args: as `TextOption.checked`."""
    for option in options:
        hypotheses = option.checked(bundle, generator, texts, indices, hypotheses, is_constrained)
    return hypotheses


def segment_outputs(
    lines: TextLines, outputs: Iterable[str], documents: Iterable[Segments]
) -> Iterator[list[SegmentOutput]]:
    """Yield the outputs of each document's segments. Args: lines, outputs: of all segments."""
    groups = enumerate(lines.groups(outputs))
    for document in documents:
        each = islice(groups, len(document.texts))
        yield [segment_output(lines, number, group) for number, group in each]


def segment_output(
    lines: TextLines, number: int, outputs: Sequence[str], results: Iterable[Any] = ()
) -> SegmentOutput:
    """Return the output of a segment. Args: outputs, results: of its lines."""
    remaining = iter(results)
    parts = [
        LineOutput(line, output, None if is_copy else next(remaining, None), is_copy)
        for line, output, is_copy in lines.outputs_of(number, outputs)
    ]
    return SegmentOutput(lines.join_text(number, outputs), parts)


def all_texts(documents: Iterable[Segments]) -> list[str]:
    """Return the texts of all segments, in order."""
    return [*chain.from_iterable(one.texts for one in documents)]
