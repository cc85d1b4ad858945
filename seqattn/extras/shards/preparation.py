"""Locking, checks and summary for corpus preparation."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.extras.shards.shard_files import MANIFEST, TOKENIZER, WORK, Manifest, read_manifest
from seqattn.screen import duration, print_table
from seqattn.settings.nodes import build
from seqattn.storage import file_faults, is_file
from seqattn.subcommands.provenance import Provenance
from seqattn.training.run_directory import claimed

MAKING = "making shards"
"""Name of the longest part of the work."""
_OF_READING = ("data", "clean", "seed")
"""Settings that determine how texts are read and cleaned."""


@contextmanager
def lock_directory(path: Path) -> Iterator[None]:
    """Lock a directory for this process.

    Raises:
        UserError: if another process holds it, or it has unrelated files.
    """
    with file_faults("make", path):
        there = path.iterdir() if path.exists() else []
        foreign = [entry.name for entry in there if entry.name != ".lock"]
    if foreign and not {MANIFEST, WORK} & set(foreign):
        raise UserError(
            f"output={path} contains other files ({foreign[0]}); choose a new directory"
        )
    with claimed(path, "output"):
        yield


def texts_of_chunks(provenance: Provenance) -> tuple[dict[str, Any], list[str]]:
    """Return settings and contents that determine the texts in chunks, before encoding."""
    settings = {key: provenance.settings.get(key) for key in _OF_READING}
    return settings, provenance.contents.get("data.train", [])


def vocabulary_of(path: Path) -> tuple[Tokenizer, TokenizerConfig]:
    """Return the vocabulary of a prepared directory or a bundle, and its settings.

    Raises:
        UserError: if it is neither.
    """
    if is_file(path / MANIFEST):
        return Tokenizer.load(path / TOKENIZER), read_manifest(path).tokenizer
    from seqattn.bundle.files import part_of, read_config  # torch takes seconds to import

    config = part_of(read_config(path), "tokenizer", str(path))
    return Tokenizer.load(path), build(config, "tokenizer")


@contextmanager
def timed(times: dict[str, float], part: str) -> Iterator[None]:
    """Record the seconds that a part of the work takes."""
    began = time.perf_counter()
    yield
    times[part] = time.perf_counter() - began


def print_prepared(output_dir: Path, manifest: Manifest, times: Mapping[str, float]) -> None:
    """Print what was read, dropped and written. Args: times: seconds of this run's work."""
    counts = dict(manifest.counts)
    read = counts.pop("read")
    rows = {"pairs read": f"{read:,}"}
    for reason, count in counts.items():
        rows[f"dropped: {reason}"] = f"{count:,} ({count / read:.2%})"
    rows["training pairs"] = f"{manifest.pairs:,}"
    rows |= {split: f"{entry.rows:,} pairs" for split, entry in manifest.splits.items()}
    source, target = (
        sum(getattr(shard, f"{side}_tokens") for shard in manifest.train)
        for side in ("source", "target")
    )
    rows["tokens"] = f"{source:,} source, {target:,} target"
    rows["shards"] = (
        f"{len(manifest.train):,}, {sum(e.bytes for e in manifest.train) / 1e6:,.0f} MB"
    )
    if times:
        rows["time"] = " · ".join(f"{part} {duration(seconds)}" for part, seconds in times.items())
        rows["tokens/s"] = f"{(source + target) / times[MAKING]:,.0f} while making shards"
    print_table(
        f"Prepared {output_dir}", rows, notes=[f"train with data=shards data.root={output_dir}"]
    )


@contextmanager
def or_hold_out() -> Iterator[None]:
    """Suggest hold_out in the error for a missing split within the block."""
    try:
        yield
    except UserError as error:
        raise UserError(
            f"{error}; or set hold_out=2000 to validate on that many training pairs"
        ) from error
