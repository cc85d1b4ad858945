"""Tables with a column for each side: local files or any dataset on the hub."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqattn.checking import NotNegative
from seqattn.data.arrow_tables import NUMBER, TEXT, TEXTS, hub_stream, hub_table
from seqattn.data.base import TOGETHER, FileOrHub, Files, pair_numbers
from seqattn.data.email_threads import Threads
from seqattn.data.source_ids import joined_source
from seqattn.data.table_files import (
    BINARY,
    READERS,
    names_in,
    read_file,
    row_texts,
    saved_files,
    stream_file,
)
from seqattn.errors import UserError
from seqattn.installation import shipped
from seqattn.storage import kind_of

# Source and target columns by common names; the first that exists is used. Among them are those
# of CNN/DailyMail (article, highlights), XSum (document, summary), arXiv and PubMed
# (article, abstract), SAMSum (dialogue, summary), BillSum (text, summary) and AESLC on the hub.
KNOWN_PAIRS = (
    ("source", "target"), ("document", "summary"), ("article", "highlights"),
    ("article", "abstract"), ("article", "summary"), ("dialogue", "summary"),
    ("text", "summary"), ("text", "headline"), ("text", "title"),
    ("email_body", "subject_line"), ("input", "output"), ("src", "tgt"),
)  # fmt: skip


class Table(FileOrHub):
    """Named columns of jsonl, json, csv, tsv, parquet or arrow files, or of a dataset on the hub.

    Columns that are not given are detected by common names (`KNOWN_PAIRS`), so that CNN/DailyMail
    and XSum work without settings.

    Args:
        files, dataset, splits: as `FileOrHub`; a file's suffix determines its format (".gz" after
            it decompresses, except for parquet and arrow), and a directory is one written by
            `save_to_disk` of a `Dataset` or a `DatasetDict`; a dataset is, for example,
            "wmt/wmt16".
        name: the dataset's configuration, such as "de-en"; None for its only one.
        source_column: column of source texts; nested ones with a dot ("translation.en"); several
            are joined into one source; None to detect it.
        target_column: column of target texts; None to detect it, or to read only sources if
            `source_column` is given and has no known counterpart.
        references_column: column with a list of reference texts for each row; a row with an empty
            list uses its target. None for none.
        source_mark: separator between the texts of several source columns.
        tag_columns: columns such as a domain or a language, whose texts are put before the source
            as "<law> <de> "; every window of a long source begins with them.
        hold_out, hold_out_test: number of rows, or share if below 1, that are drawn from train to
            be val and test, always the same ones; 0 for none.
        hold_out_by: what is drawn together: all rows of a source, or equal pairs alone.
        documents: column that names the document of each row; rows without a name are documents of
            their own. Documents are then held out whole. None for single rows.

    Raises:
        UserError: for both or neither of `files` and `dataset`; an unknown split or suffix.
    """

    def __init__(
        self,
        files: Files | None = None,
        dataset: str | None = None,
        name: str | None = None,
        source_column: str | list[str] | None = None,
        target_column: str | None = None,
        references_column: str | None = None,
        splits: Mapping[str, str] | None = None,
        source_mark: str = " ",
        tag_columns: list[str] | None = None,
        hold_out: NotNegative = 0,
        hold_out_test: NotNegative = 0,
        hold_out_by: Literal["source", "pair"] = "source",
        documents: str | None = None,
    ) -> None:
        super().__init__(files, dataset, splits)
        if bool(self.paths) == (dataset is not None):
            got = "both; set one to null" if self.paths else "neither"
            raise UserError(f"a table must come from either data.files or data.dataset, got {got}")
        for path in [path for paths in self.paths.values() for path in paths]:
            packed = kind_of(path) in BINARY and path.suffix == ".gz"
            if packed or (kind_of(path) not in READERS and not path.is_dir()):
                ends = ", ".join(READERS)
                raise UserError(
                    f"names in data.files must end in one of {ends}, or be a directory written by "
                    f"save_to_disk, got {path}"
                )
        together = TOGETHER["document" if documents else hold_out_by]
        self.hold_out(hold_out, hold_out_test, together)
        self.name, self.documents = name, documents
        self.source_column, self.target_column = source_column or None, target_column
        self.references_column = references_column
        self.source_mark, self.tag_columns = source_mark, tag_columns or []

    @property
    def source_name(self) -> str:
        return self.source_column if isinstance(self.source_column, str) else ""

    def load(self, split: str, cache_dir: Path | None = None) -> datasets.Dataset:
        parts = self._parts(split, cache_dir)
        table = parts[0] if len(parts) == 1 else datasets.concatenate_datasets(parts)
        if self.documents:
            table = _with_document_numbers(table, [*map(len, parts)], self.origin(split))
        return self.part(table, split)

    def _parts(self, split: str, cache_dir: Path | None) -> list[datasets.Dataset]:
        """Return the columns of each file."""
        origin = self.origin(split)
        if self.dataset is not None:
            table = hub_table(self.dataset, self.name, self.hub_splits[split], cache_dir)
            return [self._sides(table, split, origin)]
        paths = self.paths_of(split)
        parts = [self._sides(read_file(path, cache_dir), split, str(path)) for path in paths]
        for path, part in zip(paths, parts, strict=True):
            if part.column_names != parts[0].column_names:
                raise UserError(
                    f"all files of a split must have the same columns: {paths[0]} has "
                    f"{', '.join(parts[0].column_names)}, {path} has {', '.join(part.column_names)}"
                )
        return parts

    def paths_of(self, split: str) -> list[Path]:
        name, paths = self.hub_splits[split], super().paths_of(split)
        return [file for path in paths for file in saved_files(path, name)]

    def stream(self, split: str) -> Iterator[tuple[str, str]]:
        if self.held_out:
            yield from super().stream(split)
            return
        if self.dataset is not None:
            rows = hub_stream(self.dataset, self.name, self.hub_splits[split])
            yield from self._pairs(rows, self.origin(split))
            return
        self.origin(split)
        for path in self.paths_of(split):
            yield from self._pairs(stream_file(path), str(path))

    def _pairs(self, rows: Iterator[Mapping[str, Any]], origin: str) -> Iterator[tuple[str, str]]:
        columns: dict[str, Sequence[str]] = {}
        for row in rows:
            columns = columns or self._columns(names_in(row), origin)
            if "target" not in columns:
                raise UserError(f"{origin} has no target column; set data.target_column")
            tags, sources = (
                row_texts(row, names, origin) for names in (self.tag_columns, columns["source"])
            )
            needs_join = len(sources) > 1 or self.tag_columns
            source = joined_source(tags, sources, self.source_mark) if needs_join else sources[0]
            yield source, row_texts(row, columns["target"], origin)[0]

    def _sides(self, table: datasets.Dataset, split: str, origin: str) -> datasets.Dataset:
        """Rename a table's columns to their sides."""
        table = table.flatten()
        columns = self._columns(table.column_names, origin)
        references = self._references(split)
        if references:
            columns["references"] = [references]
        if self.group_column:
            columns["group"] = [self.group_column]
        if self.documents:
            columns["document"] = [self.documents]
        if self.tag_columns:
            columns["tags"] = self.tag_columns
        check_columns(table, columns, origin)
        return _sides(table, columns, self.source_mark)

    def _references(self, split: str) -> str | None:
        return self.references_column

    def _columns(self, there: list[str], origin: str) -> dict[str, Sequence[str]]:
        """Return the columns of each side, given or detected."""
        source, target = self.source_column, self.target_column
        if source is None or target is None:
            for pair in KNOWN_PAIRS:
                fits = source in (None, pair[0]) and target in (None, pair[1])
                if fits and set(pair) <= set(there):
                    source, target = pair
                    break
        if source is None:
            pairs = ", ".join("/".join(pair) for pair in KNOWN_PAIRS)
            raise UserError(
                f"{origin} has no known pair of columns ({pairs}), only "
                f"{', '.join(there)}; set data.source_column and data.target_column"
            )
        sources: dict[str, Sequence[str]] = {
            "source": [source] if isinstance(source, str) else source
        }
        return sources if target is None else {**sources, "target": [target]}


def check_columns(
    table: datasets.Dataset, columns: Mapping[str, Sequence[str]], origin: str
) -> None:
    """Raise UserError for a table without rows, or with a column that is missing or not text."""
    for side, column in [(side, name) for side, names in columns.items() for name in names]:
        if column not in table.column_names:
            names = ", ".join(table.column_names)
            raise UserError(f"{origin} has no column {column!r}, only {names}")
        feature, must, unexpected = table.features[column], "text", "nested values"
        if side == "references":
            feature = getattr(feature, "feature", None)
            must, unexpected = "lists of strings", "other values"
        kind = getattr(feature, "dtype", unexpected)
        texts = ("string", "large_string", "string_view", "null")
        is_label = side in ("group", "document") and "int" in kind
        if len(table) and kind not in texts and not is_label:
            raise UserError(f"column {column!r} of {origin} must contain {must}, got {kind}")
    if len(table) == 0:
        raise UserError(f"{origin} has no rows")


def _sides(
    table: datasets.Dataset, columns: Mapping[str, Sequence[str]], mark: str
) -> datasets.Dataset:
    """Return the columns under the names of their sides, with nulls as empty texts."""

    def texts(name: str) -> Any:
        column = table.data.column(name).cast(TEXT)
        return pc.fill_null(column, "") if column.null_count else column

    plain = [side for side in ("source", "target", "group", "document") if side in columns]
    sides = {side: texts(columns[side][0]) for side in plain}
    tags = columns.get("tags", ())
    if tags or len(columns["source"]) > 1:
        parts = [texts(name).to_pylist() for name in (*tags, *columns["source"])]
        rows, count = zip(*parts, strict=True), len(tags)
        source_texts = [joined_source(row[:count], row[count:], mark) for row in rows]
        sides["source"], heads = pa.array(source_texts, TEXT), [text.head for text in source_texts]
        sides |= {"head": pa.array(heads, NUMBER)} if tags else {}
    if "references" in columns:
        targets = sides["target"].to_pylist() if "target" in sides else [""] * len(table)
        references = table.data.column(columns["references"][0]).to_pylist()
        lists = [[t or "" for t in some or []] or [x] for some, x in zip(references, targets)]
        sides["references"] = pa.array(lists, TEXTS)
    return datasets.Dataset(pa.table(sides), fingerprint=table._fingerprint)


def _with_document_numbers(
    table: datasets.Dataset, sizes: Sequence[int], origin: str
) -> datasets.Dataset:
    """Replace the names in the column "document" by numbers. Args: sizes: rows of each file.

    Raises:
        UserError: if the rows of a document are not consecutive.
    """
    names, column = pair_numbers(table, ["document"]), table.data.column("document")
    unnamed = pc.equal(column, "").to_numpy()
    begins = (np.diff(names, prepend=-1) != 0) | unnamed
    begins[np.cumsum([0, *sizes[:-1]])] = True
    files = np.repeat(np.arange(len(sizes)), sizes)
    first = np.unique(files * len(table) + names, return_index=True)[1]
    repeated = np.setdiff1d(np.flatnonzero(begins & ~unnamed), first)
    if len(repeated):
        row = int(repeated[0])
        raise UserError(
            f"row {row + 1:,} of {origin} belongs to document {column[row].as_py()!r}, which ended "
            "before it; sort the rows by document"
        )
    columns = {name: table.data.column(name) for name in table.column_names}
    columns["document"] = pa.array(begins.cumsum(), NUMBER)
    return datasets.Dataset(pa.table(columns), fingerprint=table._fingerprint)


class Aeslc(Table):
    """AESLC (Zhang and Tetreault 2019, arXiv 1906.03497): business e-mails and their subjects.

    Files `ROOT/train.jsonl`, `ROOT/dev.jsonl` and optionally `ROOT/test.jsonl` with `document`,
    `summary` and, except in train, `references`. The public files have no test split.

    Args:
        root: the directory.
        all_references: True to score against all subjects of each e-mail, the original included;
            False for the original alone, as published figures. The best of several counts, so
            the two are not comparable.
        new_threads: use only e-mails of dev and test that share no thread with training; see
            `Threads`.
    """

    no_test = "use split=val for dev.jsonl"

    def __init__(self, root: str, all_references: bool = False, new_threads: bool = False) -> None:
        self.new_threads = new_threads
        names = {"train": "train.jsonl", "val": "dev.jsonl", "test": "test.jsonl"}
        super().__init__(
            {split: str(Path(root) / name) for split, name in names.items()},
            source_column="document",
            target_column="summary",
            references_column="references" if all_references else None,
        )

    def load(self, split: str, cache_dir: Path | None = None) -> datasets.Dataset:
        rows = super().load(split, cache_dir)
        if split == "train" or not self.new_threads:
            return rows
        train = super().load("train", cache_dir)
        threads = Threads(train["source"], train["target"])
        pairs = enumerate(zip(rows["source"], rows["target"], strict=True))
        unshared = [number for number, pair in pairs if not threads.share(*pair)]
        return self.part(rows, split, np.array(unshared, np.int64))

    def _references(self, split: str) -> str | None:
        return None if split == "train" else self.references_column


class DemoSummarization(Table):
    """The bundled reports and their headlines, written by a generator: see its README."""

    def __init__(self) -> None:
        folder = shipped("data") / "demo_summarization"
        super().__init__({s: str(folder / f"{s}.jsonl") for s in ("train", "val", "test")})
