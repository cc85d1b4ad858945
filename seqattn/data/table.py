"""Tables with a column for each side: local files or any dataset of the hub."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets

from seqattn.data.quiet import quiet_datasets
from seqattn.data.text_files import json_fault, scan_text
from seqattn.errors import UserError

_HUB_SPLITS = {"train": "train", "val": "validation", "test": "test"}

# What `load_dataset` is told for each suffix. Words such as "null" or "NA" are text here, and
# quotation marks in tab-separated text are text as well.
_READERS: dict[str, tuple[str, dict[str, Any]]] = {
    ".jsonl": ("json", {}),
    ".json": ("json", {}),
    ".csv": ("csv", {"keep_default_na": False}),
    ".tsv": ("csv", {"keep_default_na": False, "sep": "\t", "quoting": csv.QUOTE_NONE}),
    ".parquet": ("parquet", {}),
}


# Source and target columns as data sets name them, the first that is there is taken. Among them
# are those of CNN/DailyMail (article, highlights), XSum (document, summary), arXiv and PubMed
# (article, abstract), SAMSum (dialogue, summary), BillSum (text, summary) and AESLC on the hub.
KNOWN_PAIRS = (
    ("source", "target"),
    ("document", "summary"),
    ("article", "highlights"),
    ("article", "abstract"),
    ("article", "summary"),
    ("dialogue", "summary"),
    ("text", "summary"),
    ("text", "headline"),
    ("text", "title"),
    ("email_body", "subject_line"),
    ("input", "output"),
    ("src", "tgt"),
)


class Table:
    """Named columns of jsonl, json, csv, tsv or parquet files, or of a dataset on the hub.

    Columns that are not named are found by the names that data sets give them (`KNOWN_PAIRS`), so
    that CNN/DailyMail and XSum work as they are.

    Args:
        files: a file for each of train, val, test; the suffix says how to read it.
        dataset: instead of files, a dataset's name on the hub, such as "wmt/wmt16".
        name: the dataset's configuration, such as "de-en"; None for its only one.
        source_column: the source texts' column; a dot leads into nested ones
            ("translation.en"); None finds it.
        target_column: the target texts' column; None finds it, and where `source_column` is
            given and none is known to go with it, there are only sources.
        references_column: a column with a list of texts for each row, all of them references to
            score against; a row with an empty list has its target. None for none.
        splits: the hub dataset's own names for train, val, test; those left out keep
            "train", "validation", "test".

    Raises:
        UserError: both or neither of `files` and `dataset`; an unknown split or suffix.
    """

    def __init__(
        self,
        files: Mapping[str, str | None] | None = None,
        dataset: str | None = None,
        name: str | None = None,
        source_column: str | None = None,
        target_column: str | None = None,
        references_column: str | None = None,
        splits: Mapping[str, str] | None = None,
    ) -> None:
        given = {split: path for split, path in (files or {}).items() if path is not None}
        if bool(given) == (dataset is not None):
            raise UserError(
                "a table must come from data.files or from data.dataset, "
                f"got {'both' if given else 'neither'}"
            )
        for split in [*given, *(splits or {})]:
            if split not in _HUB_SPLITS:
                raise UserError(f"split must be one of {', '.join(_HUB_SPLITS)}, got {split!r}")
        self.files = {split: Path(path).expanduser() for split, path in given.items()}
        for path in self.files.values():
            if path.suffix not in _READERS:
                raise UserError(f"a table's file must end in one of {_suffixes()}, got {path}")
        self.dataset, self.name = dataset, name
        self.source_column, self.target_column = source_column, target_column
        self.references_column = references_column
        self.hub_splits = {**_HUB_SPLITS, **(splits or {})}

    def splits(self) -> list[str]:
        """Names the splits that have a file, or that the hub dataset may have."""
        return list(self.files or _HUB_SPLITS)

    def load(self, split: str, cache_dir: Path | None = None) -> datasets.Dataset:
        """Reads a split; see `Source.load`.

        Raises:
            UserError: the split, a file or a column is not there, a file or the hub cannot be
                read, a column holds no text, or there is no row.
        """
        if split not in self.splits():
            raise UserError(f"the {split} split must have a file, got {', '.join(self.files)}")
        cache = None if cache_dir is None else str(cache_dir)
        with quiet_datasets():
            if self.dataset is None:
                table = _read_file(self.files[split], cache)
                origin = str(self.files[split])
            else:
                table = self._from_hub(split, cache)
                origin = f"{self.dataset} ({self.hub_splits[split]})"
            return self._sides(table, origin)

    def _from_hub(self, split: str, cache: str | None) -> datasets.Dataset:
        try:
            return datasets.load_dataset(
                self.dataset, self.name, split=self.hub_splits[split], cache_dir=cache
            )
        except Exception as error:
            # Names, configurations, splits, the network, the server: each fails with another
            # type, of several libraries, and all are for the user to mend.
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            which = f"{self.dataset} ({self.hub_splits[split]})"
            raise UserError(f"cannot load {which} from the hub: {reason}") from error

    def _sides(self, table: datasets.Dataset, origin: str) -> datasets.Dataset:
        table = table.flatten()
        columns = self._columns(table.column_names, origin)
        for column in columns.values():
            if column not in table.column_names:
                known = ", ".join(table.column_names)
                raise UserError(f"{origin} has no column {column!r}, it has {known}")
        if len(table) == 0:
            raise UserError(f"{origin} must hold text, it has no rows")
        for side, column in columns.items():
            _check_kind(table, side, column, origin)
        table = table.select_columns(list(dict.fromkeys(columns.values())))
        missing = any(table.data.column(c).null_count for c in columns.values())
        if missing or list(columns.values()) != ["source", "target"][: len(columns)]:
            table = table.map(
                _named,
                batched=True,
                fn_kwargs={"columns": columns},
                remove_columns=table.column_names,
                features=datasets.Features({side: _FEATURES[side] for side in columns}),
            )
        return table

    def _columns(self, there: list[str], origin: str) -> dict[str, str]:
        """Gives the column of each side: the named ones, and those that can be found."""
        source, target = self.source_column, self.target_column
        if source is None or target is None:
            for pair in KNOWN_PAIRS:
                fits = source in (None, pair[0]) and target in (None, pair[1])
                if fits and set(pair) <= set(there):
                    source, target = pair
                    break
        if source is None:
            known = ", ".join("/".join(pair) for pair in KNOWN_PAIRS)
            raise UserError(
                f"{origin} must have two columns of a known pair ({known}), it has "
                f"{', '.join(there)}; name them by data.source_column and data.target_column"
            )
        sides = {"source": source, "target": target, "references": self.references_column}
        return {side: column for side, column in sides.items() if column is not None}


_TEXT = datasets.Value("string")
_FEATURES = {"source": _TEXT, "target": _TEXT, "references": datasets.Sequence(_TEXT)}


def _check_kind(table: datasets.Dataset, side: str, column: str, origin: str) -> None:
    feature = table.features[column]
    inner = getattr(feature, "feature", None) if side == "references" else feature
    kind = getattr(inner, "dtype", "nested values" if side != "references" else "something else")
    if kind not in ("string", "large_string", "null"):
        must = "lists of texts" if side == "references" else "text"
        raise UserError(f"column {column!r} of {origin} must hold {must}, it holds {kind}")


def _named(rows: dict[str, list[Any]], columns: dict[str, str]) -> dict[str, list[Any]]:
    named = {
        side: [text or "" for text in rows[column]]
        for side, column in columns.items()
        if side != "references"
    }
    if "references" in columns:
        own = named.get("target", [""] * len(named["source"]))
        lists = rows[columns["references"]]
        named["references"] = [
            [text or "" for text in texts or []] or [target]
            for texts, target in zip(lists, own, strict=True)
        ]
    return named


def _read_file(path: Path, cache: str | None) -> datasets.Dataset:
    kind, options = _READERS[path.suffix]
    if kind != "parquet":
        if scan_text(path).lines == 0:
            raise UserError(f"{path} must hold text, it is empty")
    elif not path.is_file():
        raise UserError(f"{path} must be a parquet file, it does not exist")
    try:
        return datasets.load_dataset(
            kind, data_files={"train": str(path)}, split="train", cache_dir=cache, **options
        )
    except (datasets.exceptions.DatasetsError, ValueError) as error:
        if "corresponds to no data" in str(error):
            raise UserError(f"{path} must hold text, it has no rows") from error
        reason = json_fault(path) if kind == "json" else None
        reason = reason or str(error.__cause__ or error).strip().splitlines()[0]
        raise UserError(f"{path} must be {path.suffix[1:]}, cannot read it: {reason}") from error


def _suffixes() -> str:
    return ", ".join(_READERS)
