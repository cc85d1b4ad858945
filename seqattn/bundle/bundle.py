"""A bundle at work: a trained model with the tokenizer and the search that it was made for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, overload

from torch import nn

from seqattn.bundle.choices import choices
from seqattn.bundle.documents import Config
from seqattn.bundle.files import part_of
from seqattn.bundle.inputs import Texts, as_many, several
from seqattn.bundle.nodes import Node, build, changed, nearest
from seqattn.data.reading import question_source, read_sources
from seqattn.data.span_batch import SpanEncoder
from seqattn.data.text_lines import TextLines, as_single_lines
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.generation.base import Hypothesis, Search
from seqattn.generation.ensemble import Ensemble
from seqattn.generation.generator import Generator
from seqattn.generation.span_search import Answered, Answerer, SpanSearch
from seqattn.generation.windows import InWindow, generate_from_windows, search_windows
from seqattn.models.base import Seq2SeqModel
from seqattn.models.span_base import SpanModel
from seqattn.tokens import EOS

Choice = str | Search | SpanSearch | Mapping[str, Node] | None
"""A search: its name such as "greedy" (the files of `conf/generation`), an object, or a node as
such a file holds it; None for the bundle's own."""


@dataclass(repr=False)
class Bundle:
    """A trained model with its tokenizer and configuration.

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


@dataclass(repr=False)
class TextBundle(Bundle):
    """A bundle that answers in its own words: what `seqattn.load` gives for most tasks.

    `generate` gives the best output for each text, `hypotheses` several with their scores,
    `answer` answers questions by task=qa_generative. Each takes a search by name or as an object,
    and settings of it: `generate(texts, "beam", beam_size=2)`.

    Attributes:
        model: the network, a `torch.nn.Module` in eval mode.
        tokenizer, config, scores, path: its vocabularies, settings, figures and directory.
        ensemble: other bundles' models that answer with this one, by the mean probability.
    """

    model: Seq2SeqModel
    ensemble: Sequence[Seq2SeqModel] = ()
    batches: ClassVar[str] = "pairs"
    output: ClassVar[str] = "text"

    @overload
    def generate(  # a text is a sequence of texts, too
        self, texts: str, generation: Choice = None, **settings: Any
    ) -> str: ...

    @overload
    def generate(
        self, texts: Iterable[str], generation: Choice = None, **settings: Any
    ) -> list[str]: ...

    def generate(self, texts: Texts, generation: Choice = None, **settings: Any) -> str | list[str]:
        """The best output for each text, or for the one text; an empty text gives an empty one.

        A model of single lines generates the lines of a text apart, see `lines`.

        Args:
            texts: sources, as written: one, or several.
            generation: a search such as "greedy", see `search`; None for the bundle's own.
            **settings: of the search, such as beam_size=2.

        Returns:
            One text for one text, a list for a list.

        Raises:
            UserError: for a text that is too long, or as `search`.
        """
        read = self.lines(texts)
        generator, windows = self.generator(generation, **settings), self.encode(read.lines)
        found = generate_from_windows(generator, windows, read.texts)
        outputs = read.join(self.tokenizer.decode_target([best[0].ids for best in found]))
        return outputs[0] if isinstance(texts, str) else outputs

    def answer(
        self, questions: Texts, contexts: Texts, generation: Choice = None, **settings: Any
    ) -> list[str]:
        """The best answer to each question on its context, of a bundle of task=qa_generative.

        Args:
            questions: N, or one.
            contexts: the context of each.
            generation, **settings: as `generate`.
        """
        pairs = zip(*as_many(questions, contexts), strict=True)
        return self.generate([question_source(*pair) for pair in pairs], generation, **settings)

    def hypotheses(
        self, texts: Texts, generation: Choice = None, **settings: Any
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each text, best first, each with `ids`, `score` and `log_probability`.

        Args: as `generate`, such as n_best=3.
        """
        return generate_from_windows(self.generator(generation, **settings), self.encode(texts))

    def best(self, text: str, generation: Choice = None, **settings: Any) -> InWindow:
        """The best hypothesis for a text, and in which of the windows of `encode` it was found.

        Args: as `generate`.
        """
        found = search_windows(self.generator(generation, **settings), self.encode(text))
        return found[0][0]

    def lines(self, texts: Texts) -> TextLines:
        """Texts as they are generated from: their lines apart, where the model reads one line.

        That is a model of pairs (long_sources=drop) whose source vocabulary has no line break.
        Generate from `lines` of the result, and `join` the outputs.
        """
        return TextLines.of(several(texts), self._reads_line)

    def encode(self, texts: Texts) -> list[list[list[int]]]:
        """Source ids of each text as the model reads it, in one part or in several windows.

        Where the model knows no line breaks they are read as spaces, which standard error tells.
        """
        read = several(texts)
        if self._reads_line or self._line_breaks == "unknown":
            read = as_single_lines(read)
        return read_sources(read, self.tokenizer, self._loader())

    @cached_property
    def _line_breaks(self) -> str:
        return self.tokenizer.source_line_breaks()

    @cached_property
    def _reads_line(self) -> bool:
        return self._line_breaks != "piece" and self._loader().long_sources == "drop"

    def ended(self, ids: Sequence[int]) -> list[int]:
        """An output's ids with the end, but where the model's positions have no room for it."""
        return [*ids] if len(ids) == self.model.max_target_length else [*ids, EOS]

    def generator(self, generation: Choice = None, **settings: Any) -> Generator:
        """The search over the model. Args: as `search`."""
        made: Search = self.search(generation, **settings)
        return made.over(self.answering)

    @property
    def answering(self) -> Seq2SeqModel | Ensemble:
        """The model, or the ensemble of it and others."""
        return Ensemble([self.model, *self.ensemble]) if self.ensemble else self.model


@dataclass(repr=False)
class SpanBundle(Bundle):
    """A bundle that answers questions by spans of their contexts, of task=qa: see `answer`.

    Attributes: as `TextBundle`.
    """

    model: SpanModel
    batches: ClassVar[str] = "spans"
    output: ClassVar[str] = "spans"

    def answer(
        self, questions: Texts, contexts: Texts, generation: Choice = None, **settings: Any
    ) -> list[Answered]:
        """Answers to each question, the likeliest first, with their characters and probabilities.

        Args:
            questions: N, or one.
            contexts: the context of each.
            generation, **settings: as `search`, such as answers=3.
        """
        asked = as_many(questions, contexts)
        return self.answerer(generation, **settings).answer(*asked)

    def answerer(self, generation: Choice = None, **settings: Any) -> Answerer:
        """The search over the model. Args: as `search`."""
        return Answerer(self.model, self.encoder, self.search(generation, **settings))

    @property
    def encoder(self) -> SpanEncoder:
        """Questions and contexts to batches, as in training."""
        return SpanEncoder(self.tokenizer, self._loader())
