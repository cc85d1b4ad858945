"""Lines of text and of JSON, from files and from standard input."""

import io
import json
import os
import sys

import pytest

from seqattn.data.lines import read_texts
from seqattn.errors import UserError

BOM = b"\xef\xbb\xbf"


def typed(monkeypatch, stream):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))


def test_what_stands_on_standard_input_comes_in_one_part(monkeypatch):
    reading, writing = os.pipe()
    typed(monkeypatch, os.fdopen(reading, "rb"))
    os.write(writing, BOM + b"a\n\nb\r\nhal")
    parts = read_texts(None)
    assert next(parts) == [(1, "a"), (2, ""), (3, "b")]
    os.write(writing, b"f\n")
    assert next(parts) == [(4, "half")]
    os.write(writing, b"the end")
    os.close(writing)
    assert [*parts] == [[(5, "the end")]]


def test_a_person_at_a_terminal_is_asked_for_each_line(monkeypatch, capfd):
    typed(monkeypatch, io.BytesIO(b"a\n"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert [*read_texts(None)] == [[(1, "a")]]
    assert capfd.readouterr() == ("", "> > ")


def test_a_line_longer_than_a_read_is_whole(monkeypatch):
    long = "x" * 200_000
    typed(monkeypatch, io.BufferedReader(io.BytesIO(f"{long}\na\n".encode())))
    lines = [line for part in read_texts(None) for line in part]
    assert lines == [(1, long), (2, "a")]


@pytest.mark.parametrize("mark", [b"", BOM])
def test_a_byte_order_mark_is_no_text(tmp_path, mark, monkeypatch):
    (tmp_path / "t.txt").write_bytes(mark + "Öl\n\ufeffb\n".encode())
    assert [*read_texts(tmp_path / "t.txt")] == [[(1, "Öl"), (2, "\ufeffb")]]


def test_texts_that_only_remind_of_other_forms_are_texts(tmp_path):
    for text in ("<b>bold</b>", "<unk> a", "msgid", "1\n2", "{a}", '["a"]', "#\n" * 30, '"a": b'):
        (tmp_path / "x").write_text(text)
        assert [line for _, line in next(read_texts(tmp_path / "x"))] == text.splitlines()


def test_json_is_read_as_what_it_is(tmp_path):
    file = tmp_path / "x.json"
    file.write_text(json.dumps([{"document": "a\nb"}, {"document": "c"}], indent=1))
    assert [*read_texts(file)] == [[(1, "a\nb"), (2, "c")]]
    for text in (
        '\n{"source": "a\\nb"}\n\n{"source": "c"}\n',
        '{"source":\n"a\\nb"} {"source": "c"}',
    ):
        file.write_text(text)
        assert [*read_texts(file)] == [[(1, "a\nb"), (2, "c")]]


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("x.json", '{"a": 1}', "x.json row 1 has no text under source, document"),
        ("x.json", '{"source": "a"}\n{"source": 1}', "x.json row 2 has no text under source"),
        ("x.json", '{"source": "a"}\n{"source" 1}', "x.json is not valid JSON, line 2 column 11"),
        ("x.json", '["a"]', "x.json row 1 is not a JSON object"),
        ("x.json", '[{"a": 1}]', "x.json row 1 has no text under source, document"),
        ("x.json", "[", "x.json is not valid JSON, line 1"),
        ("x.csv", "a,b", "x.csv is not plain text, but a table; use one text per line, or .jsonl"),
        ("x.po", "a", "x.po is not plain text, but a catalog of messages; use"),
        ("x.Xml", "a", "x.Xml is not plain text, but XML or HTML; use generate markup=html for a "),
        (
            "x.xhtml",
            "a",
            "x.xhtml is not plain text, but XML or HTML; use generate",
        ),
        ("x.docx", "a", "x.docx is not plain text, but a document"),
        ("x.tmx.gz", "", "x.tmx.gz is not plain text, but XML or HTML"),
        ("x", '\ufeff<?xml version="1.0"?><xliff/>', "x is not plain text, but XML or HTML"),
        ("x", "\n<!DOCTYPE html>\n<p>", "x is not plain text, but XML or HTML"),
        ("x", '# a\n#: b\nmsgid ""\n', "x is not plain text, but a catalog of messages"),
        ("x", "1\r\n00:00:01,000 --> 00:00:02,000\r\nA", "x is not plain text, but subtitles"),
        ("x", '{"source": "a"}\n', "x is not plain text, but JSON"),
        ("x", '[\n{"source": "a"}]\n', "x is not plain text, but JSON"),
    ],
)
def test_what_is_no_text_is_refused_and_not_translated(tmp_path, name, content, text):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as error:
        [*read_texts(tmp_path / name)]
    assert text in str(error.value)
