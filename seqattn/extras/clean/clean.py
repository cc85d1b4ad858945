"""Cleaning of a corpus by few rules, with a report that has examples by reason."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqattn.bundle.load import load_bundle
from seqattn.checking import Seed
from seqattn.errors import UserError
from seqattn.extras.clean.rules import CorpusCleaning
from seqattn.extras.clean.scores import PairScores
from seqattn.extras.corpora.corpora import pair_line, where_it_is, write_choice
from seqattn.extras.shards.cleaning import first_of_each
from seqattn.screen import print_table, progress
from seqattn.settings.data_paths import without_paths
from seqattn.settings.nodes import Node
from seqattn.storage import user_path, write_whole
from seqattn.subcommands.provenance import Provenance, bundle_contents, data_contents
from seqattn.training.run_directory import claimed

CHOICE, REPORT = "cleaned", "report.md"
_AT_ONCE, _SAMPLE = 1_000, 10_000
_EXAMPLES, _SHOWN = 10, 200  # examples of a reason, and characters of a side
_LEAK = "pair of val or test"
_FOUND = {
    "numbers": "numbers differ", "addresses": "addresses differ", "script": "other script",
    "language": "other language",
}  # fmt: skip
Numbers = npt.NDArray[np.int64]


@dataclass
class _Reasons:
    """Why pairs are dropped.

    Args:
        size: number of pairs.

    Attributes:
        names: the reasons; the first is that of pairs that are retained.
        codes: (N,) the number of each pair's reason.
    """

    size: int
    names: list[str] = field(default_factory=lambda: ["retained"])

    def __post_init__(self) -> None:
        self.codes = np.zeros(self.size, np.int16)

    def drop(self, rows: Any, name: str) -> None:
        """Note a reason. Args: rows: one row, or several."""
        if name not in self.names:
            self.names.append(name)
        self.codes[rows] = self.names.index(name)

    @property
    def retained(self) -> Numbers:
        """Rows that are retained, ascending."""
        return np.flatnonzero(self.codes == 0)

    def rows(self) -> dict[str, Numbers]:
        """Return the rows that are dropped, by reason."""
        each = {name: np.flatnonzero(self.codes == n) for n, name in enumerate(self.names)}
        return {name: rows for name, rows in each.items() if name != "retained" and len(rows)}


@dataclass(frozen=True, kw_only=True)
class CleanedCorpus:
    """Cleaning of the training pairs of a corpus.

    Args:
        data: source of the pairs.
        output: directory of the new corpus.
        clean: rules for dropping pairs.
        device: device of models.
        trust: packages besides seqattn that parts of bundles may come from.
        cache_dir: cache of `datasets`; None for its default.
        seed: seed of the examples.
        settings: the plain settings that this object was built from.
    """

    data: Any
    output: str
    clean: CorpusCleaning = field(default_factory=CorpusCleaning)
    device: str = "cpu"
    trust: Sequence[str] = ()
    cache_dir: str | None = None
    seed: Seed = 1
    settings: Mapping[str, Node] = field(default_factory=dict, repr=False)

    def run(self) -> Path:
        """Read, clean, write and print; return the directory.

        Raises:
            UserError: if the data or a bundle cannot be read, training pairs are in val or test, or
                none is left.
        """
        if getattr(self.data, "yields", "pairs") != "pairs" or self.data.redraws:
            raise UserError("clean reads pairs of texts; train on other data directly")
        if getattr(self.data, "documents", None):
            raise UserError("clean drops lines of documents; remove data.documents")
        directory = user_path(self.output)
        with claimed(directory, "output"):
            provenance = self._provenance()
            if provenance.is_finished(directory, f"data/{CHOICE}.yaml"):
                return directory
            splits, notes = self._splits()
            rows = splits["train"]
            reasons, found = self._cleaned(rows, splits)
            summary = {"pairs read": f"{len(rows):,}"}
            for name, numbers in reasons.rows().items():
                summary[f"dropped: {name}"] = _share(len(numbers), len(rows))
            if not len(reasons.retained):
                counts = ", ".join(f"{name} {len(some):,}" for name, some in reasons.rows().items())
                raise UserError(f"none of {len(rows):,} pairs is left to train on: {counts}")
            for name, numbers in found.items():
                summary[f"retained: {name}"] = _share(len(numbers), len(rows))
            summary["training pairs"] = _share(len(reasons.retained), len(rows))
            provenance.write(directory)
            splits["train"] = rows.select(reasons.retained)
            for split, table in splits.items():
                write_whole(directory / f"{split}.jsonl", _lines(table))
            write_whole(directory / REPORT, self._report(rows, summary, reasons.rows() | found))
            files = {split: [f"{split}.jsonl"] for split in splits}
            write_choice(directory, CHOICE, files, source_column="source")
        notes += [f"examples of each reason: {directory / REPORT}"]
        print_table("clean", summary, notes=[*notes, *where_it_is(directory, CHOICE)])
        return directory

    def _provenance(self) -> Provenance:
        contents = data_contents(self.data, ["train", "val", "test"])
        for key in ("bundle", "reverse"):
            if path := getattr(self.clean, key):
                contents[f"clean.{key}"] = bundle_contents(path)
        clean = {**asdict(self.clean), "bundle": None, "reverse": None}  # known by their contents
        clean["drop"] = sorted(self.clean.drop)
        data: Any = without_paths(self.settings["data"]) if "data" in self.settings else None
        settings = {"subcommand": "clean", "data": data, "clean": clean, "seed": self.seed}
        return Provenance(settings=settings, contents=contents)

    def _splits(self) -> tuple[dict[str, Any], list[str]]:
        """Return the rows of the splits that exist, and a line for each other one."""
        splits, notes = dict[str, Any](), list[str]()
        for split in ("train", "val", "test"):
            try:
                rows = self.data.load(split, user_path(self.cache_dir) if self.cache_dir else None)
            except UserError as error:
                if split == "train":
                    raise
                notes.append(f"no {split} split: {error}")
                continue
            if "target" not in rows.column_names:
                raise UserError(
                    f"{split} has no targets; set data.target_column or data.target_suffix"
                )
            if "head" in rows.column_names:
                raise UserError("clean reads pairs without tags; remove data.tag_columns")
            splits[split] = rows
        return splits, notes

    def _cleaned(self, rows: Any, splits: Mapping[str, Any]) -> tuple[_Reasons, dict[str, Numbers]]:
        """Return why rows are dropped, and retained rows by what is counted."""
        clean, reasons = self.clean, _Reasons(len(rows))
        sample = rows.select(range(0, len(rows), -(-len(rows) // _SAMPLE)))
        checks = clean.checks(sample["source"], sample["target"])
        found = {name: np.zeros(len(rows), bool) for name in checks}
        pairs, targets = np.zeros((2, len(rows)), np.uint64)
        with progress("cleaning", "pairs") as advance:
            for row, source, target in _pairs(rows):
                if (fault := clean.fault(source, target)) is not None:
                    reasons.drop(row, fault)
                    continue
                pairs[row], targets[row] = _hash(source, target), _hash(target)
                for name, check in checks.items():
                    found[name][row] = check(source, target)
                if row % _AT_ONCE == 0:
                    advance(row, len(rows))
        for name in clean.drop:
            reasons.drop(found[name] & (reasons.codes == 0), _FOUND[name])
        if clean.duplicates:
            _drop_later(reasons, pairs, "duplicate pair")
        if clean.leaks != "keep":
            self._drop_leaks(reasons, pairs, splits)
        if clean.bundle:
            self._drop_by_models(reasons, rows, targets)
        if clean.targets:  # of those with the best source, the first
            _drop_later(reasons, targets, "duplicate target")
        counted = {
            _FOUND[name]: np.flatnonzero(some & (reasons.codes == 0))
            for name, some in found.items()
        }
        return reasons, {name: some for name, some in counted.items() if len(some)}

    def _drop_leaks(
        self, reasons: _Reasons, pairs: npt.NDArray[np.uint64], splits: Mapping[str, Any]
    ) -> None:
        others = [rows for split, rows in splits.items() if split != "train"]
        known = [_hash(source, target) for rows in others for _, source, target in _pairs(rows)]
        retained = reasons.retained
        leaks = retained[np.isin(pairs[retained], np.array(known, np.uint64))]
        if len(leaks) and self.clean.leaks == "error":
            raise UserError(
                f"{len(leaks):,} pairs of train are in val or test, too (first: {leaks[0] + 1:,}); "
                "add clean.leaks=drop to leave them out, or clean.leaks=keep"
            )
        reasons.drop(leaks, _LEAK)

    def _drop_by_models(
        self, reasons: _Reasons, rows: Any, targets: npt.NDArray[np.uint64]
    ) -> None:
        paths = [path for path in (self.clean.bundle, self.clean.reverse) if path]
        scores = PairScores(*(load_bundle(path, self.device, self.trust) for path in paths))
        if (minimum := self.clean.min_information) is not None:
            some = reasons.retained
            with progress("scoring", "pairs") as advance:
                for number, (row, score) in enumerate(_scored(scores.information, rows, some)):
                    if score < minimum:
                        reasons.drop(row, f"source tells under {minimum:g} nats per target token")
                    if number % _AT_ONCE == 0:
                        advance(number, len(some))
        if self.clean.targets == "best":
            retained = reasons.retained
            _, inverse, counts = np.unique(
                targets[retained], return_inverse=True, return_counts=True
            )
            some = retained[counts[inverse] > 1]
            best = dict[int, tuple[float, int]]()
            for row, score in _scored(scores.log_probabilities, rows, some):
                key = int(targets[row])
                best[key] = max(best.get(key, (score, -row)), (score, -row))
            winners = [-row for _, row in best.values()]
            reasons.drop(np.setdiff1d(some, winners), "duplicate target")

    def _report(
        self, rows: Any, summary: Mapping[str, str], found: Mapping[str, Numbers]
    ) -> Iterator[bytes]:
        """Yield the lines of a report in Markdown."""
        yield b"# Cleaning\n\n| | pairs |\n|---|---|\n"
        for name, count in summary.items():
            yield f"| {name} | {count} |\n".encode()
        random = np.random.default_rng(self.seed)
        for name, numbers in found.items():
            yield f"\n## {name}\n".encode()
            some = np.sort(random.permutation(numbers)[:_EXAMPLES])
            for row, one in zip(some.tolist(), rows.select(some), strict=True):
                sides = (" ".join(one[side].split())[:_SHOWN] for side in ("source", "target"))
                text = "".join(f"    {side}\n" for side in sides)
                yield f"\n{row + 1:,}:\n\n{text}".encode(errors="replace")


def _drop_later(reasons: _Reasons, hashes: npt.NDArray[np.uint64], name: str) -> None:
    """Drop rows whose hash an earlier one has."""
    rows = reasons.retained
    [first] = first_of_each([hashes[rows]])
    reasons.drop(np.delete(rows, first), name)


def _pairs(rows: Any) -> Iterator[tuple[int, str, str]]:
    """Yield the number of each row, its source and its target."""
    row = 0
    for part in rows.iter(batch_size=_AT_ONCE):
        for source, target in zip(part["source"], part["target"], strict=True):
            yield row, source, target
            row += 1


def _scored(score: Any, rows: Any, numbers: Numbers) -> Iterator[tuple[int, Any]]:
    """Yield some rows with their scores."""
    for at in range(0, len(numbers), _AT_ONCE):
        some = numbers[at : at + _AT_ONCE]
        part = rows.select(some)
        yield from zip(some.tolist(), score([*part["source"]], [*part["target"]]), strict=True)


def _hash(*texts: str) -> int:
    """Return a hash of 64 bits."""
    content = "\0".join(texts).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _lines(rows: Any) -> Iterator[bytes]:
    for part in rows.iter(batch_size=_AT_ONCE):
        references = part.get("references") or [()] * len(part["source"])
        for row in zip(part["source"], part["target"], references, strict=True):
            yield pair_line(*row)


def _share(count: int, total: int) -> str:
    return f"{count:,} ({count / total:.2%})"
