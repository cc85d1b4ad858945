"""Manifests and shards whose numbers are not those of the files, though their digests are."""

import io
import json
import shutil

import numpy as np
import pyarrow as pa
import pytest

from seqattn.errors import UserError
from seqattn.extras.shards.shard_files import arrow_file, ids_file
from seqattn.storage import digest_of
from tests.extras.shards.small_shards import PAIRS, prepare
from tests.extras.shards.test_shards import data_of, read_all

SHARD = "train-00004.arrow"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("sound")).path


@pytest.fixture
def home(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "shards")


def refusal(home):
    with pytest.raises(UserError) as refused:
        read_all(data_of(home))
    assert "seqattn prepare" in str(refused.value)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def change(home, edit):
    manifest = json.loads((home / "manifest.json").read_text())
    edit(manifest)
    (home / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("key", ["pairs", "lengths", "bytes", "source_tokens", "name", "sha256"])
@pytest.mark.parametrize(
    "value", [-5, 10**12, 10**30, 1.5, float("nan"), None, "many", [], {}, True, "../x", ""]
)
def test_a_shards_entry_is_held_against_its_files(home, key, value):
    if key == "source_tokens" and isinstance(value, int) and 0 <= value < 1 << 40:
        return  # told to a reader alone

    def edit(manifest):
        manifest["train"][4][key] = value

    change(home, edit)
    assert str(home) in refusal(home)


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m.pop("train"),
        lambda m: m["train"][0].pop("pairs"),
        lambda m: m["train"].pop(),
        lambda m: m["train"].append(m["train"][0]),
        lambda m: m["train"].reverse(),
        lambda m: m["splits"]["val"].update(rows=-1),
        lambda m: m["splits"]["val"].update(rows=10**11),
        lambda m: m["splits"]["val"].update(name="../val.arrow"),
        lambda m: m.update(format="seqattn shards 2"),
        lambda m: m.update(splits=[]),
        lambda m: m.update(counts={"read": "x"}),
        lambda m: m.update(lengths_sha256=""),
    ],
)
def test_a_manifest_of_other_contents_is_refused(home, edit):
    change(home, edit)
    assert str(home) in refusal(home)


def replace_shard(home, content):
    (home / SHARD).write_bytes(content)

    def edit(manifest):
        entry = manifest["train"][4]
        entry["sha256"], entry["bytes"] = digest_of(home / SHARD), (home / SHARD).stat().st_size

    change(home, edit)


def changed_ids(home, side, id):
    table = pa.ipc.open_file(home / SHARD).read_all()
    columns = [table.column(name).combine_chunks() for name in ("source", "target")]
    lengths = [np.diff(column.offsets.to_numpy()) for column in columns]
    ids = [column.values.to_numpy().astype(np.int32) for column in columns]
    ids[side][7] = id
    return ids_file(lengths, ids)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("id", [60, -1, 2**31 - 1, -(2**31)])
def test_ids_beyond_the_vocabulary_are_refused(home, side, id):
    replace_shard(home, changed_ids(home, side, id))
    assert f"{home / SHARD} does not contain 67 pairs of ids below 60 and 60" in refusal(home)


def of_lists(*columns):
    return arrow_file(dict(zip(("source", "target"), columns)))


BAD = pa.ListArray.from_buffers(
    pa.list_(pa.int32()),
    67,
    [None, pa.array([0, *[9] * 66, 5], pa.int32()).buffers()[1]],
    children=[pa.array(range(9), pa.int32())],
)
GOOD = pa.array([[4, 3]] * 67, pa.list_(pa.int32()))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"ARROW1\0\0",
        of_lists(GOOD),
        of_lists(GOOD, pa.array(["x"] * 67)),
        of_lists(GOOD, pa.array([["x"]] * 67)),
        of_lists(GOOD, pa.array([[1.5]] * 67)),
        of_lists(GOOD, pa.array([None] * 67, pa.list_(pa.int32()))),
        of_lists(GOOD, pa.array([[4, None]] * 67, pa.list_(pa.int32()))),
        of_lists(GOOD[:9], GOOD[:9]),
        of_lists(GOOD, GOOD),
        of_lists(GOOD, BAD),
    ],
)
def test_a_shard_that_is_another_is_refused(home, content):
    replace_shard(home, content)
    assert str(home) in refusal(home)


def test_a_shard_of_another_corpus_is_refused(home, tmp_path):
    other = prepare(tmp_path / "other", pairs=[pair[::-1] for pair in PAIRS[::-1]]).path
    replace_shard(home, (other / "train-00001.arrow").read_bytes())
    assert str(home) in refusal(home)


def saved(array):
    sink = io.BytesIO()
    np.save(sink, array, allow_pickle=array.dtype == object)
    return sink.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x",
        saved(np.zeros((3, 3), np.int32)),
        saved(np.zeros((3, 2), np.float32)),
        saved(np.array([None, {}], object)),
        saved(np.zeros((), np.int32)),
        "cut",
        "negative",
        "float",
    ],
)
def test_lengths_are_held_against_the_manifest(home, content):
    path = home / "lengths.npy"
    table = np.load(path)
    if content == "cut":
        content = path.read_bytes()[:-40]
    elif content == "negative":
        content = saved(-table)
    elif content == "float":
        content = saved(table.astype(np.float64))
    path.write_bytes(content)
    change(home, lambda manifest: manifest.update(lengths_sha256=digest_of(path)))
    assert str(home) in refusal(home)


@pytest.mark.parametrize(
    "table", [None, pa.table({"source": ["a"] * 30}), pa.table({"source": ["a"], "target": ["b"]})]
)
def test_texts_to_validate_on_are_held_against_the_manifest(home, table):
    path = home / "val.arrow"
    if table is None:
        path.write_bytes(b"ARROW1")
    else:
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
    change(home, lambda m: m["splits"]["val"].update(sha256=digest_of(path)))
    assert str(path) in refusal(home)
