"""Settings of OpusTrainer (Bogoychev et al. 2023, arXiv 2311.14838), read as those of a mixture."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqattn.checking import shown
from seqattn.data.base import MissingSplit, Source, matching, name_files
from seqattn.data.text_files import read_lines, scan_text
from seqattn.errors import UserError
from seqattn.inputs import read_yaml

if TYPE_CHECKING:
    from datasets import Dataset

_NOISE = {
    "UpperCase": "upper",
    "TitleCase": "title",
    "Typos": "typos",
    "RemoveEndPunct": "end_punctuation",
    "Noise": "copied",
    "Tags": "tags",
}
"""Keys of `noise` for modifiers."""
_READ = ("datasets", "stages", "num_fields", "modifiers", "seed", "trainer")


class TabbedText(Source):
    """Training pairs in tab-separated files without header: sources, targets, and further columns.

    Lines with too few columns or an empty one are left out.

    Args:
        paths: files, which may be compressed (".gz").
        columns: number of columns that are read; the third has links between words.
    """

    def __init__(self, paths: Sequence[Path], columns: int = 2) -> None:
        self._paths, self._columns = paths, ("source", "target", "links")[:columns]
        self.has_links, self._notes = columns == 3, list[str]()

    def load(self, split: str, cache_dir: Path | None = None) -> "Dataset":
        from seqattn.data.arrow_tables import TEXT, table_of  # `datasets` takes a second to import

        paths = self.files(split)
        if not paths:
            raise MissingSplit(f"{self.origin('train')} has no {split} split, only train")
        lines, digests = zip(*map(scan_text, paths), strict=True)
        columns = dict.fromkeys(self._columns, TEXT)
        table = table_of(
            self._rows(paths), columns, " ".join(["tabs", *columns, *digests]), cache_dir
        )
        if dropped := sum(lines) - len(table):
            reason = f"have fewer than {len(columns)} columns, or an empty one"
            self._notes = [f"{dropped:,} of {sum(lines):,} lines of {self.origin(split)} {reason}"]
        return table

    def _rows(self, paths: Sequence[Path]) -> Iterator[dict[str, str]]:
        for path in paths:
            for line in read_lines(path):
                fields = line.split("\t")
                if len(fields) >= len(self._columns) and all(fields):
                    yield dict(zip(self._columns, fields))

    def files(self, split: str) -> list[Path]:
        return [file for path in self._paths for file in matching(path)] * (split == "train")

    def origin(self, split: str) -> str:
        return name_files(self._paths)

    def notices(self) -> list[str]:
        return self._notes


def read_opustrainer(path: Path) -> tuple[dict[str, Source], list[Any], list[str]]:
    """Return sources by name, whose paths are relative to the file, nodes of stages, and notices.

    Raises:
        UserError: for a file that is not valid, or has keys that are not read.
    """
    content, origin = read_yaml(path), f"data.opustrainer={path}"
    if not isinstance(content, Mapping) or not isinstance(content.get("datasets"), Mapping):
        raise UserError(f"{origin} must have the keys datasets and stages")
    order = content.get("stages")
    if not isinstance(order, list) or not order or not all(isinstance(n, str) for n in order):
        raise UserError(f"{origin}: stages must be a list of names, got {shown(order)}")
    for key in content:
        if key not in (*_READ, *order):
            raise UserError(f"{origin}: unknown key {shown(key)}; remove it")
    _refuse_modifiers(content.get("modifiers"), origin)
    columns = content.get("num_fields", 2)
    if columns not in (2, 3):
        raise UserError(f"{origin}: num_fields must be 2 or 3, got {shown(columns)}")
    sources: dict[str, Source] = {}
    for name, files in content["datasets"].items():
        files = files if isinstance(files, list) else [files]
        if not files or not all(isinstance(file, str) for file in files):
            raise UserError(f"{origin}: datasets.{name} must be a file, got {shown(files)}")
        sources[str(name)] = TabbedText([path.parent / file for file in files], columns)
    stages = [_stage(content.get(name), f"{origin}: {name}", name == order[-1]) for name in order]
    unread = " and ".join(key for key in ("seed", "trainer") if key in content)
    notes = [f"{origin}: {unread} not read, as this run has its own"] * bool(unread)
    return sources, stages, notes


def _refuse_modifiers(modifiers: Any, origin: str) -> None:
    parts = modifiers if isinstance(modifiers, list) else [modifiers] * (modifiers is not None)
    rates: dict[str, Any] = {}
    parts = [part for item in parts for part in (item if isinstance(item, list) else [item])]
    for part in parts:
        name, rate = next(iter(part.items())) if isinstance(part, Mapping) and part else (part, 0)
        if str(name) not in _NOISE:
            raise UserError(f"{origin}: the modifier {name} is not supported")
        rates[_NOISE[name]] = rate
    if rates:
        keys = " ".join(f"noise.{key}={rate}" for key, rate in rates.items())
        raise UserError(
            f"{origin}: modifiers are those of noise here; remove them, and add "
            f"noise=[{','.join(rates)}] {keys}"
        )


def _stage(node: Any, where: str, is_last: bool) -> dict[str, Any]:
    """Return the node of a stage from lines such as `clean 0.8` and a last `until clean 2`."""
    if isinstance(node, Mapping) and "modifiers" in node:
        raise UserError(f"{where} has modifiers of its own, which are not supported")
    lines = node.get("mix") if isinstance(node, Mapping) else node
    fields = [str(line).split() for line in lines] if isinstance(lines, list) else []
    if len(fields) < 2 or any(len(words) != 2 for words in fields[:-1]) or len(fields[-1]) != 3:
        raise UserError(
            f"{where} must be lines such as 'clean 0.8', and 'until clean 2' at the end, got "
            f"{shown(node)}"
        )
    weights, (word, name, passes) = {}, fields[-1]
    ends = word == "until" and (passes == "inf" or passes.isdecimal())
    try:
        weights = {source: float(weight) for source, weight in fields[:-1]}
    except ValueError:
        ends = False
    if not ends:
        raise UserError(f"{where}: a weight or the end is not a number, got {shown(lines)}")
    if passes == "inf" and not is_last:
        raise UserError(f"{where} has no end, but is not the last stage")
    return {"weights": weights, "until": None if passes == "inf" else f"{passes} passes of {name}"}
