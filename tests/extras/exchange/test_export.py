"""`export`: a bundle for CTranslate2, with a page whose program gives what `generate` gives."""

import re
import shutil

import pytest

import seqattn
from seqattn.extras.exchange.export import TARGETS
from tests.cli.small import listing, pairs, refusal, run, succeed
from tests.extras.exchange.cards import program, write_beginning

pytest.importorskip("ctranslate2")
FILES = ["README.md", "config.json", "joint.model", "model.bin", "shared_vocabulary.json"]


@pytest.fixture
def export(capfd, trained, tmp_path):
    """Exports the trained bundle; gives the directory and what was printed."""

    def call(*words, output="new"):
        words = (f"bundle={trained / 'model'}", f"output={tmp_path / output}", *words)
        return tmp_path / output, succeed(capfd, "export", *words)

    return call


def test_the_program_of_its_page_says_what_the_bundle_says(export, trained, capfd):
    new, out = export()
    assert {*FILES} <= {file.name for file in new.iterdir()}
    assert re.search(r"checked .* 8 random pairs: .* more than \d+e-0[5-9] nats", out)
    texts = [source for source, _ in pairs()][::9]
    for text in texts:
        exec(program(new, text), {})
    assert capfd.readouterr().out.splitlines() == seqattn.load(trained / "model").generate(texts)


def test_the_program_of_its_page_begins_texts_as_the_bundle_does(trained, tmp_path, capfd):
    before, first = write_beginning(trained / "model", tmp_path / "model")
    succeed(capfd, "export", f"bundle={tmp_path}/model", f"output={tmp_path}/new")
    page = (tmp_path / "new" / "README.md").read_text(encoding="utf-8")
    assert f"pieces = [{before!r}, *source.encode(" in page
    assert f"target_prefix=[[{first!r}]]" in page
    texts = [source for source, _ in pairs()][::9]
    for text in texts:
        exec(program(tmp_path / "new", text).replace("beam_size=2", "beam_size=1"), {})
    bundle, limit = seqattn.load(tmp_path / "model"), {"extra": 3}
    outputs = bundle.generate(texts, "greedy", limit=limit, sentences=None)
    assert capfd.readouterr().out.splitlines() == outputs


@pytest.mark.parametrize("kind", ["int8", "float16"])
def test_a_file_of_fewer_bits_is_smaller_and_says_something(export, capfd, kind):
    whole, _ = export()
    new, out = export(f"quantize={kind}", output="fewer")
    size = (new / "model.bin").stat().st_size
    assert f"{size:,} bytes in {kind} (" in out
    assert size < (whole / "model.bin").stat().st_size
    exec(program(new, "a dog sees a ball ."), {})
    assert capfd.readouterr().out.strip()


def test_the_same_command_is_finished_and_another_is_refused(export, trained, tmp_path, capfd):
    (tmp_path / "new").mkdir()
    new, _ = export()
    before = listing(new)
    copied = tmp_path / "copied"
    shutil.copytree(trained / "model", copied)
    for bundle in (trained / "model", copied):
        ended = run(capfd, "export", f"bundle={bundle}", f"output={new}")
        assert ended == (0, "", f"output={new} is complete, nothing to do\n")
    with (copied / "config.yaml").open("a") as file:
        file.write("\n")
    for words, told in (
        ((f"bundle={copied}",), "different contents of bundle"),
        ((f"bundle={trained / 'model'}", "quantize=int8"), "quantize=null"),
    ):
        text = refusal(capfd, "export", *words, f"output={new}")
        assert text.startswith(f"output={new} was made with {told}; use the same settings, ")
    assert listing(new) == before


def test_what_differs_is_refused_and_not_written(trained, tmp_path, monkeypatch, capfd):
    part = "seqattn.extras.exchange.ctranslate_export._difference"
    monkeypatch.setattr(part, lambda *_: float("nan"))
    words = f"bundle={trained / 'model'}", f"output={tmp_path / 'new'}"
    assert "log-probabilities differ from the bundle" in refusal(capfd, "export", *words)
    assert [*tmp_path.iterdir()] == []  # nor a directory for it


def test_what_cannot_be_exported_is_refused(trained, answering, tmp_path, capfd):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").touch()
    small = tmp_path / "int8"
    words = f"bundle={trained / 'model'}", f"output={small}", "quantize=int8", "scores=false"
    succeed(capfd, "convert", *words)
    for bundle, output, reason in [
        (trained, "taken", "is not empty; choose another directory"),
        (answering, "new", "export needs a bundle that outputs text, "),
        (small, "new", "is already quantized; export the original bundle"),
    ]:
        home = bundle if bundle == small else bundle / "model"
        text = refusal(capfd, "export", f"bundle={home}", f"output={tmp_path / output}")
        assert reason in text
    text = refusal(capfd, "export", f"bundle={trained}/model", "output=DIR", "to=word")
    assert text == f"to must be one of {', '.join(TARGETS)}, got 'word'"
    assert not (tmp_path / "new").exists()
