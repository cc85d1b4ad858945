"""Corpora written for training, each with a choice of `data` that reads it."""

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import yaml

from seqattn.data.base import Source, Texts
from seqattn.data.lines import read_texts
from seqattn.errors import UserError
from seqattn.installation import commands
from seqattn.settings.nodes import TARGET
from seqattn.storage import user_path, write_whole


def read_splits(source: Source, cache_dir: str | None) -> tuple[dict[str, Texts], dict[str, str]]:
    """Return the available splits of pairs, and for each other split why it was skipped.

    Args:
        source: source of the pairs.
        cache_dir: as `Source.load`.

    Raises:
        UserError: if there is no training split, or a split has no targets.
    """
    splits, notes = {}, {}
    for split in ("train", "val", "test"):
        try:
            rows = source.load(split, Path(cache_dir) if cache_dir else None)
        except UserError as error:
            if split == "train":
                raise
            notes[split] = f"skipped: {error}"
            continue
        splits[split] = Texts.of(rows)
        if not splits[split].targets:
            raise UserError(f"{split} has no targets; set data.target_column or data.target_suffix")
    return splits, notes


def input_texts(file: str, data: Any) -> list[str]:
    """Return the texts of a file as `generate` reads it, with the columns of a source of data."""
    names = ("source_column", "tag_columns", "source_mark")
    columns = {name: getattr(data, name, None) for name in names}
    return [text for part in read_texts(user_path(file), columns) for _, text in part]


def texts_contents(splits: Mapping[str, Texts]) -> dict[str, list[str]]:
    """Return digests of all texts of some splits, for `Provenance`."""
    digests = {}
    for split, texts in splits.items():
        digest = hashlib.sha256()
        for row in zip_longest(texts.sources, texts.targets, texts.references):
            digest.update(json.dumps(row).encode())
        digests[f"data.{split}"] = [digest.hexdigest()]
    return digests


def pair_line(
    source: str, target: str, references: Sequence[str], more: Mapping[str, str] | None = None
) -> bytes:
    """Return a row of a corpus as a line of JSON. Args: more: extra columns."""
    reference_list = references if len(references) > 1 else ()  # defaults to the target
    return json_line(
        {**(more or {}), "source": source, "target": target, "references": list(reference_list)}
    )


def json_line(row: Mapping[str, Any]) -> bytes:
    """Return a row as a line of JSON."""
    return f"{json.dumps(row, ensure_ascii=False)}\n".encode()


def write_choice(
    directory: Path, name: str, files: Mapping[str, Iterable[str]], **columns: Any
) -> None:
    """Write a corpus's choice of `data`.

    Args:
        directory: directory of the corpus.
        name: name of the choice.
        files: file names within it, by split.
        columns: further arguments of `Table`, besides the target and the references.
    """
    absolute = directory.resolve()
    node = {
        TARGET: "seqattn.data.table.Table",
        "files": {split: [str(absolute / file) for file in some] for split, some in files.items()},
        **columns,
        "target_column": "target",
        "references_column": "references",
    }
    (directory / "data").mkdir(exist_ok=True)
    write_whole(directory / "data" / f"{name}.yaml", yaml.safe_dump(node, sort_keys=False).encode())


def where_it_is(directory: Path, name: str) -> list[str]:
    """Return lines on where a corpus is and how to train on it. Args: name: name of the choice."""
    overrides = f"--config-dir {shlex.quote(str(directory))} data={name}"
    return [f"written to {directory}", commands(f"train on it with: python train.py {overrides}")]
