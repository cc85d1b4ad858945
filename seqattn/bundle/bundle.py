"""A bundle at work: a trained model with the tokenizer and the search that it was made for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, overload

import torch
from torch import nn

from seqattn.bundle.architecture import Architecture, Vocabularies
from seqattn.bundle.documents import Config
from seqattn.bundle.files import WEIGHTS, part_of, read_config, read_scores
from seqattn.bundle.nodes import Node, build
from seqattn.bundle.weights import load_model
from seqattn.checking import keys_under
from seqattn.data.reading import question_source, read_sources
from seqattn.data.span_batch import SpanEncoder
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.generation import Generator, Hypothesis
from seqattn.generation.base import generate_from_windows
from seqattn.generation.span_search import Answered, Answerer
from seqattn.models.base import Seq2SeqModel
from seqattn.models.span_base import SpanModel

Texts = str | Sequence[str]
"""One, or several."""
Choice = Mapping[str, Node] | None
"""A search's node such as `conf/generation/beam.yaml`; None for the bundle's own."""


@dataclass
class Bundle:
    """A trained model with its tokenizer and configuration.

    Args:
        model: in eval mode.
        tokenizer: its vocabularies.
        config: the configuration of its training, as nodes.
        scores: what it scored then.
        path: where it was loaded from.
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

    def _made(self, name: str, trait: str, given: Choice = None) -> Any:
        """What a node makes, the bundle's own or a given one, where it shares a trait."""
        made = build(part_of(self.config, name, self.path) if given is None else given, name)
        needed = getattr(self, trait)
        if getattr(made, trait, None) != needed:
            raise UserError(f"{name} must be of those for {needed}, got a {type(made).__name__}")
        return made


@dataclass
class TextBundle(Bundle):
    """A bundle that answers in its own words."""

    model: Seq2SeqModel
    batches: ClassVar[str] = "pairs"
    output: ClassVar[str] = "text"

    @overload
    def generate(  # type: ignore[overload-overlap]  # a text is a sequence of texts, too
        self, texts: str, generation: Choice = None
    ) -> str: ...

    @overload
    def generate(self, texts: Sequence[str], generation: Choice = None) -> list[str]: ...

    def generate(self, texts: Texts, generation: Choice = None) -> str | list[str]:
        """The best output for each text, or for the one text; an empty text gives an empty one.

        Args:
            texts: sources, as written.
            generation: a node such as `conf/generation/beam.yaml`; None for the bundle's own.
        """
        found = self.hypotheses(_several(texts), generation)
        outputs = self.tokenizer.decode_target([best[0].ids for best in found])
        return outputs[0] if isinstance(texts, str) else outputs

    def answer(self, questions: Texts, contexts: Texts, generation: Choice = None) -> list[str]:
        """The best answer to each question, or to one, of a bundle of task=qa_generative."""
        pairs = zip(_several(questions), _several(contexts), strict=True)
        return self.generate([question_source(*pair) for pair in pairs], generation)

    def hypotheses(self, texts: Sequence[str], generation: Choice = None) -> list[list[Hypothesis]]:
        """Hypotheses for each text, best first."""
        return generate_from_windows(self.generator(generation), self.encode(texts))

    def encode(self, texts: Sequence[str]) -> list[list[list[int]]]:
        """Source ids of each text as the model reads it, in one part or in several windows."""
        return read_sources(texts, self.tokenizer, self._made("loader", "batches"))

    def generator(self, generation: Choice = None) -> Generator:
        """The search over the model."""
        node = part_of(self.config, "generation", self.path) if generation is None else generation
        sizes = {name: node[name] for name in ("batch_size", "batch_tokens") if name in node}
        search = {name: value for name, value in node.items() if name not in sizes}
        with keys_under("generation"):
            return Generator(self.model, self._made("generation", "output", search), **sizes)


@dataclass
class SpanBundle(Bundle):
    """A bundle that answers questions by spans of their contexts."""

    model: SpanModel
    batches: ClassVar[str] = "spans"
    output: ClassVar[str] = "spans"

    def answer(
        self, questions: Texts, contexts: Texts, generation: Choice = None
    ) -> list[Answered]:
        """Answers to each question, the likeliest first, with their characters and probabilities.

        Args:
            questions: N, or one.
            contexts: the context of each.
            generation: a node such as `conf/generation/spans.yaml`; None for the bundle's own.
        """
        return self.answerer(generation).answer(_several(questions), _several(contexts))

    def answerer(self, generation: Choice = None) -> Answerer:
        """The search over the model."""
        return Answerer(self.model, self.encoder, self._made("generation", "output", generation))

    @property
    def encoder(self) -> SpanEncoder:
        """Questions and contexts to batches, as in training."""
        return SpanEncoder(self.tokenizer, self._made("loader", "batches"))


def _several(texts: Texts) -> Sequence[str]:
    return [texts] if isinstance(texts, str) else texts


def load_bundle(
    path: str | Path, device: str = "cpu", trust: Collection[str] = ()
) -> TextBundle | SpanBundle:
    """Loads a bundle, see `seqattn.load`; its sizes are held against its files before use.

    Raises:
        UserError: where it is absent, foreign or damaged, or names a package that is not trusted.
    """
    path = Path(path).expanduser()
    config = read_config(path, trust)
    for part in ("model", "attention", "position", "loader", "generation"):
        part_of(config, part, path)
    tokenizer = Tokenizer.load(path)
    sizes = Vocabularies(tokenizer.source_size, tokenizer.target_size, tokenizer.joint)
    model = load_model(path / WEIGHTS, Architecture.of(config), sizes)
    try:
        torch.empty(1, device=device).item()  # meta has no numbers to give
        model.to(torch.device(device)).eval()
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device={device} cannot be used here; use device=cpu") from error
    found = (tokenizer, config, read_scores(path), path)
    if isinstance(model, SpanModel):
        spans = SpanBundle(model, *found)
        spans.answerer()  # what cannot be used is refused here
        return spans
    texts = TextBundle(model, *found)
    texts.generator()
    texts.encode([])
    return texts
