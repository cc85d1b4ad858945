"""Sources that begin with targets of the training sources most like them."""

import json
from types import SimpleNamespace

import pytest
import yaml

from seqattn.data.base import Texts
from seqattn.data.table import Table
from seqattn.errors import UserError
from seqattn.extras.corpora.retrieve import Retrieval
from seqattn.settings.nodes import build
from tests.cli.small import json_lines, listing

TRAIN = [
    ("the board meets here on monday", "Board meeting"),
    ("the board meets here on friday", "Board meeting"),
    ("gas prices rose again", "Gas up"),
    ("gas prices fell again", "Gas down"),
]
VAL = [("the board meets here on sunday", "Sunday"), ("hello", "Greeting")]


@pytest.fixture
def data(tmp_path):
    for split, pairs in (("train", TRAIN), ("val", VAL)):
        lines = [json.dumps({"source": source, "target": target}) for source, target in pairs]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines))
    return Table({split: str(tmp_path / f"{split}.jsonl") for split in ("train", "val")})


@pytest.fixture
def retrieved(data, tmp_path):
    """The sources of both splits and what was written, with some options."""

    def run(**options):
        cache = str(tmp_path / "cache")
        options = {"data": data, "output": str(tmp_path / "out"), "cache_dir": cache, **options}
        directory = Retrieval(**options).run()
        node = yaml.safe_load((directory / "data" / "retrieved.yaml").read_text())
        source = build(node, "data")
        return [Texts.of(source.load(split, tmp_path / "c")) for split in ("train", "val")]

    return run


def test_a_source_begins_with_the_target_of_another_training_source(retrieved, tmp_path):
    train, val = retrieved()
    assert [text.split("> ", 1)[1] for text in train.sources] == [
        "Board meeting || the board meets here on monday",
        "Board meeting || the board meets here on friday",
        "Gas down || gas prices rose again",
        "Gas up || gas prices fell again",
    ]
    assert train.targets == [target for _, target in TRAIN]
    assert val.targets == ["Sunday", "Greeting"]
    board, hello = val.sources
    assert board.endswith("> Board meeting || the board meets here on sunday")
    assert hello == "<0> Board meeting || hello"  # like nothing: the first
    rows = json_lines((tmp_path / "out" / "train.jsonl").read_text())
    # of six words five are shared, of rarity ln 2, and one is this text's own, ln 4: 5 / 9
    assert {row["likeness"] for row in rows[:2]} == {"5"}


def test_several_targets_differ(retrieved):
    _, val = retrieved(neighbors=2)
    assert "> Board meeting | Gas up ||" in val.sources[0]
    assert val.sources[0].head == len("<5> ")


def test_what_is_not_near_enough_gives_nothing(retrieved):
    train, val = retrieved(neighbors=3, least=0.3)
    assert "> Board meeting || " in val.sources[0]
    assert val.sources[1] == "<0>  || hello"
    assert all("Board meeting | " not in source for source in train.sources)


def test_an_input_gets_what_validation_does(retrieved, tmp_path):
    file = tmp_path / "mails.txt"
    file.write_text("the board meets here on sunday\nhello\n")
    retrieved(input=str(file))
    rows = json_lines((tmp_path / "out" / "input.jsonl").read_text())
    val = json_lines((tmp_path / "out" / "val.jsonl").read_text())
    columns = ("likeness", "retrieved", "source")
    assert rows == [{name: row[name] for name in columns} for row in val]


def test_what_is_known_word_for_word_is_found_however_near_it_must_be(retrieved, tmp_path):
    file = tmp_path / "mails.txt"
    file.write_text("\n".join(source for source, _ in TRAIN) + "\n")
    retrieved(input=str(file), least=1.0)
    rows = json_lines((tmp_path / "out" / "input.jsonl").read_text())
    assert [row["retrieved"] for row in rows] == [target for _, target in TRAIN]
    assert {row["likeness"] for row in rows} == {"9"}


def test_what_cannot_be_done_is_refused(retrieved, tmp_path):
    with pytest.raises(UserError, match="retrieve supports only text pairs; train"):
        retrieved(data=SimpleNamespace(yields="questions"))
    with pytest.raises(UserError, match="gone"):
        retrieved(input=str(tmp_path / "gone"))
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(UserError, match="out is not empty; choose another directory"):
        retrieved()


def test_the_same_command_is_finished_and_another_is_refused(retrieved, data, tmp_path, capsys):
    file = tmp_path / "mails.txt"
    file.write_text("hello\n")
    retrieved(input=str(file))
    before = listing(tmp_path / "out")
    capsys.readouterr()
    retrieved(input=str(file))
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "",
        f"output={tmp_path}/out is complete, nothing to do\n",
    )
    (tmp_path / "out" / "data" / "retrieved.yaml").unlink()  # it was stopped
    retrieved(input=str(file))
    assert listing(tmp_path / "out") == before
    for options, told in (
        (
            {"least": 0.5, "neighbors": 2},
            "least=0.0, neighbors=1, different contents of data.input;",
        ),
        ({}, "different contents of data.input;"),
    ):
        with pytest.raises(UserError, match=f"out was made with {told} use the same"):
            retrieved(**options)
    (tmp_path / "val.jsonl").write_text(json.dumps({"source": "hi", "target": "ho"}))
    with pytest.raises(UserError, match=r"different contents of data\.val; use the same"):
        retrieved(input=str(file))
