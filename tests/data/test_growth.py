"""No file takes more time to read than its length."""

from contextlib import suppress

import pytest

from seqattn.data.lines import read_texts
from seqattn.data.sources import ParallelText
from seqattn.data.table import Table
from seqattn.data.text_files import scan_text
from seqattn.data.text_lines import TextLines, as_single_lines
from seqattn.data.tokenizer_side import set_apart
from seqattn.data.truecasing import Truecaser
from seqattn.data.vectors import read_vectors
from seqattn.data.word_links import read_links
from seqattn.errors import UserError
from seqattn.inputs import read_json, read_yaml
from seqattn.subcommands.journal import Journal
from seqattn.subcommands.provenance import Provenance
from tests.growth import SIGNS, grows

IN_FILES = (*SIGNS, "a\n", "a\tb\n", "1-1 ", "1-1\n", '{"a": ', "[[", "- a\n", "a: ", "1 ")


def lines(path):
    texts = [text for part in read_texts(path) for _, text in part]
    as_single_lines(texts)
    TextLines.of(texts)
    Truecaser.learnt(map(set_apart, texts))


def table(path):
    Table({"train": str(path)}, source_column="a", target_column="b").load("train", path.parent)


def pairs(path):
    (path.parent / "train.x").write_bytes(path.read_bytes())
    ParallelText(str(path.parent), "en", "x").load("train", path.parent)


def links(path):
    text = path.read_text(encoding="utf-8")
    read_links(path, [text], [text])
    path.write_text("1-1 " * (len(text) // 4))
    read_links(path, [text], [text])


def journal(path):
    record = Provenance(settings={}, contents={})
    content = f"{record.model_dump_json()}\n[1, [{path.read_text(encoding='utf-8')}"
    path.write_text(content, encoding="utf-8")
    Journal(
        str(path.with_suffix("")), [path], line_pattern="([0-9]+-[0-9]+( [0-9]+-[0-9]+)*)?"
    ).resume(record)


READERS = {
    "texts.txt": lines,
    "texts.jsonl": lines,
    "texts.json": lines,
    "beside.tsv": lambda path: [*read_texts(path, beside="2")],
    "train.en": pairs,
    **{f"table.{kind}": table for kind in ("csv", "tsv", "jsonl", "json")},
    "scanned.txt": scan_text,
    "links.txt": links,
    "vectors.txt": lambda path: read_vectors(path, ["a", "b"]),
    "plain.json": lambda path: read_json(path, "JSON"),
    "rows.json": lambda path: read_json(path, "JSON", rows=True),
    "plain.yaml": read_yaml,
    "out.partial": journal,
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_takes_no_more_time_than_its_length(name, tmp_path):
    def read(text):
        text = f'{{"a": "{text}"}}' if name.endswith((".jsonl", ".json")) else text
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
        with suppress(UserError):
            READERS[name](tmp_path / name)

    assert [sign for sign in IN_FILES if grows(read, sign)] == []
