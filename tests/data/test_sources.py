import gzip
import itertools
import json
import os
import re
from functools import partial

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from seqattn.data.sources import DemoTranslation, Multi30k, ParallelText
from seqattn.data.table import Table
from tests.data.source_helpers import columns, json_lines, refusal

ENGLISH = ["a dog", "two cats .", "the end"]
GERMAN = ["ein Hund", "zwei Katzen .", "das Ende"]


def write(folder, **files):
    for name, lines in files.items():
        text = "".join(f"{line}\n" for line in lines)
        (folder / name.replace("_", ".", 1)).write_text(text, encoding="utf-8", newline="")


@pytest.fixture
def text(tmp_path):
    write(tmp_path, train_en=ENGLISH, train_de=GERMAN, val_en=["x"], val_de=["y"])
    return tmp_path


def test_line_aligned_files_become_two_columns(text):
    source = ParallelText(str(text), "en", "de")

    assert columns(source.load("train")) == {"source": ENGLISH, "target": GERMAN}
    assert columns(source.load("val")) == {"source": ["x"], "target": ["y"]}


def test_text_is_memory_mapped_from_the_cache_that_is_given(text, tmp_path):
    dataset = ParallelText(str(text), "en", "de").load("train", tmp_path / "cache")

    [file] = dataset.cache_files
    assert file["filename"].startswith(str(tmp_path / "cache"))


def test_sources_without_targets_give_one_column(text):
    assert columns(ParallelText(str(text), "en", None).load("train")) == {"source": ENGLISH}


def test_only_line_feeds_end_lines_and_nothing_is_stripped(tmp_path):
    odd = ["a\u2028b", "c\x85d\x0ce", " f\rg ", "", "h\x1ci\u2029"]
    write(tmp_path, train_en=odd, train_de=list("12345"))

    assert columns(ParallelText(str(tmp_path), "en", "de").load("train"))["source"] == odd


def test_line_ends_of_windows_byte_order_marks_and_an_open_last_line_are_no_text(tmp_path):
    (tmp_path / "train.en").write_bytes(b"\xef\xbb\xbfa\r\nb\r\r\n")
    (tmp_path / "train.de").write_bytes("ä\nö".encode())

    source = ParallelText(str(tmp_path), "en", "de")
    assert columns(source.load("train")) == {"source": ["a", "b\r"], "target": ["ä", "ö"]}
    assert list(source.stream("train")) == [("a", "ä"), ("b\r", "ö")]


def test_a_changed_file_is_read_anew_even_with_its_old_date(text):
    source = ParallelText(str(text), "en", "de")
    source.load("train")
    date = (text / "train.en").stat().st_mtime
    write(text, train_en=["another dog", *ENGLISH[1:]])
    os.utime(text / "train.en", (date, date))

    assert list(source.load("train")["source"]) == ["another dog", *ENGLISH[1:]]


def test_what_is_wrong_with_files_is_said(text):
    source = ParallelText(str(text), "en", "de")

    assert refusal(lambda: source.load("dev")) == (
        "split must be one of train, val, test, got 'dev'"
    )
    assert refusal(lambda: source.load("test")) == (
        f"the test split requires test.en in {text}, which contains train.de, "
        "train.en, val.de, val.en"
    )
    nowhere = ParallelText(str(text / "no"), "en", "de")
    assert refusal(lambda: nowhere.load("train")) == (f"data.root={text / 'no'} is not a directory")
    write(text, val_de=["y", "z"])
    assert refusal(lambda: source.load("val")) == (
        f"source and target must have the same number of lines: {text}/val.en has 1, "
        f"{text}/val.de has 2"
    )
    write(text, val_de=[], val_en=[])
    assert refusal(lambda: source.load("val")) == (
        f"the val split has no text: {text}/val.en is empty"
    )


def test_text_that_is_not_utf_8_is_refused_with_its_line(text):
    (text / "train.de").write_bytes("gut\nschön\n".encode("latin-1") + b"x\n")

    assert refusal(lambda: ParallelText(str(text), "en", "de").load("train")) == (
        f"{text}/train.de is not valid UTF-8: line 2 has byte 0xf6 at column 4"
    )


def test_a_name_with_brackets_is_a_file_before_it_is_a_pattern(text):
    for suffix in ("en", "de"):
        (text / f"train[1].{suffix}").write_text("t\n")
    source = ParallelText(str(text), "en", "de", train="train[1]")
    assert columns(source.load("train")) == {"source": ["t"], "target": ["t"]}


def test_multi30k_has_its_own_name_for_the_test_files(text):
    (text / "test_2016_flickr.en").write_text("t\n")
    (text / "test_2016_flickr.de").write_text("T\n")
    source = Multi30k(str(text))

    assert columns(source.load("test")) == {"source": ["t"], "target": ["T"]}
    (text / "test_2017_mscoco.en.gz").write_bytes(gzip.compress(b"c\n"))
    (text / "test_2017_mscoco.de").write_text("C\n")
    later = Multi30k(str(text), test="test_2017_mscoco")
    assert columns(later.load("test")) == {"source": ["c"], "target": ["C"]}
    assert later.origin("test").startswith(f"{text}/test_2017_mscoco.en.gz")
    reverse = Multi30k(str(text), source="de", target="en")
    assert list(reverse.load("test")["source"]) == ["T"]


def test_multi30k_without_a_root_comes_from_the_hub(monkeypatch):
    asked = []

    def load_dataset(*args, **options):
        asked.append((*args, options["split"]))
        return datasets.Dataset.from_dict({"de": GERMAN, "en": ENGLISH})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)

    assert columns(Multi30k().load("val")) == {"source": ENGLISH, "target": GERMAN}
    assert asked == [("bentrevett/multi30k", None, "validation")]
    assert refusal(lambda: Multi30k(test="test_2017_mscoco")) == (
        "data.test=test_2017_mscoco is not on the hub; set data.root=DIR"
    )


def test_an_unreachable_hub_says_how_to_do_without(monkeypatch, capfd):
    def load_dataset(*args, **options):
        raise ConnectionError("Couldn't reach the Hub\nand more")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)

    assert refusal(lambda: Multi30k().load("train")) == (
        "cannot load bentrevett/multi30k (train) from the hub: Couldn't reach the Hub; "
        "set data.root to a directory with train.en, train.de, ..."
    )
    assert capfd.readouterr().err == ""


ROWS = [{"en": e, "de": d} for e, d in zip(ENGLISH, GERMAN)]


def write_table(path):
    if path.suffix == ".jsonl":
        json_lines(path, ROWS)
    elif path.suffix == ".json":
        path.write_text(json.dumps(ROWS))
    elif path.suffix == ".arrow":
        datasets.Dataset.from_list(ROWS).save_to_disk(path.parent / "saved")
        (path.parent / "saved" / "data-00000-of-00001.arrow").rename(path)
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    else:
        mark = {".csv": ",", ".tsv": "\t"}[path.suffix]
        rows = [f"en{mark}de", *(f"{e}{mark}{d}" for e, d in zip(ENGLISH, GERMAN))]
        path.write_text("\n".join(rows) + "\n")


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".tsv", ".parquet", ".arrow"])
def test_a_table_gives_its_named_columns(tmp_path, suffix, capfd):
    path = tmp_path / f"t{suffix}"
    write_table(path)
    source = Table({"train": str(path)}, source_column="en", target_column="de")
    capfd.readouterr()

    assert columns(source.load("train")) == {"source": ENGLISH, "target": GERMAN}
    assert capfd.readouterr() == ("", "")
    has = "the data has no val split, only train"
    assert refusal(lambda: source.load("val")) == f"{has}; add data.files.val=FILE"
    other = Table({"train": str(path)}, source_column="en", target_column="fr")
    assert re.fullmatch(
        rf"{path} has no column 'fr', only (en, de|de, en)", refusal(lambda: other.load("train"))
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "sep=;\nsource;target\na, b;c"),
        ("t.csv", '\ufeff"sep=;"\r\nsource;target\r\na, b;c\r\n'),
        ("t.csv", "source;target\na, b;c\n"),
        ("t.csv", "source\ttarget\na, b\tc\n"),
        ("t.csv", '"source", "target"\n"a, b", "c"\n'),
        ("t.csv", 'source ,target\t\n"a, b",c\n'),
        ("t.csv", 'source,target ,target\n"a, b",d,c\n'),
        ("t.tsv", '"source"\t"target"\na, b\t"c"\n'),
    ],
)
def test_what_spreadsheets_write_is_read(tmp_path, name, text):
    (tmp_path / name).write_text(text, newline="")
    table = Table({"train": str(tmp_path / name)})
    assert columns(table.load("train")) == {"source": ["a, b"], "target": ["c"]}
    assert list(table.stream("train")) == [("a, b", "c")]


@pytest.mark.parametrize(
    ("name", "rows", "pairs"),
    [
        ("t.csv", ['"a \\"b\\" c",d'], [('a "b" c', "d")]),
        ("t.csv.gz", ["e,f", '"\\"a\\", \\\\","d ""e"""'], [("e", "f"), ('"a", \\', 'd "e"')]),
        ("t.tsv", ['"a \\"b\\" c"\t"d"'], [('a "b" c', "d")]),
        (
            "t.csv",
            ['G\\"odel,"a \\"', '"x ""y\\"" z",b'],
            [('G\\"odel', "a \\"), ('x "y\\" z', "b")],
        ),
    ],
)
def test_quotation_marks_are_escaped_by_backslashes_if_the_file_does(
    tmp_path, name, rows, pairs, capsys
):
    """In a file that doubles them, a backslash is a character like any other."""
    head = '"source"\t"target"' if "tsv" in name else "source,target"
    text = "".join(f"{row}\n" for row in (head, *rows)).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    table = Table({"train": str(tmp_path / name)})
    assert [*zip(*columns(table.load("train")).values())] == pairs
    told = "escapes quotation marks by backslashes" in capsys.readouterr().err
    assert told == ("odel" not in pairs[0][0])
    assert list(table.stream("train")) == pairs


@pytest.mark.parametrize("make", [pyarrow.list_view, pyarrow.large_list_view])
def test_views_of_lists_are_read(tmp_path, make):
    references = pyarrow.array([["x", "y"], [], None] * 5, make(pyarrow.string()))
    texts = ["a b", "c", "d"] * 5
    nested = pyarrow.StructArray.from_arrays([references], ["all"])
    columns_of = {"source": texts, "target": texts, "references": references, "nested": nested}
    path = str(tmp_path / "t.parquet")
    pyarrow.parquet.write_table(pyarrow.table(columns_of), path, row_group_size=4)
    for column in ("references", "nested.all"):
        table = Table({"train": path}, references_column=column)
        assert list(table.load("train")["references"]) == [["x", "y"], ["c"], ["d"]] * 5
        assert list(table.stream("train")) == [*zip(texts, texts)]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_every_arrow_type_of_text_is_read(tmp_path, suffix):
    path, texts = str(tmp_path / f"t{suffix}"), ["a", None]
    views, large = pyarrow.string_view(), pyarrow.large_string()
    table = pyarrow.table({
        "source": pyarrow.array(texts, views),
        "target": pyarrow.array(texts, large).dictionary_encode(),
        "references": pyarrow.array([["b"], []], pyarrow.large_list(views)),
    })  # fmt: skip
    if suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        with pyarrow.ipc.new_stream(path, table.schema) as file:
            file.write_table(table)
    source = Table({"train": path}, references_column="references")
    assert columns(source.load("train")) == {
        "source": ["a", ""],
        "target": ["a", ""],
        "references": [["b"], [""]],
    }
    assert list(source.stream("train")) == [("a", "a"), ("", "")]


def test_a_dot_leads_into_a_nested_column(tmp_path):
    path = tmp_path / "t.jsonl"
    json_lines(path, [{"translation": row} for row in ROWS])
    source = Table(
        {"test": str(path)}, source_column="translation.en", target_column="translation.de"
    )

    assert columns(source.load("test")) == {"source": ENGLISH, "target": GERMAN}
    json_lines(path, [{f"x.{key}": text for key, text in row.items()} for row in ROWS])
    flat = Table({"test": str(path)}, source_column="x.en", target_column="x.de")
    assert list(flat.stream("test")) == list(zip(ENGLISH, GERMAN))
    assert columns(flat.load("test")) == {"source": ENGLISH, "target": GERMAN}


def test_words_for_nothing_are_text_and_nothing_is_empty_text(tmp_path):
    (tmp_path / "t.csv").write_text('source,target\nNA,null\n"a, b",\nnan,None\n')
    (tmp_path / "t.tsv").write_text('source\ttarget\n"a\tb"\n')
    (tmp_path / "t.jsonl").write_text('{"source": "a", "target": null}\n{"source": "b"}\n')

    def load(name):
        return columns(Table({"train": str(tmp_path / name)}).load("train"))

    assert load("t.csv") == {"source": ["NA", "a, b", "nan"], "target": ["null", "", "None"]}
    assert load("t.tsv") == {"source": ['"a'], "target": ['b"']}
    assert load("t.jsonl") == {"source": ["a", "b"], "target": ["", ""]}


def test_numbers_between_commas_are_text_as_they_stand(tmp_path):
    rows = [("007", "1.50"), ("True", "1e3"), *[("1", "2")] * 11_000, ("one", "two")]
    (tmp_path / "t.csv").write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in rows))
    table = Table({"train": str(tmp_path / "t.csv")})
    assert list(zip(*columns(table.load("train", tmp_path)).values())) == rows
    assert list(table.stream("train")) == rows


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.tsv.gz"])
def test_a_carriage_return_within_a_text_ends_no_row(tmp_path, name):
    rows = [("a\rb", "x"), ("c", "\u2028y\r"), ("d", "z")]
    lines = [",".join(f'"{text}"' for text in row) for row in [("source", "target"), *rows]]
    if "tsv" in name:
        lines = ["\t".join(row) for row in [("source", "target"), *rows]]
    content = "".join(f"{line}\n" for line in lines).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    table = Table({"train": str(tmp_path / name)})
    assert list(zip(*columns(table.load("train", tmp_path)).values())) == rows
    assert list(table.stream("train")) == rows


def test_rows_of_more_fields_than_names_are_refused(tmp_path):
    """The names would stand over their neighbors' texts."""
    (tmp_path / "t.csv").write_text("source,target\na,x,more\nb,y\n")
    table = Table({"train": str(tmp_path / "t.csv")})
    said = f"{tmp_path}/t.csv must name every column in its header, but rows have more fields"
    assert refusal(lambda: table.load("train", tmp_path)) == said
    assert refusal(lambda: list(table.stream("train"))) == said


def test_what_is_wrong_with_a_table_is_said(tmp_path):
    def load(name, content):
        (tmp_path / name).write_bytes(content)
        source = Table({"train": str(tmp_path / name)})
        return refusal(lambda: source.load("train"))

    assert load("a.jsonl", b"") == f"{tmp_path}/a.jsonl is empty"
    assert load("b.csv", b"source,target\n") == f"{tmp_path}/b.csv has no rows"
    assert load("c.jsonl", b'{"source": 1, "target": "a"}\n') == (
        f"column 'source' of {tmp_path}/c.jsonl must contain text, got int64"
    )
    assert "line 2 has byte 0xff" in load("d.tsv", b"source\ttarget\na\t\xff\n")
    assert load("e.jsonl", b'{"source": "a", "tar').startswith(
        f"cannot read {tmp_path}/e.jsonl as jsonl: "
    )
    assert load("f.parquet", b"PAR1").startswith(f"cannot read {tmp_path}/f.parquet as parquet: ")
    absent = Table({"train": str(tmp_path / "no.parquet")})
    assert "no.parquet does not exist; expected a valid parquet file" in refusal(
        lambda: absent.load("train")
    )


def test_a_table_needs_one_origin_that_it_can_read(tmp_path):
    archive = tmp_path / "t.parquet.gz"
    archive.write_bytes(gzip.compress(b"{}"))

    both = "a table must come from either data.files or data.dataset, got both; set one to null"
    assert refusal(lambda: Table({"train": "a.csv"}, dataset="x")) == both
    assert refusal(lambda: Table()).endswith("got neither")
    assert refusal(lambda: Table({"train": str(archive)})) == (
        "names in data.files must end in one of .jsonl, .json, .csv, .tsv, .parquet, .arrow, or "
        f"be a directory written by save_to_disk, got {archive}"
    )
    assert refusal(lambda: Table({"dev": "a.csv"})) == (
        "split must be one of train, val, test, got 'dev'"
    )


def test_a_hub_dataset_may_name_its_splits_otherwise(monkeypatch):
    def load_dataset(dataset, name, split, cache_dir):
        if split != "dev":
            raise ValueError(f"Unknown split {split!r}. Should be one of ['train', 'dev'].")
        return datasets.Dataset.from_dict({"translation": ROWS, "id": [1, 2, 3]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    source = Table(
        dataset="wmt/x",
        name="de-en",
        source_column="translation.en",
        target_column="translation.de",
        splits={"val": "dev"},
    )

    assert columns(source.load("val")) == {"source": ENGLISH, "target": GERMAN}
    assert refusal(lambda: source.load("test")) == (
        "cannot load wmt/x (test) from the hub: "
        "Unknown split 'test'. Should be one of ['train', 'dev']."
    )


def test_the_library_is_left_as_it_was(tmp_path):
    datasets.enable_progress_bars()
    write_table(tmp_path / "t.csv")
    Table({"train": str(tmp_path / "t.csv")}, None, None, "en", "de").load("train")

    assert not datasets.are_progress_bars_disabled()


def test_the_bundled_sentences_lie_beside_the_package():
    root = DemoTranslation().root

    assert root.parts[-2:] == ("data", "demo_translation")
    assert (root.parents[1] / "seqattn").is_dir()


def held_out_sources(text):
    """Sources of two files of pairs, with an option to hold some out."""
    for suffix, mark in (("en", "x"), ("de", "y")):
        (text / f"all.{suffix}").write_text("".join(f"{mark}{n}\n" for n in range(40)))
    json_lines(text / "all.jsonl", [{"source": f"x{n}", "target": f"y{n}"} for n in range(40)])
    yield partial(ParallelText, str(text), "en", "de", train="all")
    yield partial(Table, {"train": str(text / "all.jsonl")})


def test_pairs_of_train_are_held_out(text):
    """The same ones each time, by number or share, and none of them is trained on."""
    whole = [(f"x{n}", f"y{n}") for n in range(40)]
    for make in held_out_sources(text):
        source = make(hold_out=0.1, hold_out_test=7)
        train, val, test = (
            [*zip(*columns(source.load(split)).values())] for split in ("train", "val", "test")
        )
        assert (len(train), len(val), len(test)) == (29, 4, 7)
        assert sorted(train + val + test) == sorted(whole)
        assert val not in (whole[:4], whole[-4:])
        again = make(hold_out=4)
        assert list(again.stream("val")) == val
        assert sorted([*again.stream("train"), *val]) == sorted(whole)
        assert source.origin("val") == f"{source.origin('train')} (held out)"


def test_equal_pairs_are_held_out_together(text):
    """A pair that occurs often is in one split alone, and texts are compared, not their noise."""
    counts = [30, *[1] * 20, *[3] * 10]
    rows = [n for n, count in enumerate(counts) for _ in range(count)]
    for suffix, mark in (("en", "x"), ("de", "y")):
        (text / f"often.{suffix}").write_text("".join(f"{mark}{n}\n" for n in rows))
    json_lines(text / "often.jsonl", [{"source": f"x{n}", "target": f"y{n}"} for n in rows])
    files = {"train": str(text / "often.jsonl")}
    for make, column in (
        (partial(ParallelText, str(text), "en", "de", train="often"), "source"),
        (partial(ParallelText, str(text), "en", None, train="often"), "source"),
        (partial(Table, files), "source"),
    ):
        source = make(hold_out=10, hold_out_test=0.1)
        splits = [list(source.load(split)[column]) for split in ("train", "val", "test")]
        assert list(map(len, splits)) == [62, 10, 8]
        assert not set.intersection(*map(set, splits[:2]))
        assert sorted(itertools.chain(*splits)) == sorted(f"x{n}" for n in rows)
    json_lines(text / "often.jsonl", [{"source": "x", "target": "y"}] * 5)
    assert refusal(partial(Table(files, hold_out=2).load, "val")) == (
        f"data.hold_out=2 leaves no rows for val: {text}/often.jsonl has 5, "
        "of which those of one source stay together"
    )


def test_pairs_of_one_source_are_held_out_together(text):
    """By `hold_out_by=pair`, the rule of bundles without that setting, equal pairs alone."""
    rows = [(f"x{n}", f"y{way}") for n in range(20) for way in range(2)]
    for suffix, side in zip(("en", "de"), zip(*rows, strict=True)):
        (text / f"ways.{suffix}").write_text("".join(f"{one}\n" for one in side))
    files = {
        "train": json_lines(text / "ways.jsonl", [dict(zip(("source", "target"), r)) for r in rows])
    }
    shared = {}
    for make in (partial(ParallelText, str(text), "en", "de", train="ways"), partial(Table, files)):
        for by in ("source", "pair"):
            source = make(hold_out=9, hold_out_by=by)
            train, val = (list(source.load(split)["source"]) for split in ("train", "val"))
            shared[by] = len(val), len({*train} & {*val})
        assert shared["source"] == (8, 0)
        assert shared["pair"][0] == 9
        assert shared["pair"][1] > 3


def test_more_than_all_pairs_cannot_be_held_out(text):
    for make in held_out_sources(text):
        for key, split in (({"hold_out": 40}, "train"), ({"hold_out": 0.01}, "val")):
            said = refusal(partial(make(**key).load, "val"))
            assert re.match(rf"data.hold_out=\S+ leaves no rows for {split}: .* has 40", said)
    files = {"train": str(text / "all.jsonl"), "val": str(text / "all.jsonl")}
    assert refusal(lambda: Table(files, hold_out=2)) == (
        "data.files.val and data.hold_out are mutually exclusive"
    )


def test_a_directory_of_save_to_disk_is_read(tmp_path):
    """Of one split or several, in parts, without what `map` has left in it."""
    rows = datasets.Dataset.from_list(ROWS * 2)
    rows.save_to_disk(tmp_path / "one", num_shards=2)
    (tmp_path / "one" / "cache-1f.arrow").write_bytes(b"no table")
    datasets.DatasetDict(train=rows, validation=rows.select([1])).save_to_disk(tmp_path / "both")
    expected = {"source": ENGLISH * 2, "target": GERMAN * 2}
    both, one = str(tmp_path / "both"), str(tmp_path / "one")
    for files in ({"train": one}, {"train": both, "val": both, "test": both}):
        source = Table(files, source_column="en", target_column="de")
        assert columns(source.load("train")) == expected
        assert list(source.stream("train")) == [*zip(*expected.values())]
    assert columns(source.load("val")) == {"source": [ENGLISH[1]], "target": [GERMAN[1]]}
    assert refusal(lambda: source.load("test")) == (
        f"{both}/test is not a directory written by save_to_disk: it has no .arrow file"
    )
    (tmp_path / "one" / "data-00000-of-00002.arrow").write_bytes(b"no table")
    said = refusal(lambda: Table({"train": one}).load("train"))
    assert said.startswith(f"cannot read {one}/data-00000-of-00002.arrow as arrow: ")


def test_a_column_labels_rows_held_out_ones_included(tmp_path):
    rows = [{"source": f"s{n}", "target": f"t{n}", "talk": n // 2 if n else None}
            for n in range(9)]  # fmt: skip
    path = json_lines(tmp_path / "rows.jsonl", rows)
    plain = Table({"train": path}, hold_out=4)
    table = columns(plain.grouped("talk").load("val", tmp_path))
    assert table["group"] == [str(int(s[1:]) // 2) if s != "s0" else "" for s in table["source"]]
    assert "group" not in plain.load("val", tmp_path).column_names
    said = refusal(lambda: plain.grouped("prefix:x").load("val", tmp_path))
    assert said.endswith("has no column 'prefix:x', only source, target, talk")
    nested = json_lines(tmp_path / "nested.jsonl", [{"source": "a", "target": "b", "talk": [1]}])
    said = refusal(lambda: Table({"train": nested}).grouped("talk").load("train", tmp_path))
    assert "column 'talk' of" in said


def test_labels_of_line_aligned_text_are_a_file_beside_it(text):
    write(text, train_talk=["1", "1", "2"])
    source = ParallelText(str(text), "en", "de")
    table = columns(source.grouped("talk").load("train"))
    assert table == {"source": ENGLISH, "target": GERMAN, "group": ["1", "1", "2"]}
    assert "group" not in columns(source.load("train"))
    said = refusal(lambda: source.grouped("talk").load("val"))
    assert "the val split requires val.talk in" in said


def test_empty_lines_and_ends_of_files_end_documents(text):
    write(text, a_en=["x", " ", "y", "z", ""], a_de=["u", "", "v", "w", "\t"], a_talk=["1"] * 5)
    write(text, b_en=["x", "y"], b_de=["u", "v"], b_talk=["2", ""])
    source = ParallelText(str(text), "en", "de", train=["a", "b"], documents="lines")
    assert columns(source.load("train"))["document"] == [0, 0, 1, 1, 1, 3, 3]
    assert columns(source.load("train"))["source"] == ["x", " ", "y", "z", "", "x", "y"]
    assert columns(source.grouped("talk").load("train"))["document"] == [0, 0, 1, 1, 1, 3, 3]
    plain = ParallelText(str(text), "en", "de", train=["a", "b"])
    assert [*columns(plain.load("train"))] == ["source", "target"]
    only = ParallelText(str(text), "en", None, train="a", documents="lines")
    assert columns(only.load("train"))["document"] == [0, 0, 1, 1, 1]


@pytest.mark.parametrize(("side", "other"), [("en", "de"), ("de", "en")])
def test_a_line_that_is_empty_on_one_side_ends_no_document(text, side, other):
    write(text, **{f"a_{side}": ["x", "", " ", "y"], f"a_{other}": ["u", "", "v", "w"]})
    source = ParallelText(str(text), "en", "de", train="a", documents="lines")
    assert refusal(lambda: source.load("train")) == (
        f"line 3 of {text}/a.{side} is empty, but not of {text}/a.{other}; with "
        "data.documents=lines, a document ends with a line that is empty on both sides"
    )


def test_a_column_names_documents(tmp_path):
    """Of each file its own; a row without a name is a document."""
    names = [["b", "b", "a", None, None, "c"], ["c", "c", "a"], [7, 7, 8]]
    paths = []
    for number, some in enumerate(names):
        rows = [{"source": f"{n}", "target": "t", "talk": name} for n, name in enumerate(some)]
        paths.append(json_lines(tmp_path / f"{number}.jsonl", rows))
    table = Table({"train": paths}, documents="talk").load("train", tmp_path)
    assert columns(table)["document"] == [1, 1, 2, 3, 4, 5, 6, 6, 7, 8, 8, 9]
    assert [*columns(table)] == ["source", "target", "document"]
    said = refusal(lambda: Table({"train": paths}, documents="document_id").load("train"))
    assert said == f"{paths[0]} has no column 'document_id', only source, target, talk"
    rows = [{"source": "s", "target": "t", "talk": name} for name in "aabba"]
    path = json_lines(tmp_path / "mixed.jsonl", rows)
    said = refusal(lambda: Table({"train": [paths[0], path]}, documents="talk").load("train"))
    assert said == (
        f"row 11 of {paths[0]} and {path} belongs to document 'a', which ended before it; sort "
        "the rows by document"
    )


def test_documents_are_held_out_whole(text):
    documents = [[f"x{n} y{row}" for row in range(n % 4 + 1)] for n in range(20)]
    lines = [line for document in documents for line in (*document, "")]
    write(text, all_en=lines, all_de=lines)
    rows = [{"source": line, "target": line, "talk": n}
            for n, document in enumerate(documents) for line in document]  # fmt: skip
    files = {"train": json_lines(text / "all.jsonl", rows)}
    for source in (
        ParallelText(str(text), "en", "de", "all", hold_out=9, documents="lines"),
        Table(files, hold_out=9, documents="talk"),
    ):
        assert source.origin("val") == f"{source.origin('train')} (held out by document)"
        found = []
        for split in ("train", "val"):
            texts = columns(source.load(split))["source"]
            found.append({text.split()[0] for text in texts if text})
            assert {text for text in texts if text} == {
                text for text in itertools.chain(*documents) if text.split()[0] in found[-1]
            }
        assert len(found[0]) + len(found[1]) == 20
        assert 3 <= len(texts) <= 9
    rows = [{**row, "talk": "one"} for row in rows]
    files = {"train": json_lines(text / "one.jsonl", rows)}
    said = refusal(lambda: Table(files, hold_out=9, documents="talk").load("val"))
    assert said == (
        f"data.hold_out=9 leaves no rows for val: {text}/one.jsonl has 50, of which those of one "
        "document stay together"
    )
