"""A trained model for inference, with its tokenizer and search."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, overload

from seqattn.analysis.forced_alignment import aligning_pairs
from seqattn.analysis.word_alignment import AlignmentReading, WordAlignment, WordsOf, align
from seqattn.bundle.files import part_of
from seqattn.bundle.outputs import Outputs, Rank
from seqattn.bundle.prefixes import Prefixes
from seqattn.bundle.text_arguments import TextOrTexts, paired, text_list
from seqattn.bundle.text_options import (
    OutputOf,
    Split,
    TextOption,
    Whole,
    all_texts,
    checked_by,
    generator_with,
    is_option,
    options_of,
    search_with,
    segment_outputs,
    split_with,
    splitter_of,
)
from seqattn.data.base import Texts
from seqattn.data.lines import read_texts
from seqattn.data.source_ids import read_sources
from seqattn.data.text_lines import INVISIBLE, NO_BREAK, TextLines, as_single_lines, say_copied
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.generation.base import AnySearch, Hypothesis, Progress, Search, listed
from seqattn.generation.constraints import Constraints
from seqattn.generation.ensemble import Ensemble
from seqattn.generation.forced_decoding import Sides
from seqattn.generation.generator import Generator, InWindow, line_indices
from seqattn.generation.processors import EncoderNoRepeatNgram, ForcedPrefix
from seqattn.models.base import Seq2SeqModel
from seqattn.settings.choices import choices
from seqattn.settings.documents import Config
from seqattn.settings.nodes import TARGET, Node, build, nearest, with_settings
from seqattn.tokens import EOS, UNK

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
class Bundle:
    """A trained model with its tokenizer, configuration and search; `seqattn.load` returns it.

    `generate` returns the best output for each text, `hypotheses` several with their scores. Each
    takes a search by name or as an object, and settings of it: `generate(texts, "beam",
    beam_size=2)`.

    Attributes:
        model: the network, a `torch.nn.Module` in eval mode.
        tokenizer, config, scores, path: its vocabularies, settings as nodes, scores at the end of
            training, and directory.
        ensemble: other bundles' models, whose probabilities are averaged with this one's.
        searched_by: returns a search bound to the model of an engine; None for PyTorch.
        words_by: finds the words to align in pieces; None for those between spaces.
    """

    model: Seq2SeqModel
    tokenizer: Tokenizer
    config: Config
    scores: dict[str, Any]
    path: Path
    ensemble: Sequence[Seq2SeqModel] = ()
    searched_by: Callable[[Search], Generator] | None = None
    words_by: WordsOf | None = None

    batches: ClassVar[str] = "pairs"
    """Kind of batches that its loader makes."""
    output: ClassVar[str] = "text"
    """Kind of output of its model and search."""
    unit: ClassVar[str] = "texts"
    """Name of its inputs."""
    searches: ClassVar[Sequence[str]] = ("greedy", "beam", "sampling")
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
            generation: "greedy", "beam", "sampling" or "mbr"; an object of
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
        search = build(with_settings(node, settings) if settings else node, "generation")
        return self.with_target_prefix(self._of_kind(search, "generation", "output"))

    def _of_kind(self, part: Any, name: str, trait: str) -> Any:
        """Return a part built from a node, after checking that it fits this kind of bundle."""
        needed = getattr(self, trait)
        if getattr(part, trait, None) != needed:
            raise UserError(
                f"this bundle needs a {name} setting for {needed}, got {type(part).__name__}"
            )
        return part

    @cached_property
    def loader(self) -> Any:
        """Options of its batches, by which it reads long sources."""
        loader = build(part_of(self.config, "loader", self.path), "loader")
        return self._of_kind(loader, "loader", "batches")

    def texts(self, use: str) -> "Bundle":
        """Return this bundle, which generates text.

        Raises:
            UserError: if a subclass does not; `use` names what needs text, for the message.
        """
        return self

    def as_input(self, *values: str) -> Any:
        """Return an input of `generate`, from the values of its keys."""
        return values[0]

    def read_inputs(self, path: Path | None) -> Iterator[list[tuple[int, Any]]]:
        """Yield the inputs of a file with their line numbers, in parts; see `read_texts`."""
        return read_texts(path, self.config.get("data"))

    @overload
    def generate(  # overlaps the next: a str is an Iterable[str], too
        self, texts: str, generation: Choice = None, **settings: Any
    ) -> str: ...

    @overload
    def generate(
        self, texts: Iterable[str], generation: Choice = None, **settings: Any
    ) -> list[str]: ...

    def generate(
        self,
        texts: TextOrTexts,
        generation: Choice = None,
        *,
        prefix: TextOrTexts | None = None,
        target_language: str | None = None,
        **settings: Any,
    ) -> str | list[str]:
        """Generate the best output for each text; the output for an empty text is empty.

        A model that reads single lines generates each line of a text separately, or each sentence
        if it learned single ones (sentences="none" does not); a translation copies lines without
        a letter. Standard error says so; see `lines`.

        Args:
            texts: raw source texts, one or several.
            generation: a search such as "greedy", see `search`; None for the bundle's own.
            prefix: what every output begins with, or a text for each input; a word that no space
                follows may be unfinished. An empty text still has an empty output.
            target_language: language of the outputs of a multilingual model, such as "deu_Latn".
            **settings: settings of the search, such as beam_size=2, and options: a group of `conf/`
                as key, and a name of its files, an object of theirs, or settings of the only one.
                markup="html" or "placeholders" is put where its words went; terms={"entries":
                {...}} lists terms that outputs must or must not have.

        Returns:
            One text for one text, a list for a list.

        Raises:
            UserError: for a text that is too long, or as `search`.
        """
        if target_language is not None:
            into = self.into(target_language)
            return into.generate(texts, generation, prefix=prefix, **settings)
        options, generator = self._with_options(generation, settings)
        splitter = splitter_of(options, ["prefix"] * (prefix is not None))
        raw = text_list(texts)
        documents = splitter.split(raw) if splitter else [Whole([text]) for text in raw]
        beside = ["prefix"] * (prefix is not None)
        split = split_with(options.values(), beside)
        read = self.lines(all_texts(documents), split=split)
        own = self.constraints(read, prefix, options.values())
        numbers = [number for number, one in enumerate(documents) for _ in one.texts]
        generator = generator_with(options.values(), self, generator, read, numbers)
        indices = line_indices(read.texts)
        hypotheses = generator.generate_windows(self.encode(read.lines), indices, constraints=own)
        hypotheses = checked_by(
            options.values(), self, generator, read.lines, indices, hypotheses, own is not None
        )
        say_copied(read.copied)
        best = self.tokenizer.decode_target([several[0].ids for several in hypotheses])
        outputs = read.join(best)
        if splitter:
            align = replace(self, words_by=splitter.words_by).align
            pairs = zip(documents, segment_outputs(read, best, documents), strict=True)
            each = splitter.restore([*pairs], align)
            for number, (text, one) in enumerate(zip(raw, each, strict=True), 1):
                splitter.note(OutputOf(number, "", "", (), text, one, True))
            outputs = [one.text for one in each]
        for option in options.values():
            option.say()
        return outputs[0] if isinstance(texts, str) else outputs

    def hypotheses(
        self,
        texts: TextOrTexts,
        generation: Choice = None,
        *,
        prefix: TextOrTexts | None = None,
        **settings: Any,
    ) -> list[list[Hypothesis]]:
        """Return hypotheses for each text, best first, with `ids`, `score` and `log_probability`.

        Args: as `generate`, such as n_best=3.
        """
        texts = text_list(texts)
        options, generator = self._with_options(generation, settings)
        splitter_of(options, ["hypotheses"])
        if split := split_with(options.values(), ["hypotheses"]):
            _ = [split.parts(text, "") for text in texts]  # counts them
        for option in options.values():
            option.say()
        own = self.constraints(TextLines.of(texts, False), prefix, options.values())
        return generator.generate_windows(self.encode(texts), constraints=own)

    def _with_options(
        self, generation: Choice, settings: dict[str, Any]
    ) -> tuple[dict[str, TextOption], Generator]:
        """Return the options among settings, and the generator with the rest."""
        given = {key: settings.pop(key) for key in [*settings] if is_option(key)}
        values = options_of(given, defaults=True)
        options = {key: option.of(self) for key, option in values.items()}
        search = search_with(options.values(), self.search(generation, **settings))
        return options, self.generator(search)

    def best(self, text: str, generation: Choice = None, **settings: Any) -> InWindow:
        """Return the best hypothesis for a text, and the number of its window from `encode`.

        Args: as `generate`.
        """
        return self.generator(generation, **settings).search_windows(self.encode(text))[0][0]

    def into(self, language: str) -> "Bundle":
        """Return the bundle of a multilingual model for outputs in a language, by its code.

        Raises:
            UserError: the model has no such language.
        """
        return self._into(language)

    @cached_property
    def _into(self) -> Callable[[str], "Bundle"]:
        return lru_cache(8)(lambda code: replace(self, tokenizer=self.tokenizer.into(code)))

    def constraints(
        self,
        lines: TextLines,
        prefix: TextOrTexts | None,
        options: Iterable[TextOption] = (),
        numbers: Sequence[int] | None = None,
    ) -> Sequence[Constraints] | None:
        """Return the constraints on the outputs of lines, None for none.

        Args:
            lines, prefix: as from `lines`, and in `generate`.
            options: options with constraints of their own.
            numbers: of the texts, for messages; None to count them from 1.

        Raises:
            UserError: a prefix or their number is wrong, or a text has several lines.
        """
        own: Sequence[Constraints] | None = None
        if prefix is not None:
            own = self._begun(lines, prefix, numbers)
        for one in options:
            own = one.constraints(self, lines, own)
        return own

    def _begun(
        self, lines: TextLines, prefix: TextOrTexts, numbers: Sequence[int] | None
    ) -> list[Constraints]:
        count = len(lines.parts)
        if len(lines.lines) > count:
            raise UserError("a text has several lines; remove prefix, or pass each line by itself")
        each, single = text_list(prefix), isinstance(prefix, str)
        if len(each) != count and not single:
            raise UserError(f"prefix must be one text, or one for each of {count} inputs")
        rows = zip(each, numbers or range(1, count + 1))
        return [self._prefixes.read(*row) for row in rows] * (count if single else 1)

    @cached_property
    def _prefixes(self) -> Prefixes:
        return Prefixes(self.tokenizer)

    @cached_property
    def reading(self) -> AlignmentReading:
        """Reading of word alignments; the subcommand `align` chooses and stores it."""
        node: Any = self.config.get("alignment") or {}
        if not isinstance(node, Mapping):
            raise UserError(f"alignment in {self.path}/config.yaml is damaged; remove it")
        path = f"{AlignmentReading.__module__}.{AlignmentReading.__qualname__}"
        reading: AlignmentReading = build({TARGET: path, **node}, "alignment")
        return reading

    def align(self, sources: TextOrTexts, targets: TextOrTexts) -> list[WordAlignment]:
        """Align the words of texts and their outputs, by one pass of the model.

        There are no links for an empty side, one that is longer than the model allows, or a source
        of several windows. Line breaks are read as spaces.
        """
        return [words for [words] in self.align_by([self.reading], sources, targets)]

    def align_by(
        self, readings: Sequence[AlignmentReading], sources: TextOrTexts, targets: TextOrTexts
    ) -> list[list[WordAlignment]]:
        """Return the alignments of each pair by each reading; see `align`."""
        sources, targets = paired(sources, targets, ("source", "target"))
        fitting = self.fitting_pairs(sources, targets)
        results = [
            [WordAlignment(source.split(), target.split(), [])] * len(readings)
            for source, target in zip(sources, targets, strict=True)
        ]
        weights = aligning_pairs(self.model, [*fitting.values()], readings)
        for (number, pair), each in zip(fitting.items(), weights, strict=True):
            read, said = self.pieces_of(pair, (sources[number], targets[number]))
            results[number] = [align(rows, read, said, self.words_by) for rows in each]
        return results

    def fitting_pairs(self, sources: Sequence[str], targets: Sequence[str]) -> dict[int, Sides]:
        """Return the ids of the pairs with text on both sides that the model reads whole."""
        limits = self.model.max_source_length, self.model.max_target_length
        fitting: dict[int, Sides] = {}
        read = zip(self.encode(sources), self.tokenizer.encode_target(targets), strict=True)
        for number, (windows, ids) in enumerate(read):
            pair = windows[0], ids
            fits = (1 < len(ids) <= (most or len(ids)) for ids, most in zip(pair, limits))
            if len(windows) == 1 and all(fits):
                fitting[number] = pair
        return fitting

    def pieces_of(self, pair: Sides, texts: Sequence[str | None]) -> list[list[str]]:
        """Return the pieces of a pair of ids; the begin of each side is `<s>`.

        Args:
            pair: as from `fitting_pairs`.
            texts: text of each side, to name pieces that the vocabulary lacks; None for none.
        """
        sides = self.tokenizer.source_pieces, self.tokenizer.target_pieces
        begins = self.tokenizer.source_begin, self.tokenizer.target_begin
        return [
            ["<s>"] * len(begin) + name(ids, text if UNK in ids else None)[len(begin) :]
            for name, begin, ids, text in zip(sides, begins, pair, texts)
        ]

    def lines(
        self, texts: TextOrTexts, copies: bool = True, split: Split | None = None
    ) -> TextLines:
        """Split texts into lines if the model reads single lines.

        A model reads single lines if long_sources=drop and the source vocabulary has no line
        break. Generate from the result's `lines`, and `join` the outputs. Soft hyphens and the like
        that the vocabulary lacks are left out.

        Args:
            texts: one or several.
            copies: False if the model must read lines without a letter, too, which a translation
                otherwise copies: see `TextGeneration.copy_letterless`.
            split: splits lines further, into sentences; None not to.
        """
        copies = copies and self.copies_letterless
        texts, apart = text_list(texts), self.reads_lines
        return TextLines.of(texts, apart, copies, self._unread, *split or ())

    def encode(self, texts: TextOrTexts) -> list[list[list[int]]]:
        """Return source ids of each text, in one part or in several windows.

        If the model's vocabulary has no line breaks, they are read as spaces, with a note on
        standard error.
        """
        read = text_list(texts)
        if self.reads_lines or self._line_breaks == "unknown":
            read = as_single_lines(read)
        return read_sources(read, self.tokenizer, self.loader)

    @property
    def copies_letterless(self) -> bool:
        """True for a translation, unless its pairs show that the model reads such texts, too."""
        task = self.config.get("task")
        return isinstance(task, Mapping) and task.get("copy_letterless", False) is not False

    @cached_property
    def _unread(self) -> str:
        signs = INVISIBLE + NO_BREAK
        lacking = "".join(self.tokenizer.unknown([f"a{sign}a" for sign in signs]))
        return "".join(sign for sign in signs if sign in lacking)

    @cached_property
    def _line_breaks(self) -> str:
        return self.tokenizer.source_line_breaks()

    @cached_property
    def reads_lines(self) -> bool:
        """True if the model reads single lines, see `lines`."""
        return self._line_breaks != "piece" and self.loader.long_sources == "drop"

    @property
    def reads_documents(self) -> bool:
        """True if the model learned texts of several lines, each of them a sentence."""
        data = self.config.get("data")
        return not self.reads_lines and isinstance(data, Mapping) and bool(data.get("documents"))

    def with_end_mark(self, ids: Sequence[int]) -> list[int]:
        """Append the end mark to an output's ids, unless they fill the model's positions."""
        return [*ids] if len(ids) == self.model.max_target_length else [*ids, EOS]

    def with_target_prefix(self, search: Search) -> Search:
        """Return a search whose outputs begin as every target does, or with a prefix of its own."""
        begin, own = self.tokenizer.target_begin, listed(search.processors)
        if not self.tokenizer.joint and any(isinstance(one, EncoderNoRepeatNgram) for one in own):
            raise UserError(
                "encoder_no_repeat_ngram compares ids of sources and outputs, which have their own "
                "vocabularies here; remove it from generation.processors"
            )
        if not begin or any(isinstance(one, ForcedPrefix) for one in own):
            return search
        return replace(search, processors=(ForcedPrefix(begin, own),))

    def generator(self, generation: Choice = None, **settings: Any) -> Generator:
        """Return the search bound to the model. Args: as `search`."""
        search: Search = self.search(generation, **settings)
        if self.searched_by:
            return self.searched_by(search)
        return Generator(self.answering, search)

    @property
    def answering(self) -> Seq2SeqModel | Ensemble:
        """The model, or the ensemble of it and other bundles' models."""
        return Ensemble([self.model, *self.ensemble]) if self.ensemble else self.model

    def check(self) -> None:
        """Check that the search and the loader named by its files can be used."""
        self.generator()
        self.encode([])

    def rows(self, table: Any, split: str) -> Texts:
        """Return the rows of a split, for scoring.

        Raises:
            UserError: if they have no references.
        """
        if "target" not in table.column_names:
            raise UserError(f"split {split} has no references to score against")
        return Texts.of(table)

    def outputs(
        self,
        rows: Texts,
        search: Choice = None,
        progress: Progress | None = None,
        rank: Rank | None = None,
        options: Sequence[TextOption] = (),
    ) -> Outputs:
        """Return the best output for each row, and the seconds taken.

        Args:
            rows: as from `rows`.
            search: None for the bundle's own.
            progress: called after each batch.
            rank: reorders the hypotheses of each line.
            options: of the outputs.
        """
        began = time.perf_counter()
        read = self.lines(rows.sources, split=split_with(options))
        encoded = self.encode(read.lines)
        indices = line_indices(read.texts)
        documents = rows.documents or range(len(rows.sources))
        generator = generator_with(options, self, self.generator(search), read, documents)
        hypotheses = generator.generate_windows(encoded, indices, progress)
        if rank is not None:
            hypotheses = rank(read.lines, hypotheses)
        seconds = time.perf_counter() - began
        say_copied(read.copied)
        texts = read.join(self.tokenizer.decode_target([best[0].ids for best in hypotheses]))
        tokens = sum(len(best[0].ids) + 1 for best in hypotheses)
        return Outputs(rows, texts, seconds, tokens)
