"""Generation of outputs for texts."""

import json
import os
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Le

from seqattn.analysis.forced_alignment import cross_attentions
from seqattn.bundle.bundle import Bundle
from seqattn.bundle.text_options import TextOption, node_of, options_of, search_with, splitter_of
from seqattn.checking import Count
from seqattn.data.lines import in_one_line, read_texts
from seqattn.errors import UserError
from seqattn.generation import Generator
from seqattn.generation.base import AnySearch, Progress
from seqattn.screen import progress
from seqattn.storage import kind_of, replaced_file, user_path
from seqattn.subcommands.bundle_run import BundleRun, check_read
from seqattn.subcommands.journal import Journal, open_journal
from seqattn.subcommands.output_lines import (
    Alignments,
    Format,
    Notices,
    OutputLines,
    Rows,
)
from seqattn.subcommands.provenance import Provenance, bundle_contents
from seqattn.subcommands.reranking import Reranker, Reranking
from seqattn.training.rank_messages import rank_messages
from seqattn.training.ranks import rank, world_size

_PLACES = {"bundle", "ensemble", "input", "output", "device", "trust", "window", "settings"}
"""Keys that lines do not depend on, or only by the contents of files."""
Work = Callable[[int, Rows, Progress], Iterator[str]]
"""Function of the first input's index, inputs and a callback, that yields lines."""


@dataclass(frozen=True, kw_only=True)
class Generation(BundleRun):
    """Generate outputs for a text, for the lines of a file, or for typed lines.

    Args:
        bundle, device, trust: as `BundleRun`.
        generation: the search.
        text: a single text, in place of a file.
        question, context: a single input, for a bundle that reads these in place of a text.
        input: a file of lines, or of JSON lines; None for standard input.
        output: a file; None for standard output.
        n_best: maximum number of distinct outputs for each text; None for one.
        alignments: True to write word alignments in Pharaoh format, too: the last column of tsv, or
            the key "alignment" of jsonl.
        format: output format: text, the output only; tsv, number of the input line, rank, score
            and output; jsonl, the same by name. None for jsonl if the inputs are not texts, for tsv
            if n_best is above 1 or there is more to write, and else for text.
        rerank: settings of reranking by another model.
        window: number of inputs of a file that are read and searched together.
        part: share of a file's inputs, such as "3/16"; None for all. Ranks, as of torchrun, each
            take a share of it.
        prefix, target_language: as in `Bundle.generate`; the prefix of all.
        prefix_column: a prefix for each text: a key of JSON lines, or a column of lines.
        options: nodes or objects of `TextOption`s by key, None for none: they may write columns of
            tsv and keys of jsonl, read an input file as a whole, and print what became of texts.

    Raises:
        UserError: for several inputs, n_best above the number of hypotheses of the search, or a
            share that does not exist.
    """

    built_later: ClassVar[Sequence[str]] = ("options",)

    generation: AnySearch
    text: str | None = None
    question: str | None = None
    context: str | None = None
    input: str | None = None
    output: str | None = None
    n_best: Annotated[int, Ge(1), Le(1_000)] | None = None
    alignments: bool = False
    format: Format | None = None
    rerank: Reranking = field(default_factory=Reranking)
    window: Count = 4_096
    part: str | None = None
    prefix: str | None = None
    prefix_column: str | int | None = None
    target_language: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    _translator: TextOption | None = field(default=None, init=False, repr=False)
    """The option that reads the texts of the input file and writes them in their place, if any."""

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.text, self.question, self.input)) > 1:
            raise UserError("text, question and input are mutually exclusive")
        object.__setattr__(self, "options", options_of(self.options))
        self._find_translator()
        for key, option in self.options.items():
            if option.splits and self.alignments:
                raise UserError(f"{key} does not support alignments; remove one")
        if self.format == "text" and self._columns:
            raise UserError(
                f"format=text has no {self._columns[0]}; remove it, or add format=jsonl"
            )
        if self.input is None and self.text is None:
            for key, option in self.options.items():
                if option.joins_lines:
                    raise UserError(f"{key} needs whole documents; set input=FILE")
        _ = self._share  # checked before the bundle is loaded
        if self.prefix_column is not None and (self.prefix is not None or self.text is not None):
            raise UserError("prefix_column needs input, and no prefix; remove one")
        if self.n_best is not None:
            object.__setattr__(self, "generation", self.generation.giving(self.n_best))

    def _find_translator(self) -> None:
        """Set the option that translates the texts of the input file in their place, if any.

        Raises:
            UserError: for keys that do not go with it.
        """
        kind = kind_of(user_path(self.input)).lower() if self.input else None
        translator = next((one for one in self.options.values() if kind in one.formats), None)
        if translator is None or self._reader:
            return
        needed = options_of(translator.units_need)
        without = ["part", "format"] + ["n_best"] * (kind not in translator.noted)
        others = [key for key in without if getattr(self, key) is not None]
        others += [
            key
            for key, one in needed.items()
            if not isinstance(self.options.get(key, one), type(one))
        ]
        others += ["alignments"] * self.alignments if kind in translator.noted else self._columns
        if others:
            keys = ", ".join(others)
            raise UserError(f"{self.input} is translated in its place, without {keys}; remove it")
        object.__setattr__(self, "_translator", translator)
        object.__setattr__(self, "options", {**needed, **self.options})

    @property
    def _columns(self) -> list[str]:
        """Keys by which more than the outputs is written."""
        keys = [key for key, option in self.options.items() if option.has_columns]
        return ["alignments"] * self.alignments + keys

    @property
    def _format(self) -> Format:
        rows: Format = "jsonl" if self._translator else "tsv"
        return self.format or (rows if self._columns or (self.n_best or 1) > 1 else "text")

    @property
    def _joins_lines(self) -> bool:
        """True if the lines of the input file are those of documents, between blank ones."""
        joins = any(option.joins_lines for option in self.options.values())
        plain = self.input is not None and kind_of(user_path(self.input)) not in (".json", ".jsonl")
        return joins and plain and self._reader is None

    @property
    def _reader(self) -> TextOption | None:
        """The option that reads the input file as a whole, if any."""
        if self._translator is not None:
            return None
        kind = kind_of(user_path(self.input)).lower() if self.input else ""
        return next((one for one in self.options.values() if kind in one.pages), None)

    def run(self) -> None:
        """Read, generate and write.

        Raises:
            UserError: if a file or the bundle cannot be used.
        """
        source = None if self.input is None else user_path(self.input)
        into = user_path(self.output or "")
        # SLURM sets its variables for single commands, too
        ranks = world_size() if "WORLD_SIZE" in os.environ else 1
        rank_index, plain = rank() if ranks > 1 else 0, source is not None and source.is_file()
        if (self.part and not plain) or (ranks > 1 and not (plain and replaced_file(into))):
            raise UserError("shares of the input need files; set input=FILE and output=FILE")
        rank_messages.from_first(str)  # ranks that cannot meet at the end fail before the search
        if ranks > 1 and self.device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        bundle: Any = self.load(self.generation)
        if self.target_language is not None:
            bundle = bundle.into(self.target_language)
        options = {key: option.of(bundle) for key, option in self.options.items()}
        generates = self._check_inputs(bundle, options)
        notices = Notices()
        work: Work = partial(self._answers, bundle, notices)
        with ExitStack() as stack:
            if generates:
                search = search_with(options.values(), self.rerank.search(self.generation))
                generator = stack.enter_context(bundle.generator(search).open())
                reranker = self.rerank.over(bundle.tokenizer, self.device, self.trust)
                work = self._lines(bundle, generator, reranker, options, notices)
            inputs = range(sys.maxsize)
            opened: AbstractContextManager[Journal] = nullcontext(Journal(self.output))
            if plain:  # all lines are checked before the first search
                inputs = self._shares(bundle, source, (self._share, (rank_index + 1, ranks)))
                files = {"input": source}
                for option in options.values():
                    files |= option.files
                of_texts = self._reader or self._translator
                each = self.n_best or 1, "(?s:.*)" if of_texts else ".*"
                opened = open_journal(
                    self.output,
                    partial(self._made_from, options),
                    files,
                    rank_index,
                    ranks,
                    len(inputs),
                    *each,
                )
            journal, advance = stack.enter_context(opened), None
            if source is not None and rank_index == 0:
                bar = progress("generating", "texts", journal.done, above=self.output is None)
                advance = stack.enter_context(bar)
            end = "" if self._reader and self._format == "text" else "\n"
            results = self._results(bundle, work, source, inputs, journal.done, advance)
            if self._translator and source is not None:
                journal.write(results, partial(self._written, self._translator, source), end="")
            else:
                journal.write(results, end=end)
        notices.say()
        for option in options.values():
            option.say()

    def _written(
        self, translator: TextOption, source: Path, lines: Iterable[str]
    ) -> Iterator[bytes]:
        """Yield the content of a file with its translations. Args: lines: of all units."""
        if self._format == "text":
            return translator.written(source, lines)
        return translator.with_notes(source, map(json.loads, lines))

    def _lines(
        self,
        bundle: Bundle,
        generator: Generator,
        reranker: Reranker | None,
        options: Mapping[str, TextOption],
        notices: Notices,
    ) -> OutputLines:
        """Return what generates the lines of texts."""
        alignments = {"alignment": Alignments(bundle)} if self.alignments else {}
        return OutputLines(
            bundle,
            generator,
            reranker,
            {**alignments, **options},
            notices,
            format=self._format,
            n_best=self.n_best or 1,
            keeps_breaks=self.text is not None or bool(self._reader or self._translator),
            prefix=self.prefix,
            has_prefixes=self.prefix_column is not None,
            joins_lines=self._joins_lines,
        )

    def _results(
        self,
        bundle: Any,
        work: Work,
        source: Path | None,
        inputs: range,
        done: int,
        on_progress: Progress | None,
    ) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of inputs and the lines of each window."""
        total = len(inputs) if inputs.stop < sys.maxsize else None

        def told(part: int, _: int, tokens: int = 0) -> None:
            if on_progress is not None:
                on_progress(done + part, total, tokens)

        for rows in self._windows(bundle, source, inputs[done:]):
            yield len(rows), [*work(inputs.start + done, rows, told)]
            done += len(rows)

    def _windows(self, bundle: Any, source: Path | None, inputs: range) -> Iterable[Rows]:
        """Return the windows of a file's inputs, or the parts of standard input as they arrive."""
        values = [getattr(self, key) for key in bundle.reads]
        if None not in values:
            return [[(1, bundle.as_input(*values))]]
        _say_how(bundle.form, source)
        parts: Iterable[Rows] = self._read(bundle, source)
        if source is None:
            return parts
        rows = islice(chain.from_iterable(parts), inputs.start, inputs.stop)
        return iter(lambda: self._next_window(rows), [])

    def _next_window(self, rows: Iterator[tuple[int, Any]]) -> Rows:
        """Return the next inputs, up to the end of a document if their lines are joined."""
        window = [*islice(rows, self.window)]
        while self._joins_lines and window and window[-1][1].strip():
            if (row := next(rows, None)) is None:
                break
            window.append(row)
        return window

    def _shares(
        self, bundle: Bundle, source: Path | None, shares: Iterable[tuple[int, int]]
    ) -> range:
        """Return the inputs of a share of a share, numbered from 1, of how many.

        Documents whose lines are joined are in the share that has their first line.
        """
        rows, starts = 0, [0]
        for row, (_, text) in enumerate(chain.from_iterable(self._read(bundle, source)), 1):
            rows = row
            if self._joins_lines and not text.strip():
                starts.append(row)
        inputs, starts = range(rows), [*starts, rows]
        for number, of in shares:
            ends = [inputs.start + len(inputs) * n // of for n in (number - 1, number)]
            if self._joins_lines:
                ends = [starts[bisect_left(starts, end)] for end in ends]
            inputs = range(*ends)
        return inputs

    def _made_from(self, options: Mapping[str, TextOption]) -> Provenance:
        """Return the settings and models that lines depend on. Args: options: of the bundle."""
        plain = self.settings or {key: repr(value) for key, value in vars(self).items()}
        without = _PLACES | {key for key, option in options.items() if not option.has_effect}
        settings = {key: node for key, node in plain.items() if key not in without}
        for key, option in options.items():
            word = settings.get(key)
            settings |= {key: node_of(key, word)} if isinstance(word, str) else {}
            settings |= option.versions
        others = [self.rerank.bundle, *self.rerank.ensemble] if self.rerank.bundle else []
        contents = {"bundle": [self.bundle, *self.ensemble], "rerank.bundle": others}
        settings["rerank"] = [self.rerank.weight, self.rerank.direction]
        each = {key: bundle_contents(*paths) for key, paths in contents.items()}
        return Provenance(settings=settings, contents=each)

    @property
    def _share(self) -> tuple[int, int]:
        """Number of the share, from 1, and how many there are."""
        match = re.fullmatch("([0-9]{1,9})/([0-9]{1,9})", self.part or "1/1")
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise UserError(f"part must be K/N with K from 1 to N, such as 3/16, got {self.part}")
        return int(match[1]), int(match[2])

    def _check_inputs(self, bundle: Any, options: Mapping[str, TextOption]) -> bool:
        """Return True if the bundle reads texts; raise UserError for inputs of other bundles."""
        keys = {"text": self.text, "question": self.question, "context": self.context}
        check_read(bundle, **keys)
        generates = "text" in bundle.reads
        prefix = [key for key in ("prefix", "prefix_column") if getattr(self, key) is not None]
        if not generates:
            others = ["alignments"] * self.alignments + ["rerank"] * bool(self.rerank.bundle)
            others += [*prefix, *(key for key, option in options.items() if option.has_effect)]
            if others:
                raise UserError(f"answers do not support {', '.join(others)}; remove them")
        elif splitter_of(options, prefix) or self.alignments:
            bundle.reading.layer_of(len(cross_attentions(bundle.model)))
        if self.prefix_column is not None and bundle.unit != Bundle.unit:
            raise UserError(f"prefix_column does not support inputs of {bundle.unit}; use prefix")
        if not generates and self.format not in (None, "jsonl"):
            raise UserError(f"answers are written as JSON lines; remove format={self.format}")
        return generates

    def _read(self, bundle: Bundle, source: Path | None) -> Iterator[Rows]:
        if source is not None and self._reader:
            return iter([[(1, self._reader.read(source))]])
        if source is not None and self._translator:
            return iter([[*enumerate(self._translator.units(source), 1)]])
        if self.prefix_column is not None:
            return read_texts(source, bundle.config.get("data"), str(self.prefix_column))
        return bundle.read_inputs(source)

    def _answers(
        self, bundle: Any, notices: Notices, first: int, rows: Rows, progress: Progress
    ) -> Iterator[str]:
        asked, count = [one for _, one in rows], self.n_best or 1
        read = chain(*(one[: len(bundle.reads)] for one in asked))
        notices.unknown.update(bundle.tokenizer.unknown([*map(in_one_line, read)]))
        for row in bundle.answer_rows(asked, self.generation, count, progress, first):
            yield json.dumps(row, ensure_ascii=False)


def _say_how(expected: str, source: Path | None) -> None:
    """Print how to enter inputs if standard input is a terminal."""
    if source is None and sys.stdin is not None and sys.stdin.isatty():
        print(f"type {expected} and press Enter; Ctrl-D to quit", file=sys.stderr)
