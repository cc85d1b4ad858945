"""`generate`: texts in, texts out."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from seqattn.cli.bundle import Bundle, load_bundle
from seqattn.cli.carried import compose_with_bundle
from seqattn.cli.config import plain
from seqattn.errors import UserError
from seqattn.generation import Generator, Hypothesis


def generate(overrides: Sequence[str]) -> None:
    """Runs the verb on the user's overrides."""
    config, _ = compose_with_bundle("generate", overrides, {"generation": "generation"})
    settled = plain(config)
    search = settled["generation"]
    if settled["n_best"] is not None:
        if "n_best" not in search:
            raise UserError("generation=greedy gives one hypothesis; n_best needs beam or sampling")
        search["n_best"] = settled["n_best"]
    source = None if settled["input"] is None else Path(settled["input"]).expanduser()
    lines = None if source is None else read_texts(source)
    bundle = load_bundle(settled["bundle"], settled["device"])
    generator = bundle.generator(search)
    if lines is not None:
        answers = _answers(bundle, generator, lines, bool(settled["scores"]))
        _write(answers, settled["output"])
        return
    _write(_one_by_one(bundle, generator, bool(settled["scores"])), settled["output"])


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


def _answers(
    bundle: Bundle, generator: Generator, texts: Sequence[str], scores: bool
) -> Iterator[str]:
    found = generator.generate(bundle.encode(texts))
    for text, hypotheses in zip(texts, found, strict=True):
        yield from _shown(bundle, text, hypotheses, scores)


def _one_by_one(bundle: Bundle, generator: Generator, scores: bool) -> Iterator[str]:
    for text in _decoded(iter(sys.stdin.buffer.readline, b""), "standard input"):
        yield from _answers(bundle, generator, [text], scores)


def _shown(
    bundle: Bundle, text: str, hypotheses: Sequence[Hypothesis], scores: bool
) -> Iterator[str]:
    """A line for each hypothesis: its text, or JSON with its rank and scores."""
    outputs = bundle.tokenizer.decode_target([hypothesis.ids for hypothesis in hypotheses])
    for rank, (output, hypothesis) in enumerate(zip(outputs, hypotheses, strict=True), start=1):
        if not scores:
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
