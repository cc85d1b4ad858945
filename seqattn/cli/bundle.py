"""A bundle: the directory that holds all that generating, evaluating and analysing need."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model
from torch import nn

from seqattn.cli.build import build_generator, build_model, make
from seqattn.cli.bundle_files import SCORES, WEIGHTS, part_of, read_config
from seqattn.data.answer_pairs import question_source
from seqattn.data.reading import read_sources
from seqattn.data.span_encode import SpanEncoder
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.generation import Generator, Hypothesis
from seqattn.generation.spans import Answered, Answerer
from seqattn.generation.windows import generate_from_windows
from seqattn.models.base import Seq2SeqModel
from seqattn.models.span import SpanModel

Config = dict[str, Any]


@dataclass
class Bundle:
    """A trained model with its tokenizer and configuration.

    Args:
        model: in eval mode.
        tokenizer: its vocabularies.
        config: the resolved configuration of its training.
        scores: what it scored then.
        path: where it was loaded from.
    """

    model: nn.Module
    tokenizer: Tokenizer
    config: Config
    scores: Config
    path: Path


@dataclass
class TextBundle(Bundle):
    """A bundle that says things in its own words. Args: as `Bundle`."""

    model: Seq2SeqModel

    def generate(
        self, texts: Sequence[str], generation: Mapping[str, Any] | None = None
    ) -> list[str]:
        """The best output for each text; an empty text gives an empty one.

        Args:
            texts: sources, as written.
            generation: a node such as `conf/generation/beam.yaml`; None for the bundle's own.
        """
        found = self.hypotheses(texts, generation)
        return self.tokenizer.decode_target([best[0].ids for best in found])

    def answer(
        self,
        questions: Sequence[str],
        contexts: Sequence[str],
        generation: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """The best answer to each question, of a bundle trained by task=qa_generative."""
        return self.generate(list(map(question_source, questions, contexts)), generation)

    def hypotheses(
        self, texts: Sequence[str], generation: Mapping[str, Any] | None = None
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each text, best first. Args: as `generate`."""
        return generate_from_windows(self.generator(generation), self.encode(texts))

    def encode(self, texts: Sequence[str]) -> list[list[list[int]]]:
        """Source ids of each text as the model reads it, in one part or in several windows."""
        return read_sources(texts, self.tokenizer, make(self.config["loader"]).sources)

    def generator(self, generation: Mapping[str, Any] | None = None) -> Generator:
        """The search of a generation node, or of the bundle's own, over this model."""
        return build_generator(dict(generation or self.config["generation"]), self.model)


@dataclass
class SpanBundle(Bundle):
    """A bundle that answers questions by spans of their contexts. Args: as `Bundle`."""

    model: SpanModel

    def answer(
        self,
        questions: Sequence[str],
        contexts: Sequence[str],
        generation: Mapping[str, Any] | None = None,
    ) -> list[Answered]:
        """Answers to each question, the likeliest first, with their characters and probabilities.

        Args:
            questions: N.
            contexts: the context of each.
            generation: a node such as `conf/generation/spans.yaml`; None for the bundle's own.
        """
        return self.answerer(generation).answer(questions, contexts)

    def answerer(self, generation: Mapping[str, Any] | None = None) -> Answerer:
        """The search of a generation node, or of the bundle's own, over this model."""
        return Answerer(self.model, self.encoder, make(generation or self.config["generation"]))

    @property
    def encoder(self) -> SpanEncoder:
        """Questions and contexts to batches, as in training."""
        options = make(self.config["loader"])
        return SpanEncoder(self.tokenizer, options.windows, options.limits)


def load_bundle(path: str | Path, device: str = "cpu") -> TextBundle | SpanBundle:
    """Loads a bundle.

    Raises:
        UserError: where it is absent, foreign or truncated.
    """
    path = Path(path).expanduser()
    config = read_config(path)
    tokenizer = Tokenizer.load(path)
    for part in ("model", "attention", "position", "generation"):
        part_of(config, part, path)
    model = build_model(config, tokenizer)
    weights = path / WEIGHTS
    try:
        load_model(model, str(weights))
    except FileNotFoundError as error:
        raise UserError(f"{weights} is not there; the bundle is incomplete: train again") from error
    except (SafetensorError, RuntimeError, OSError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(
            f"{weights} cannot be read ({reason}); copy it anew or train again"
        ) from error
    try:
        model.to(torch.device(device)).eval()
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device={device} cannot be used here; use device=cpu") from error
    scores = path / SCORES
    known = json.loads(scores.read_text(encoding="utf-8")) if scores.is_file() else {}
    if isinstance(model, SpanModel):
        return SpanBundle(model, tokenizer, config, known, path)
    return TextBundle(model, tokenizer, config, known, path)


def load_text_bundle(path: str | Path, device: str, verb: str) -> TextBundle:
    """Loads a bundle for a verb that has no use for one that answers by spans.

    Raises:
        UserError: as `load_bundle`, or for such a bundle.
    """
    bundle = load_bundle(path, device)
    if isinstance(bundle, SpanBundle):
        raise UserError(f"{path} answers questions by spans; {verb} takes an encoder-decoder")
    return bundle
