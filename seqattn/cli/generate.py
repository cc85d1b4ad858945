"""`generate`: texts in, texts out."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqattn.cli.answers import answer_questions
from seqattn.cli.bundle import TextBundle, load_text_bundle
from seqattn.cli.carried import compose_with_bundle
from seqattn.cli.config import plain
from seqattn.cli.fitting import learns
from seqattn.cli.kinds import check_kinds
from seqattn.cli.texts import decoded, in_one_line, read_texts, written
from seqattn.errors import UserError
from seqattn.generation import Generator, Hypothesis
from seqattn.generation.windows import generate_from_windows
from seqattn.training.memory import keep_freed_memory


def generate(overrides: Sequence[str]) -> None:
    """Runs the verb on the user's overrides."""
    config, carried = compose_with_bundle("generate", overrides, {"generation": "generation"})
    settled = plain(config)
    check_kinds(settled)
    if learns(carried) != "pairs":
        answer_questions(settled)
        return
    search = settled["generation"]
    if settled["n_best"] is not None:
        if "n_best" not in search:
            raise UserError("generation=greedy gives one hypothesis; n_best needs beam or sampling")
        if settled["n_best"] < 1:
            raise UserError(f"n_best must be at least 1, got {settled['n_best']}")
        # hypotheses that differ in tokens may read the same: the whole beam is asked for, and the
        # first n_best different texts are given
        search["n_best"] = max(settled["n_best"], search.get("beam_size", 0))
    source = None if settled["input"] is None else Path(settled["input"]).expanduser()
    column = carried.get("data", {}).get("source_column")
    lines = None if source is None else read_texts(source, column)
    keep_freed_memory()
    bundle = load_text_bundle(settled["bundle"], settled["device"], "generate")
    speaker = Speaker(
        bundle, bundle.generator(search), settled["n_best"] or 1, bool(settled["scores"])
    )
    if lines is not None:
        written(speaker.answers(lines), settled["output"])
        return
    texts = decoded(iter(sys.stdin.buffer.readline, b""), "standard input")
    written((line for text in texts for line in speaker.answers([text])), settled["output"])


@dataclass(frozen=True)
class Speaker:
    """Answers texts with lines of output.

    Args:
        bundle: the model.
        generator: its search.
        n_best: different outputs for each text, at most.
        scores: JSON lines with scores in place of text.
    """

    bundle: TextBundle
    generator: Generator
    n_best: int
    scores: bool

    def answers(self, texts: Sequence[str]) -> Iterator[str]:
        """The lines for each text, in order."""
        found = generate_from_windows(self.generator, self.bundle.encode(texts))
        for text, hypotheses in zip(texts, found, strict=True):
            yield from self._lines(text, hypotheses)

    def _lines(self, text: str, hypotheses: Sequence[Hypothesis]) -> Iterator[str]:
        ids = [hypothesis.ids for hypothesis in hypotheses]
        outputs = self.bundle.tokenizer.decode_target(ids)
        best: dict[str, Hypothesis] = {}
        for output, hypothesis in zip(outputs, hypotheses, strict=True):
            best.setdefault(output, hypothesis)
        for rank, (output, hypothesis) in enumerate(best.items(), start=1):
            if rank > self.n_best:
                return
            if not self.scores:
                yield in_one_line(output)
                continue
            row = {
                "source": text,
                "output": output,
                "rank": rank,
                "score": hypothesis.score,
                "log_probability": hypothesis.log_probability,
            }
            yield json.dumps(row, ensure_ascii=False)
