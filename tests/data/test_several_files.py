"""Several files, patterns and packed files make a split, and their columns a source."""

import gzip
import json
from pathlib import Path

import pytest

from seqattn.data.base import Texts
from seqattn.data.lines import read_texts
from seqattn.data.sources import ParallelText
from seqattn.data.table import Table
from seqattn.errors import UserError
from tests.data.source_helpers import columns, refusal

BOM = b"\xef\xbb\xbf"


def write(path, text, mark=b""):
    content = mark + text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


@pytest.fixture
def corpus(tmp_path):
    for name, text, mark in (
        ("news2.en", "c\n", BOM), ("news2.de", "C\n", b""), ("news1.en.gz", "a\nb\n", BOM),
        ("news1.de", "A\nB\n", b""), ("web.en", "d\n", b""), ("web.de.gz", "D\n", b""),
    ):  # fmt: skip
        write(tmp_path / name, text, mark)
    return tmp_path


@pytest.mark.parametrize(
    "train", [["news1", "news2", "web"], ["news*", "web"], ["**s?", "w*"], ["{root}/news*", "**b"]]
)
def test_parallel_files_follow_each_other_packed_or_not(corpus, train):
    train = [name.format(root=corpus) for name in train]
    source = ParallelText(str(corpus), "en", "de", train=train, val="web")
    assert columns(source.load("train")) == {"source": list("abcd"), "target": list("ABCD")}
    assert columns(source.load("val")) == {"source": ["d"], "target": ["D"]}


def test_what_is_wrong_with_one_of_several_files_names_it(corpus):
    def load(*train):
        return refusal(lambda: ParallelText(str(corpus), "en", "de", train=[*train]).load("train"))

    assert load("none*") == f"no file in {corpus} matches none*.en"
    assert load() == "data.train must be a file name without its suffix, got []"
    write(corpus / "odd.en", "a\nb\n"), write(corpus / "odd.de", "a\n")
    assert load("web", "odd") == (
        f"source and target must have the same number of lines: {corpus}/odd.en has 2, "
        f"{corpus}/odd.de has 1"
    )
    (corpus / "cut.en.gz").write_bytes(gzip.compress(b"a\n" * 99)[:-9])
    assert load("cut").startswith("the train split requires cut.de")
    write(corpus / "cut.de", "a\n")
    assert load("cut").startswith(f"cannot read {corpus}/cut.en.gz: ")
    (corpus / "no.en.gz").write_bytes(b"plain"), write(corpus / "no.de", "a\n")
    assert load("no").startswith(f"cannot read {corpus}/no.en.gz: Not a gzipped file")


def rows(*pairs):
    return "".join(json.dumps({"source": s, "target": t}) + "\n" for s, t in pairs)


def test_tables_follow_each_other_whatever_their_kinds(tmp_path):
    write(tmp_path / "b2.jsonl", rows("cC"), BOM)
    write(tmp_path / "b1.jsonl.gz", rows("aA", "bB"), BOM)
    write(tmp_path / "d.csv.gz", "target,source,more\nD,d,x\n", BOM)
    files = [str(tmp_path / name) for name in ("**1.jsonl.gz", "b?.jsonl", "d.csv.gz")]
    source = Table({"train": files, "val": files[2]})
    assert columns(source.load("train")) == {"source": list("abcd"), "target": list("ABCD")}
    assert columns(source.load("val")) == {"source": ["d"], "target": ["D"]}
    absent = Table({"train": [str(tmp_path / "z*.csv")]})
    assert refusal(lambda: absent.load("train")) == f"no file matches {tmp_path}/z*.csv"
    write(tmp_path / "e.csv", "source\na\n")
    alone = Table({"train": [files[2], str(tmp_path / "e.csv")]}, source_column="source")
    assert refusal(lambda: alone.load("train")) == (
        f"all files of a split must have the same columns: {files[2]} has source, target, "
        f"{tmp_path}/e.csv has source"
    )
    for none in ([], "", [""], 5, [5]):
        says = f"data.files.train must be a file name, got {none!r}"
        assert refusal(lambda none=none: Table({"train": none})) == says


@pytest.mark.parametrize("name", ["t.jsonl.gz", "t.csv.gz"])
def test_a_packed_file_that_was_cut_is_refused_by_its_name(tmp_path, name):
    content = "source,target\n" + "a,b\n" * 999 if "csv" in name else rows(*["aA"] * 999)
    path = tmp_path / name
    path.write_bytes(gzip.compress(content.encode())[:-20])
    table = Table({"train": str(path)})
    for read in (table.load, lambda split: list(table.stream(split))):
        assert refusal(lambda read=read: read("train")).startswith(f"cannot read {path}: ")


@pytest.fixture
def documents(tmp_path):
    rows = [("t", "first", "law", "de", "x"), ("", "second", None, "fr", "y")]
    names = ("title", "body", "domain", "lang", "target")
    text = "".join(json.dumps(dict(zip(names, row))) + "\n" for row in rows)
    return {"train": write(tmp_path / "t.jsonl", text)}


def test_several_columns_make_a_source_and_tags_begin_it(documents):
    form = {"source_column": ["title", "body"], "target_column": "target", "source_mark": " | "}
    plain = Table(documents, **form).load("train")
    assert columns(plain) == {"source": ["t | first", " | second"], "target": ["x", "y"]}
    tagged = Table(documents, **form, tag_columns=["lang", "domain"]).load("train")
    assert tagged["source"][:] == ["<de> <law> t | first", "<fr>  | second"]
    assert [text[: text.head] for text in Texts.of(tagged).sources] == ["<de> <law> ", "<fr> "]
    none = Table(documents, source_column=[], target_column="title")
    assert "has no known pair of columns" in refusal(lambda: none.load("train"))
    absent = Table(documents, **form, tag_columns=["region"])
    assert "has no column 'region'" in refusal(lambda: absent.load("train"))


def test_a_source_is_made_of_the_same_columns_where_it_is_generated_from(documents):
    form = {"source_column": ["title", "body"], "source_mark": " | ", "tag_columns": ["domain"]}
    trained = Texts.of(Table(documents, **form, target_column="target").load("train")).sources
    [read] = read_texts(Path(documents["train"]), form)
    assert [text for _, text in read] == trained == ["<law> t | first", " | second"]
    assert [text.head for _, text in read] == [text.head for text in trained]
    with pytest.raises(UserError, match="line 1 has no text under region"):
        [*read_texts(Path(documents["train"]), {"source_column": ["title", "region"]})]


@pytest.mark.parametrize("name", ["a[1]", "a?"])
@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_file_in_a_folder_whose_name_looks_like_a_pattern_is_read_alone(tmp_path, name, suffix):
    for folder, text in ((name, "x"), ("a1", "y"), ("ab", "z")):
        (tmp_path / folder).mkdir()
        rows = {
            ".jsonl": json.dumps({"source": text, "target": "t"}),
            ".csv": f"source,target\n{text},t",
        }
        write(tmp_path / folder / f"t{suffix}", rows[suffix] + "\n")
    table = Table({"train": str(tmp_path / name / f"t{suffix}")})
    assert table.load("train", tmp_path / "cache")["source"] == ["x"]
    assert [source for source, _ in table.stream("train")] == ["x"]
