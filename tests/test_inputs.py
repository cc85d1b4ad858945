"""Files of others are read within bounds, and what cannot be read ends in one line."""

import gzip
import os
import threading
import tracemalloc

import pytest

from seqattn.data.lines import read_texts
from seqattn.data.table_files import stream_file
from seqattn.data.text_files import LONGEST_LINE, aligned_lines, read_lines, scan_text
from seqattn.data.vectors import read_vectors
from seqattn.errors import UserError
from seqattn.inputs import csv_rows, parse_yaml, read_bytes, read_json, read_yaml

MEGABYTE = 1 << 20
READERS = {
    "lines": lambda path: [*read_lines(path)],
    "scan": scan_text,
    "texts": lambda path: [*read_texts(path)],
    "pairs": lambda path: [*aligned_lines(path, path)],
    "vectors": lambda path: read_vectors(path, ["a"]),
    "bytes": lambda path: read_bytes(path, MEGABYTE),
    "json": lambda path: read_json(path, "JSON", largest=MEGABYTE),
    "yaml": read_yaml,
}


@pytest.fixture
def endless(tmp_path):
    """A file of one line of 300 MB that takes no room, and one that is packed."""
    (tmp_path / "plain").touch()
    os.truncate(tmp_path / "plain", 300 * MEGABYTE)
    with gzip.open(tmp_path / "packed.gz", "wb", compresslevel=1) as file:
        for _ in range(300):
            file.write(bytes(MEGABYTE))
    return tmp_path


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ["plain", "packed.gz"])
def test_a_line_is_refused_before_it_is_in_memory(endless, reader, name):
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=f"{name}(: line 1)? is l"):
            READERS[reader](endless / name)
        assert tracemalloc.get_traced_memory()[1] < 12 * MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ["/dev/zero", "/dev/urandom", "/"])
def test_what_is_no_file_and_no_pipe_is_refused(reader, name, tmp_path):
    (tmp_path / "link").symlink_to(name)
    with pytest.raises(UserError, match=r"is a device|not a regular file|directory"):
        READERS[reader](tmp_path / "link")


def test_a_pipe_is_read_as_it_comes(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[b"a\nb\n"], daemon=True)
    writer.start()
    assert [*read_lines(tmp_path / "pipe")] == ["a", "b"]
    writer.join(timeout=10)


def test_a_pair_with_an_endless_side_is_no_text_and_others_stay(tmp_path):
    (tmp_path / "en").write_bytes(b"a\n" + b"x" * (3 * LONGEST_LINE) + b"\nc\n")
    (tmp_path / "de").write_bytes(b"A\nB\nC\n")
    pairs = [*aligned_lines(tmp_path / "en", tmp_path / "de")]
    assert pairs == [("a", "A"), ("\ufffd", "B"), ("c", "C")]


DEEP = b'{"source":"a"}\n' + b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("t.jsonl", b"", "is empty"),
        ("t.jsonl.gz", b"", "is empty"),
        ("t.jsonl.gz", gzip.compress(b"", mtime=0), "is empty"),
        ("t.csv", b"", "is empty"),
        ("t.jsonl.gz", gzip.compress(b"{}\n" * 999, mtime=0)[:-9], "cannot read"),
        ("t.jsonl.gz", b"no gzip", "cannot read"),
        ("t.jsonl", DEEP, "line 2 nests lists and objects too deeply"),
        ("t.jsonl", b'{"source":"a"}\n[1]\n', "line 2 must be a JSON object"),
    ],
)
def test_a_table_that_is_streamed_ends_in_one_line(tmp_path, name, content, reason):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=reason):
        list(stream_file(tmp_path / name))


@pytest.mark.parametrize("content", ["step,a\n1,x\n", "step,a\n1,\xff\n"])
def test_figures_that_are_no_numbers_are_refused(tmp_path, content):
    (tmp_path / "m.csv").write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=r"m.csv must be a table of numbers"):
        csv_rows(tmp_path / "m.csv")


def test_figures_that_are_still_written_are_read_up_to_there(tmp_path):
    (tmp_path / "m.csv").write_text("step,a\n1,2.5\n2,\n3")
    assert csv_rows(tmp_path / "m.csv") == [{"step": "1", "a": "2.5"}, {"step": "2", "a": ""}]
    assert csv_rows(tmp_path / "none.csv") == []


@pytest.mark.parametrize(
    "text", ["[" * 9000, "a: 2001-99-99", "a: *x", "!!set {a}", "a: [", "- a\n" * 30_000]
)
def test_yaml_that_is_deep_tagged_or_large_is_refused(text):
    with pytest.raises(UserError, match="YAML"):
        parse_yaml(text)
