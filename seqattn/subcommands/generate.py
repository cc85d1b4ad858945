"""Generation of outputs for texts."""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import torch
from annotated_types import Ge, Le

from seqattn.analysis.forced_alignment import cross_attentions
from seqattn.analysis.word_alignment import pharaoh
from seqattn.bundle.bundle import Bundle
from seqattn.checking import Count
from seqattn.data.lines import in_one_line, read_texts
from seqattn.data.source_ids import Headed
from seqattn.data.text_lines import TextLines, say_copied
from seqattn.errors import UserError
from seqattn.generation import Generator, Hypothesis
from seqattn.generation.base import AnySearch, Progress
from seqattn.metrics.scripts import unsplit
from seqattn.screen import progress, say
from seqattn.storage import kind_of, replaced_file, user_path
from seqattn.subcommands.bundle_run import BundleRun, check_read
from seqattn.subcommands.journal import Journal, open_journal
from seqattn.subcommands.provenance import Provenance, bundle_contents
from seqattn.subcommands.reranking import Reranker, Reranking
from seqattn.training.rank_messages import rank_messages
from seqattn.training.ranks import rank, world_size

_SHOWN, _WIDEST = 3, 40  # unknown pieces, and their characters
_PLACES = {"bundle", "ensemble", "input", "output", "device", "trust", "window", "settings"}
"""Keys that lines do not depend on, or only by the contents of files."""
Rows = Sequence[tuple[int, Any]]
"""Inputs with their line numbers."""
Work = Callable[[int, Rows, Progress], Iterator[str]]
"""Function of the first input's index, inputs and a callback, that yields lines."""


@dataclass
class _Notices:
    """What standard error says of all inputs and outputs at the end.

    Args:
        unknown: pieces of inputs that the vocabulary lacks.
        copied: number of lines without a letter.
        unsplit: True if alignments or quality count texts as single words.
    """

    unknown: Counter[str] = field(default_factory=Counter)
    copied: int = 0
    unsplit: bool = False

    def say(self) -> None:
        say_copied(self.copied)
        if self.unsplit:
            say("texts without spaces between words count as one word each")
        if number := self.unknown.total():
            some = ", ".join(_visible(piece) for piece, _ in self.unknown.most_common(_SHOWN))
            print(
                f"the vocabulary lacks {number:,} piece{'s' * (number > 1)} of the input, such as "
                f"{some}; the model reads each as unknown",
                file=sys.stderr,
            )


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
            and output; jsonl, the same by name, of markup without rank and score. None for jsonl if
            the inputs are not texts, for tsv if n_best is above 1 or there is more to write, and
            else for text.
        rerank: settings of reranking by another model.
        markup: markup of the texts, as in `Bundle.generate`; None for plain text. It may read an
            input file as a whole.
        window: number of inputs of a file that are read and searched together.
        part: share of a file's inputs, such as "3/16"; None for all. Ranks, as of torchrun, each
            take a share of it.
        prefix, target_language: as in `Bundle.generate`; the prefix of all.
        prefix_column: a prefix for each text: a key of JSON lines, or a column of lines.
        quality: how to judge each output: more columns of tsv, or the key "quality" of jsonl; None
            not to.
        terms: as in `Bundle.generate`, an object; standard error names outputs without theirs.

    Raises:
        UserError: for several inputs, n_best above the number of hypotheses of the search, or a
            share that does not exist.
    """

    generation: AnySearch
    text: str | None = None
    question: str | None = None
    context: str | None = None
    input: str | None = None
    output: str | None = None
    n_best: Annotated[int, Ge(1), Le(1_000)] | None = None
    alignments: bool = False
    format: Literal["text", "tsv", "jsonl"] | None = None
    rerank: Reranking = field(default_factory=Reranking)
    markup: Any = None
    window: Count = 4_096
    part: str | None = None
    prefix: str | None = None
    prefix_column: str | int | None = None
    target_language: str | None = None
    quality: Any = None
    terms: Any = None

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.text, self.question, self.input)) > 1:
            raise UserError("text, question and input are mutually exclusive")
        more = "quality" if self.quality else "alignments"
        if self._more and self.format == "text":
            raise UserError(f"format=text has no {more}; remove it, or add format=jsonl")
        if self.markup is not None and (self.n_best or self._more or self.format == "tsv"):
            raise UserError(f"markup writes one text each; remove n_best, {more} and format=tsv")
        _ = self._share  # checked before the bundle is loaded
        if self.prefix_column is not None and (self.prefix is not None or self.text is not None):
            raise UserError("prefix_column needs input, and no prefix; remove one")
        if self.n_best is not None:
            object.__setattr__(self, "generation", self.generation.giving(self.n_best))

    @property
    def _more(self) -> bool:
        """True if more than the outputs is written."""
        return self.alignments or self.quality is not None

    @property
    def _is_page(self) -> bool:
        """True if the input is a file that its markup reads as a whole."""
        kinds = getattr(self.markup, "pages", ())
        return self.input is not None and kind_of(user_path(self.input)).lower() in kinds

    def run(self) -> None:
        """Read, generate and write.

        Raises:
            UserError: if a file or the bundle cannot be used.
        """
        source = None if self.input is None else user_path(self.input)
        into = user_path(self.output or "")
        # SLURM sets its variables for single commands, too
        ranks = world_size() if "WORLD_SIZE" in os.environ else 1
        place, plain = rank() if ranks > 1 else 0, source is not None and source.is_file()
        if (self.part and not plain) or (ranks > 1 and not (plain and replaced_file(into))):
            raise UserError("shares of the input need files; set input=FILE and output=FILE")
        rank_messages.from_first(str)  # ranks that cannot meet at the end fail before the search
        if ranks > 1 and self.device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        bundle: Any = self.load(self.generation)
        generates = self._check_inputs(bundle)
        if self.target_language is not None:
            bundle = bundle.into(self.target_language)
        judge = None if self.quality is None else self.quality.of(bundle)
        notices = _Notices()
        work: Work = partial(self._answers, bundle, notices)
        with ExitStack() as stack:
            if generates:
                own = self.rerank.search(self.generation)
                own = own if self.terms is None else self.terms.search(own)
                search = bundle.generator(own).open()
                reranker = self.rerank.over(bundle.tokenizer, self.device, self.trust)
                texts = self._marked if self.markup else self._outputs
                work = partial(texts, stack.enter_context(search), reranker, judge, bundle, notices)
            inputs = range(sys.maxsize)
            opened: AbstractContextManager[Journal] = nullcontext(Journal(self.output))
            if plain:  # all lines are checked before the first search
                inputs = range(sum(map(len, self._read(bundle, source))))
                for number, of in (self._share, (place + 1, ranks)):
                    inputs = inputs[len(inputs) * (number - 1) // of : len(inputs) * number // of]
                files = {"input": source, **getattr(self.terms, "files", {})}
                each = self.n_best or 1, "(?s:.*)" if self._is_page else ".*"
                opened = open_journal(
                    self.output, self._made_from, files, place, ranks, len(inputs), *each
                )
            journal, advance = stack.enter_context(opened), None
            if source is not None and place == 0:
                bar = progress("generating", "texts", journal.done, above=self.output is None)
                advance = stack.enter_context(bar)
            end = "" if self._is_page and self.format != "jsonl" else "\n"
            results = self._results(bundle, work, source, inputs, journal.done, advance)
            journal.write(results, end=end)
        for one in filter(None, (notices, self.markup, judge, self.terms)):
            one.say()

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
        return iter(lambda: [*islice(rows, self.window)], [])

    def _made_from(self) -> Provenance:
        """Return the settings and models that lines depend on."""
        plain = self.settings or {key: repr(value) for key, value in vars(self).items()}
        settings = {key: node for key, node in plain.items() if key not in _PLACES}
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

    def _check_inputs(self, bundle: Any) -> bool:
        """Return True if the bundle reads texts; raise UserError for inputs of other bundles."""
        keys = {"text": self.text, "question": self.question, "context": self.context}
        check_read(bundle, **keys)
        generates = "text" in bundle.reads
        if generates and (self.alignments or self.markup):
            bundle.reading.layer_of(len(cross_attentions(bundle.model)))
        if not generates and self.rerank.bundle:
            raise UserError("rerank needs a bundle that reads texts; remove rerank")
        if not generates and (self._more or self.markup):
            raise UserError("answers have neither alignments, quality nor markup; remove them")
        constrains = (self.prefix, self.prefix_column, self.terms) != (None, None, None)
        if constrains and (not generates or self.markup):
            raise UserError("prefix and terms need a bundle that reads texts, and no markup")
        if self.prefix_column is not None and bundle.unit != Bundle.unit:
            raise UserError(f"prefix_column does not support inputs of {bundle.unit}; use prefix")
        if not generates and self.format not in (None, "jsonl"):
            raise UserError(f"answers are written as JSON lines; remove format={self.format}")
        return generates

    def _read(self, bundle: Bundle, source: Path | None) -> Iterator[Rows]:
        if source is not None and self._is_page:
            return iter([[(1, self.markup.read(source))]])
        if self.prefix_column is not None:
            return read_texts(source, bundle.config.get("data"), str(self.prefix_column))
        return bundle.read_inputs(source)

    def _outputs(
        self,
        generator: Generator,
        reranker: Reranker | None,
        judge: Any,
        bundle: Any,
        notices: _Notices,
        first: int,
        rows: Rows,
        progress: Progress,
    ) -> Iterator[str]:
        texts = [text for _, text in rows]
        read: TextLines = bundle.lines(texts)
        notices.unknown.update(bundle.tokenizer.unknown([*map(in_one_line, read.lines)]))
        notices.copied += read.copied
        places = [first + number for number in read.texts]
        numbers = [number for number, _ in rows]
        prefix = self.prefix_column and [cast(Headed, text).beside or "" for text in texts]
        own = bundle.constraints(read, prefix or self.prefix, filter(None, [self.terms]), numbers)
        sources = bundle.encode(read.lines)
        lists = generator.generate_windows(sources, places, progress, own)
        if reranker is not None:
            reranker.known.clear()  # those of other windows
            lists = reranker.rank(read.lines, lists)
        best: Any = [_different(bundle, hypotheses)[: self.n_best or 1] for hypotheses in lists]
        more: list[tuple[str, Any, Any]] = []  # name, one for each output, and of several lines
        more += [("alignment", bundle.align, pharaoh)] if self.alignments else []
        more += [("quality", judge, judge.joined)] if judge is not None else []
        for _, make, _ in more:
            lines = [line for line, some in zip(read.lines, best) for _ in some]
            said = [one[0] for some in best for one in some]
            notices.unsplit |= any(map(unsplit, (lines, said)))
            made = iter(make(lines, said))
            best = [[(*one, next(made)) for one in some] for some in best]
        for place, lines in enumerate(read.groups(best)):
            number, text = rows[place]
            for best_first in range(max(map(len, lines))):
                each = (ranked[min(best_first, len(ranked) - 1)] for ranked in lines)
                outputs, hypotheses, *parts = zip(*each, strict=True)
                output = read.join_text(place, outputs)
                joined = {name: join(part) for (name, _, join), part in zip(more, parts)}
                if judge is not None and not best_first:
                    judge.count(number, joined["quality"], output)
                unmet = None if self.terms is None else self.terms.unmet(text, output)
                if unmet is not None and best_first == 0:
                    self.terms.count(number, text, output, unmet)
                row = (number, text, best_first + 1, output, hypotheses)
                yield self._line(*row, joined, unmet)

    def _marked(
        self,
        generator: Generator,
        reranker: Reranker | None,
        judge: Any,
        bundle: Any,
        notices: _Notices,
        first: int,
        rows: Rows,
        progress: Progress,
    ) -> Iterator[str]:
        plain = replace(self, format="text")._outputs

        def generate(texts: list[str]) -> list[str]:
            own = first, [*enumerate(texts, 1)], of_rows
            return [*plain(generator, reranker, judge, bundle, notices, *own)]

        def of_rows(done: int, total: int, tokens: int = 0) -> None:
            progress(done * len(rows) // total, len(rows), tokens)

        align = replace(bundle, words_by=self.markup.words_by).align
        form = "text" if self.text is not None or self._is_page else "line"
        form = "jsonl" if self.format == "jsonl" else form
        yield from self.markup.lines(rows, generate, align, form)

    def _line(
        self,
        number: int,
        text: str,
        rank: int,
        output: str,
        hypotheses: Sequence[Hypothesis],
        more: Mapping[str, Any],
        unmet: Sequence[str] | None,
    ) -> str:
        several = (self.n_best or 1) > 1 or self._more
        kind = self.format or ("tsv" if several else "text")
        score = sum(one.score for one in hypotheses)
        if kind == "jsonl":
            total = sum(one.log_probability for one in hypotheses)
            scores = {"score": score, "log_probability": total}
            row: dict[str, Any] = {"line": number, "source": text, "output": output, "rank": rank}
            row |= scores
            row |= {key: one if key == "alignment" else one.document() for key, one in more.items()}
            if unmet is not None:
                row["unmet"] = unmet
            return json.dumps(row, ensure_ascii=False)
        if self.text is None or len(hypotheses) == 1:  # else a single text of several lines
            output = in_one_line(output)
        if kind == "text":
            return output
        last = [one if key == "alignment" else one.tsv() for key, one in more.items()]
        return "\t".join([f"{number}\t{rank}\t{score:.4f}", output.replace("\t", " "), *last])

    def _answers(
        self, bundle: Any, notices: _Notices, first: int, rows: Rows, progress: Progress
    ) -> Iterator[str]:
        asked, count = [one for _, one in rows], self.n_best or 1
        read = chain(*(one[: len(bundle.reads)] for one in asked))
        notices.unknown.update(bundle.tokenizer.unknown([*map(in_one_line, read)]))
        for row in bundle.answer_rows(asked, self.generation, count, progress, first):
            yield json.dumps(row, ensure_ascii=False)


def _different(bundle: Bundle, hypotheses: Sequence[Hypothesis]) -> list[tuple[str, Hypothesis]]:
    """Return the best hypothesis for each distinct text, and the texts."""
    outputs = bundle.tokenizer.decode_target([hypothesis.ids for hypothesis in hypotheses])
    best: dict[str, Hypothesis] = {}
    for output, hypothesis in zip(outputs, hypotheses, strict=True):
        best.setdefault(output, hypothesis)
    return list(best.items())


def _visible(piece: str) -> str:
    """Return the start of a piece, with codes such as U+00A0 for what cannot be seen."""
    return "".join(one if one.isprintable() else f"U+{ord(one):04X}" for one in piece[:_WIDEST])


def _say_how(expected: str, source: Path | None) -> None:
    """Print how to enter inputs if standard input is a terminal."""
    if source is None and sys.stdin is not None and sys.stdin.isatty():
        print(f"type {expected} and press Enter; Ctrl-D to quit", file=sys.stderr)
