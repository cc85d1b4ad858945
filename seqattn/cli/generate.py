"""`generate`: texts in, texts out."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqattn.cli.bundle import Bundle, load_bundle
from seqattn.cli.carried import compose_with_bundle
from seqattn.cli.config import plain
from seqattn.cli.kinds import check_kinds
from seqattn.errors import UserError
from seqattn.generation import Generator, Hypothesis
from seqattn.training.memory import keep_freed_memory


def generate(overrides: Sequence[str]) -> None:
    """Runs the verb on the user's overrides."""
    config, _ = compose_with_bundle("generate", overrides, {"generation": "generation"})
    settled = plain(config)
    check_kinds(settled)
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
    lines = None if source is None else read_texts(source)
    keep_freed_memory()
    bundle = load_bundle(settled["bundle"], settled["device"])
    speaker = Speaker(
        bundle, bundle.generator(search), settled["n_best"] or 1, bool(settled["scores"])
    )
    if lines is not None:
        _write(speaker.answers(lines), settled["output"])
        return
    texts = _decoded(iter(sys.stdin.buffer.readline, b""), "standard input")
    _write((line for text in texts for line in speaker.answers([text])), settled["output"])


def read_texts(path: Path) -> list[str]:
    """The lines of a UTF-8 file, empty ones included.

    Raises:
        UserError: where it is absent, or names the line that is not UTF-8.
    """
    if not path.is_file():
        raise UserError(f"input={path} is not a file")
    with path.open("rb") as file:
        return list(_decoded(file, str(path)))


def _decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        try:
            yield line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{name} line {number} is not UTF-8 text; convert the file") from error


@dataclass(frozen=True)
class Speaker:
    """Answers texts with lines of output.

    Args:
        bundle: the model.
        generator: its search.
        n_best: different outputs for each text, at most.
        scores: JSON lines with scores in place of text.
    """

    bundle: Bundle
    generator: Generator
    n_best: int
    scores: bool

    def answers(self, texts: Sequence[str]) -> Iterator[str]:
        """The lines for each text, in order."""
        found = self.generator.generate(self.bundle.encode(texts))
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
                yield output
                continue
            row = {
                "source": text,
                "output": output,
                "rank": rank,
                "score": hypothesis.score,
                "log_probability": hypothesis.log_probability,
            }
            yield json.dumps(row, ensure_ascii=False)


def _write(lines: Iterable[str], output: str | None) -> None:
    """To standard output as they come, or to a file that appears when it is whole."""
    if output is None:
        for line in lines:
            print(line, flush=True)
        return
    path = Path(output).expanduser()
    if not path.parent.is_dir():
        raise UserError(f"output={path}: the directory {path.parent} is not there; make it first")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
