"""What `prepare` reads, leaves out, and makes; that it goes on after a stop; what it refuses."""

import csv
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from seqattn.data.sources import ParallelText
from seqattn.data.table import Table
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.extras.shards import cleaning, shard_builder
from seqattn.extras.shards.cleaning import Cleaning, cleaned, first_of_each
from seqattn.extras.shards.shard_files import Shard, read_manifest
from seqattn.extras.shards.source import Shards
from tests.extras.shards.small_shards import CONFIG, PAIRS, again, preparation, prepare, write_text
from tests.nodes import node_of


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Texts wait in chunks of a hundred, so that there are several."""
    monkeypatch.setattr(shard_builder, "ROWS", 100)


def content(home):
    """Every file of a prepared directory but the manifest, which names another source."""
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }


def pairs_in(home):
    """The pairs of each shard."""
    decode = Tokenizer.load(home / "tokenizer").decode_target
    for path in sorted(home.glob("train-*.arrow")):
        shard = Shard(path)
        sides = [shard.rows(side, np.arange(len(shard))) for side in (0, 1)]
        yield list(zip(*(decode([ids.tolist() for ids in side]) for side in sides), strict=True))


def test_every_pair_is_in_one_shard_at_random(tmp_path):
    made = prepare(tmp_path)
    shards = list(pairs_in(made.path))
    assert sorted(pair for shard in shards for pair in shard) == sorted(PAIRS)
    assert len(shards) == 9
    assert {len(shard) for shard in shards} <= set(range(60, 75))
    places = {pair: number for number, pair in enumerate(PAIRS)}
    for shard in shards:
        found = [places[pair] for pair in shard]
        assert 180 < np.mean(found) < 420  # of 600
        assert abs(np.corrcoef(found, np.arange(len(found)))[0, 1]) < 0.5


def test_so_many_processes_make_the_same(tmp_path):
    one = prepare(tmp_path / "one")
    two = prepare(tmp_path / "two", workers=2)
    assert content(one.path) == content(two.path)


def test_a_process_that_prepares_a_directory_again_takes_its_new_vocabulary(tmp_path):
    made = prepare(tmp_path)
    shutil.rmtree(made.path)
    again(tmp_path, tokenizer=replace(CONFIG, vocab_size=50)).run()
    other = prepare(tmp_path / "other", tokenizer=replace(CONFIG, vocab_size=50))
    assert content(made.path) == content(other.path)


def test_a_scheduler_is_used_alone_and_needs_its_package(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="workers and scheduler are mutually exclusive; remove"):
        preparation(tmp_path, workers=2, scheduler="tcp://localhost:1").run()
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UserError, match=r"scheduler needs distributed; run pip .*\[dask\]"):
        again(tmp_path, workers=None, scheduler="tcp://localhost:1").run()


def test_the_seed_decides_the_order(tmp_path):
    one, other = (prepare(tmp_path / str(seed), seed=seed) for seed in (1, 2))
    name = "train-00000.arrow"
    assert content(one.path)[name] != content(other.path)[name]


BAD = [
    ("ein \ufffd Hund", "a dog", "bad encoding"),
    ("half \ud800", "a pair", "bad encoding"),
    ("  ", "nothing", "empty side"),
    ("something", "", "empty side"),
    ("no", "yes no", "shorter than 3 characters"),
    ("long " * 5, "long " * 5, "longer than 20 characters"),
    ("one", "fourteen signs", "length ratio above 4"),
]


def test_each_fault_is_found_and_counted():
    rules = Cleaning(min_length=3, max_length=20, max_ratio=4)
    good = [("a dog", "ein Hund"), ("abc", "abcdefghijkl")]
    found = cleaned([*good, *((a, b) for a, b, _ in BAD)], rules)
    assert list(zip(found.sources, found.targets)) == good
    assert found.faults == {
        why: sum(reason == why for *_, reason in BAD) for why in {row[2] for row in BAD}
    }
    everything = Cleaning(max_length=None, max_ratio=None)
    assert len(cleaned([("a", "b" * 10_000)], everything).sources) == 1
    with pytest.raises(UserError, match=r"clean.max_length must be at least clean.min_length \(3"):
        Cleaning(min_length=3, max_length=2)


@pytest.mark.parametrize("at_once", [4, 1 << 24])
def test_of_equal_pairs_the_first_is_kept(monkeypatch, at_once):
    monkeypatch.setattr(cleaning, "_AT_ONCE", at_once)
    parts = [np.array(x, np.uint64) for x in ([5, 2**63, 5], [7, 5, 8, 2**63], [], [8, 9])]
    assert [rows.tolist() for rows in first_of_each(parts)] == [[0, 1], [0, 2], [], [1]]
    assert [rows.tolist() for rows in first_of_each([parts[2]])] == [[]]


def test_pairs_are_the_same_only_if_both_sides_are():
    pairs = [("ab", "c"), ("a", "bc"), ("1 a", "b"), ("a", "b"), ("ab", "c")]
    hashes = cleaned(pairs, Cleaning()).hashes
    assert len(set(hashes.tolist())) == 4
    assert hashes[0] == hashes[4]


def test_what_is_left_out_is_told_and_noted(tmp_path, capsys):
    pairs = [*PAIRS, *PAIRS[:50], ("", "nothing"), ("x" * 30, "y")]
    made = preparation(tmp_path, pairs, clean=Cleaning(max_length=100))
    source = tmp_path / "text" / "train.en"
    source.write_bytes(source.read_bytes().replace(b"\nsun", b"\n\xff", 3))
    counts = made.run().counts
    printed = capsys.readouterr().out
    assert counts["read"] == 652
    assert counts["empty side"] == counts["length ratio above 9"] == 1
    assert counts["bad encoding"] == 3
    assert counts["duplicate pair"] >= 47
    for reason, count in counts.items():
        assert reason == "read" or f"dropped: {reason}" in printed
        assert f" {count:,} " in printed
    kept = sum(map(len, pairs_in(made.path)))
    assert kept == 652 - sum(count for reason, count in counts.items() if reason != "read")
    assert f"{kept:,}" in printed


def test_duplicates_stay_where_they_are_wanted(tmp_path):
    made = prepare(tmp_path, PAIRS + PAIRS[:50], clean=Cleaning(duplicates=False))
    assert sum(map(len, pairs_in(made.path))) == 650


def test_pairs_that_are_held_out_are_trained_on_nowhere(tmp_path):
    home = prepare(tmp_path, hold_out=40).path
    rows = Shards(str(home)).load("val")
    held = list(zip(rows["source"], rows["target"]))
    trained = [pair for shard in pairs_in(home) for pair in shard]
    assert len(held) == 40
    assert sorted(held + trained) == sorted(PAIRS)
    places = [PAIRS.index(pair) for pair in held]
    assert min(places) < 150
    assert max(places) > 450


def test_copies_of_a_held_out_pair_are_not_trained_on(tmp_path):
    kept = Cleaning(duplicates=False)
    made = prepare(tmp_path, PAIRS + PAIRS[:300] * 2, clean=kept, hold_out=40)
    rows = Shards(str(made.path)).load("val")
    held = list(zip(rows["source"], rows["target"]))
    trained = [pair for shard in pairs_in(made.path) for pair in shard]
    assert len(held) == 40
    assert not {*held} & {*trained}
    equal = read_manifest(made.path).counts["equal to a held-out pair"]
    assert equal == 1200 - len(held) - len(trained) > 0


def test_a_vocabulary_is_learnt_from_a_sample_or_taken(tmp_path, capsys):
    whole = prepare(tmp_path / "whole")
    small = prepare(tmp_path / "small", sample=100)
    assert "on 200 lines" in capsys.readouterr().err
    taken = prepare(tmp_path / "taken", vocabulary=str(small.path))
    one, two, three = (Tokenizer.load(x.path / "tokenizer") for x in (whole, small, taken))
    assert one.fingerprint != two.fingerprint == three.fingerprint
    other = {"vocabulary": str(small.path), "tokenizer": TokenizerConfig(vocab_size=50)}
    with pytest.raises(UserError, match="tokenizer conflicts with vocabulary"):
        prepare(tmp_path / "told", **other)


def write_table(folder, kind):
    """The pairs as two files of a kind."""
    folder.mkdir()
    names = []
    for number, rows in enumerate((PAIRS[:350], PAIRS[350:])):
        path = folder / f"part-{number}.{kind}"
        names.append(path)
        if kind == "parquet":
            columns = dict(zip(("source", "target"), map(list, zip(*rows))))
            pyarrow.parquet.write_table(pa.table(columns), path)
            continue
        with (gzip.open if kind.endswith("gz") else open)(path, "wt", encoding="utf-8") as file:
            if "jsonl" in kind:
                file.writelines(json.dumps(dict(zip(("source", "target"), r))) + "\n" for r in rows)
            else:
                writer = csv.writer(file, delimiter="\t" if "tsv" in kind else ",")
                writer.writerows([("source", "target"), *rows])
    return names


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "csv", "csv.gz", "tsv", "parquet"])
def test_tables_of_every_kind_give_the_same_shards(tmp_path, kind):
    lines = prepare(tmp_path / "lines")
    write_table(tmp_path / "table", kind)
    text = tmp_path / "lines" / "text"
    val = tmp_path / "val.jsonl"
    val.write_text("".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in PAIRS[::20]))
    files = {"train": str(tmp_path / "table" / f"*.{kind}"), "val": str(val)}
    made = again(tmp_path, data=node_of(Table, files), output=str(tmp_path / "made"))
    made.run()
    assert content(made.path) == content(lines.path)
    assert text.is_dir()


def test_several_columns_and_tags_are_joined_as_training_joins_them(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"a": {"b": f"x{n}"}, "c": "y", "t": "law", "target": str(n)} for n in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = Table(
        {"train": str(path)}, source_column=["a.b", "c"], target_column="target",
        source_mark=" | ", tag_columns=["t"],
    )  # fmt: skip
    loaded = table.load("train", tmp_path)
    assert list(table.stream("train")) == list(zip(loaded["source"], loaded["target"]))


def test_a_data_set_of_the_hub_is_streamed(tmp_path, monkeypatch):
    import datasets

    def stream(name, configuration, split, streaming):
        assert (name, configuration, streaming) == ("wmt/x", "de-en", True)
        rows = {"train": PAIRS, "validation": PAIRS[::20]}
        if split not in rows:
            raise ValueError(f"no {split}")
        yield from ({"translation": {"en": a, "de": b}} for a, b in rows[split])

    lines = prepare(tmp_path / "lines")
    monkeypatch.setattr(datasets, "load_dataset", stream)
    table = node_of(
        Table, dataset="wmt/x", name="de-en", source_column="translation.en",
        target_column="translation.de",
    )  # fmt: skip
    made = again(tmp_path, data=table, output=str(tmp_path / "made"))
    made.run()
    both = [content(one.path) for one in (made, lines)]
    assert both[0] == both[1]


KILLED = """
import os, sys
from seqattn.extras.shards import shard_files
from seqattn.extras.shards import shard_builder
import seqattn.extras.shards.prepare
from pathlib import Path
from tests.extras.shards.small_shards import preparation
shard_builder.ROWS = 100
left, original = int(sys.argv[2]), Path.replace
def replace(self, target):
    global left
    left -= 1
    if left < 0:
        os._exit(9)  # between the writing of a file and its appearance
    return original(self, target)
Path.replace = replace
preparation(Path(sys.argv[1])).run()
"""


NIGHTLY = [pytest.param(after, marks=pytest.mark.exhaustive) for after in (9, 19, 30)]


@pytest.mark.parametrize("after", [0, 24, *NIGHTLY])
def test_a_killed_preparation_goes_on_and_makes_the_same(tmp_path, after):
    whole = prepare(tmp_path / "whole")
    folder = tmp_path / "killed"
    write_text(folder / "text", "train", PAIRS)
    arguments = [sys.executable, "-c", KILLED, str(folder), str(after)]
    before = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    home = folder / "shards"
    ended = subprocess.run(arguments, env=before, capture_output=True, check=False)
    assert ended.returncode == 9, ended.stderr
    there = {path: path.stat().st_mtime_ns for path in home.glob("train-*.arrow")}
    assert len(there) == min(9, max(0, after - 20))
    again(folder).run()
    assert content(home) == content(whole.path)
    assert {path: path.stat().st_mtime_ns for path in there} == there  # none is made again


def test_a_finished_preparation_says_so_and_changes_nothing(tmp_path, capsys):
    made = prepare(tmp_path)
    times = {path: path.stat().st_mtime_ns for path in made.path.iterdir()}
    capsys.readouterr()
    again(tmp_path, workers=2, cache_dir=str(tmp_path / "other")).run()
    said = f"output={made.path} is complete, nothing to do\n"
    assert capsys.readouterr()[:] == ("", said)
    assert {path: path.stat().st_mtime_ns for path in made.path.iterdir()} == times


@pytest.mark.parametrize("name", ["train-00003.arrow", "lengths.npy", "val.arrow"])
def test_a_damaged_file_is_made_again(tmp_path, capsys, name):
    made = prepare(tmp_path)
    before = content(made.path)
    (made.path / "train-00005.arrow").unlink()
    path = made.path / name
    path.write_bytes(path.read_bytes()[:-9] + b"x" * 9)
    again(tmp_path).run()
    assert f"{path} is missing or damaged; rebuilding it" in capsys.readouterr().err
    assert content(made.path) == before


@pytest.mark.parametrize("finished", [True, False])
def test_other_settings_or_files_are_refused(tmp_path, finished):
    home = prepare(tmp_path).path
    if not finished:
        settings = json.loads((home / "manifest.json").read_text())
        (home / "manifest.json").unlink()
        (home / "unfinished").mkdir()
        (home / "unfinished" / "texts-000000.arrow").touch()
        kept = {key: settings[key] for key in ("settings", "contents")}
        (home / "unfinished" / "made_from.json").write_text(json.dumps(kept))
    with pytest.raises(UserError, match=r"was made with clean.max_ratio=9.0, seed=1; use the sam"):
        again(tmp_path, seed=9, clean=Cleaning(max_ratio=2)).run()
    for split, side in (("train", "de"), ("val", "en")):
        file = tmp_path / "text" / f"{split}.{side}"
        text, known = file.read_text(), file.stat()
        file.write_text(text.replace("sun", "son"))  # as long, and as old
        os.utime(file, ns=(known.st_atime_ns, known.st_mtime_ns))
        with pytest.raises(UserError, match=f"made with different contents of data.{split}; use"):
            again(tmp_path).run()
        file.write_text(text)
    with pytest.raises(UserError, match=r"different contents of vocabulary; use the same"):
        again(tmp_path, vocabulary=str(prepare(tmp_path / "other").path)).run()
    if finished:
        (tmp_path / "text").rename(tmp_path / "moved")
        data = node_of(ParallelText, str(tmp_path / "moved"), "en", "de")
        assert again(tmp_path, data=data).run().pairs == 600


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"hold_out": 600}, "none of 600 pairs is left to train on: held out 600"),
        ({"clean": Cleaning(max_length=1)}, "none of 600 pairs is left to train on"),
        ({"tokenizer": replace(CONFIG, vocab_size=5000)}, "vocab_size must be at most"),
    ],
)
def test_a_refused_preparation_binds_nobody(tmp_path, wrong, why):
    write_text(tmp_path / "text", "test", PAIRS[::30])
    refused = preparation(tmp_path, **wrong)
    with pytest.raises(UserError, match=why):
        refused.run()
    found = again(tmp_path, hold_out=10).run()
    assert (found.pairs, {split: one.rows for split, one in found.splits.items()}) == (
        590,
        {"val": 10},
    )
    assert not (refused.path / "test.arrow").exists()


def test_a_file_that_was_mended_is_read_anew(tmp_path):
    made = preparation(tmp_path)
    file = tmp_path / "text" / "train.de"
    text = file.read_text()
    file.write_text(text + "one more\n")
    with pytest.raises(UserError, match=r"train\.de has more"):
        made.run()
    assert list(tmp_path.rglob("texts-*.arrow"))
    file.write_text(text)
    assert made.run().pairs == 600


def test_a_preparation_that_read_nothing_binds_nobody(tmp_path):
    made = preparation(tmp_path)
    (tmp_path / "x.jsonl").write_text('{"a": "b"}\n')
    files = {"train": str(tmp_path / "x.jsonl")}
    table = node_of(Table, files, source_column="gone", target_column="b")
    wrong = again(tmp_path, data=table, hold_out=1)
    with pytest.raises(UserError, match="has no column 'gone'"):
        wrong.run()
    assert made.run().pairs == 600


def test_a_vocabulary_that_cannot_be_had_costs_no_second_reading(tmp_path):
    write_text(tmp_path / "text", "train", PAIRS)
    write_text(tmp_path / "text", "val", PAIRS[::20])
    with pytest.raises(UserError, match="vocab_size must be at most"):
        again(tmp_path, tokenizer=replace(CONFIG, vocab_size=5000)).run()
    read = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("texts-*.arrow")}
    assert len(read) == 6
    seen = []
    original = shard_builder.read_chunks
    monkey = pytest.MonkeyPatch()
    monkey.setattr(
        "seqattn.extras.shards.prepare.read_chunks", lambda *a: seen.append(a) or original(*a)
    )
    again(tmp_path).run()
    monkey.undo()
    assert seen == []


def test_what_cannot_be_prepared_is_refused_in_a_line(tmp_path):
    other = tmp_path / "other"
    write_text(other / "text", "train", PAIRS)
    write_text(other / "text", "val", PAIRS)
    (other / "text" / "train.de").write_text("x\n" * 599)
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").touch()
    empty = tmp_path / "empty"
    write_text(empty / "text", "train", [("", ""), ("", "x")])
    write_text(empty / "text", "val", PAIRS)
    alone = tmp_path / "alone"
    write_text(alone / "text", "train", PAIRS)
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"source": "a", "target": "b"}\n{"source": \n')
    cases = [
        (again(other), "train.de ends after 599, "),
        (again(other, output=str(full)), "contains other files (mine.txt); choose a new directory"),
        (again(empty), "none of 2 pairs is left to train on: empty side 2"),
        (again(alone), "or set hold_out=2000 to validate on that many training pairs"),
        (again(other, vocabulary=str(full)), "is not a bundle"),
        (
            again(other, data=node_of(Table, {"train": str(broken)}), hold_out=1),
            "line 2 is not valid JSON",
        ),
        (again(other, output=str(full / "mine.txt")), "cannot make "),
    ]
    for number, (made, words) in enumerate(cases):
        if made.path == other / "shards":
            made = replace(made, output=str(tmp_path / str(number)))
        with pytest.raises(UserError) as refused:
            made.run()
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)


def test_a_full_disk_ends_in_a_line_and_nothing_is_lost(tmp_path, monkeypatch):
    whole = prepare(tmp_path / "whole")
    folder = tmp_path / "folder"
    write_text(folder / "text", "train", PAIRS)
    write_text(folder / "text", "val", PAIRS[::20])
    original = os.fsync

    def full(number):
        if len(list(folder.rglob("train-*.arrow"))) > 2:
            raise OSError(28, "No space left on device")
        original(number)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*arrow: No space left on device"):
        again(folder).run()
    assert list((folder / "shards").rglob(".*arrow*")) == []
    monkeypatch.setattr(os, "fsync", original)
    again(folder).run()
    assert content(folder / "shards") == content(whole.path)


def test_two_preparations_of_one_directory_are_refused(tmp_path):
    from seqattn.extras.shards.preparation import lock_directory

    made = prepare(tmp_path)
    with lock_directory(made.path), pytest.raises(UserError, match="is in use by process"):
        again(tmp_path).run()


def test_a_worker_that_dies_is_told(tmp_path):
    from seqattn.extras.shards.parallel import workers

    with (
        pytest.raises(UserError, match=r"a worker process died.* lower workers=N"),
        workers(2) as (pool, _),
    ):
        pool.submit(os._exit, 9).result()


PARENT = """
import os, time
from seqattn.extras.shards.parallel import workers
if __name__ == "__main__":
    with workers(2) as (pool, _):
        numbers = {pool.submit(os.getpid).result() for _ in range(9)}
        pool.submit(time.sleep, 60)
        print(*numbers, flush=True)
        time.sleep(60)
"""


def test_workers_end_with_the_process_that_started_them(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    own = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    parent = subprocess.Popen([sys.executable, script], env=own, stdout=subprocess.PIPE, text=True)
    numbers = [int(number) for number in parent.stdout.readline().split()]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    waited = time.monotonic() + 20
    while any(Path(f"/proc/{number}").is_dir() for number in numbers):
        assert time.monotonic() < waited
        time.sleep(0.05)
