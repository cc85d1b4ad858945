"""Corpora that a model writes: what is in them, and that a kill loses little."""

import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

from seqattn.bundle.files import write_bundle
from seqattn.bundle.load import load_bundle
from seqattn.data.sources import ParallelText
from seqattn.data.table import Table
from seqattn.errors import UserError
from seqattn.extras.corpora import synthetic
from seqattn.extras.corpora.backtranslate import BackTranslation, noised
from seqattn.extras.corpora.distil import Distillation
from seqattn.generation import BeamSearch, Generator, GreedySearch, LengthLimit
from seqattn.metrics.text import sentence_bleu
from seqattn.settings.nodes import build
from tests.builders import randomised
from tests.cli.small import json_lines, pairs
from tests.nodes import with_settings

BEAM = BeamSearch(LengthLimit(1.0, 2), beam_size=3)


@pytest.fixture
def distilled(writers, corpus, tmp_path, monkeypatch):
    """Distils into a directory of that name."""
    monkeypatch.setattr(synthetic, "_PART", 7)

    def run(name, **options):
        given = {"generation": BEAM, "data": ParallelText(str(corpus), "en", "de"), **options}
        cache = str(tmp_path / "cache")
        teacher = str(writers / "transformer")
        own = {"bundle": teacher, "output": str(tmp_path / name), "cache_dir": cache}
        return with_settings(Distillation(**own, **given))

    return run


def rows(file):
    return json_lines(file.read_text())


def loaded(directory, name):
    return build(yaml.safe_load((directory / "data" / f"{name}.yaml").read_text()), "data")


def test_a_student_reads_the_training_sources_with_the_teacher_s_outputs(
    distilled, writers, corpus
):
    directory = distilled("out", sentences=20, originals=2).run()
    source = loaded(directory, "distilled")
    assert isinstance(source, Table)
    (originals, train), kept = zip(*pairs()), source.load("train", directory / "cache")
    teacher = load_bundle(writers / "transformer")
    assert kept["source"][:20] == list(originals[:20])
    assert kept["target"][:20] == teacher.generate(originals[:20], BEAM)
    assert kept["source"][20:] == list(originals) * 2
    assert kept["target"][20:] == list(train) * 2
    for split in ("val", "test"):
        for side, suffix in (("source", "en"), ("target", "de")):
            found = source.load(split, directory / "cache")[side]
            assert found == (corpus / f"{split}.{suffix}").read_text().splitlines()


def test_a_killed_run_goes_on_and_writes_the_same(distilled, monkeypatch, capsys):
    whole = (distilled("whole").run() / "synthetic.jsonl").read_bytes()
    search, searched = Generator.generate_windows, []

    def until_killed(*given):
        if len(searched) == 3:
            raise KeyboardInterrupt
        searched.append(given[2])
        return search(*given)

    monkeypatch.setattr(Generator, "generate_windows", until_killed)
    run = distilled("killed")
    with pytest.raises(KeyboardInterrupt):
        run.run()
    with (Path(run.output) / "synthetic.part").open("ab") as file:  # in the midst of the next part
        file.write(whole.splitlines(keepends=True)[21] + b'{"source": "tor')
    monkeypatch.setattr(
        Generator,
        "generate_windows",
        lambda *given: searched.append(given[2]) or search(*given),
    )
    directory = run.run()
    assert (directory / "synthetic.jsonl").read_bytes() == whole
    assert [row for numbers in searched for row in numbers] == list(range(60))
    before = len(searched)
    capsys.readouterr()
    run.run()  # all is there
    assert len(searched) == before
    said = capsys.readouterr()
    assert said.err == f"output={directory} is complete, nothing to do\n"
    assert said.out == ""


@pytest.fixture
def stopped(distilled, monkeypatch):
    """Distils with a teacher of its own, and is killed after two parts."""

    def run(**options):
        search, searched = Generator.generate_windows, []

        def until_killed(*given):
            if len(searched) == 2:
                raise KeyboardInterrupt
            searched.append(given[2])
            return search(*given)

        made = distilled("out", **options)
        with monkeypatch.context() as patched:
            patched.setattr(Generator, "generate_windows", until_killed)
            with pytest.raises(KeyboardInterrupt):
                made.run()
        return made

    return run


@pytest.mark.parametrize("finished", [True, False])
def test_another_teacher_in_its_place_does_not_go_on(stopped, writers, tmp_path, finished):
    teacher = tmp_path / "teacher"
    shutil.copytree(writers / "transformer", teacher)
    run = replace(stopped(), bundle=str(teacher))  # the same teacher, elsewhere
    if finished:
        run.run()
    before = {path: path.read_bytes() for path in Path(run.output).rglob("*.*") if path.is_file()}
    shutil.rmtree(teacher)
    other = load_bundle(writers / "transformer")
    write_bundle(teacher, other.config, randomised(other.model, scale=0.4), other.tokenizer, {})
    with pytest.raises(UserError, match="out was made with different contents of bundle; use the"):
        run.run()
    ensemble = replace(run, bundle=str(writers / "transformer"), ensemble=[str(teacher)])
    with pytest.raises(UserError, match="out was made with different contents of ensemble; use"):
        ensemble.run()
    assert before == {path: path.read_bytes() for path in before}


def test_other_data_under_the_same_name_does_not_go_on(stopped, corpus, tmp_path):
    home = tmp_path / "corpus"
    shutil.copytree(corpus, home)
    run = replace(stopped(), data=ParallelText(str(home), "en", "de"))  # the same data, elsewhere
    file = home / "val.de"
    text, known = file.read_text(), file.stat()
    file.write_text(text.replace("Hund", "hund"))  # as long as before
    os.utime(file, ns=(known.st_atime_ns, known.st_mtime_ns))
    with pytest.raises(UserError, match=r"made with different contents of data\.val; use the"):
        run.run()
    file.write_text(text)
    run.run()


def test_a_refused_start_binds_nobody(distilled, monkeypatch):
    def refused(*given):
        raise UserError("source 1 has 600 tokens")

    with monkeypatch.context() as patched:
        patched.setattr(Generator, "generate_windows", refused)
        wrong = distilled("out")
        with pytest.raises(UserError, match="600 tokens"):
            wrong.run()
    assert not Path(wrong.output).exists()
    distilled("out", generation=GreedySearch(), sentences=3).run()


def test_two_processes_do_not_write_one_corpus(distilled, tmp_path):
    (tmp_path / "out").mkdir()
    with FileLock(tmp_path / "out" / ".lock"), pytest.raises(UserError, match="in use"):
        distilled("out", sentences=3).run()


@pytest.mark.exhaustive
def test_a_directory_of_another_corpus_or_of_other_files_is_left_alone(distilled, tmp_path):
    distilled("out", sentences=3).run()
    for other, told in (
        ({"sentences": 4}, "sentences=3; use the same"),
        ({"sentences": 3, "target": "nearest"}, "target=best; use the same"),
        ({"sentences": 3, "generation": GreedySearch()}, "generation=BeamSearch; use the same"),
    ):
        with pytest.raises(UserError, match=f"out was made with {told}"):
            distilled("out", **other).run()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("")
    with pytest.raises(UserError, match="is not empty"):
        distilled("mine").run()


def test_the_nearest_hypothesis_has_the_highest_sentence_bleu(distilled, writers):
    teacher = load_bundle(writers / "transformer")
    data = [(source, source) for source, _ in pairs()]  # near enough to differ
    run = distilled("out", target="nearest")
    inputs = synthetic.Texts(*map(list, zip(*data)), [[said] for _, said in data], None)
    others = 0
    for number, found in enumerate(teacher.hypotheses(inputs.sources[:8], run.search)):
        outputs = teacher.tokenizer.decode_target([one.ids for one in found])
        assert len(outputs) == 3
        source, chosen = run.pair(number, inputs, ["", *outputs, data[number][1]])
        assert (source, chosen) == data[number]
        _, chosen = run.pair(number, inputs, outputs)
        scores = [sentence_bleu(text, inputs.references[number]) for text in outputs]
        assert chosen == outputs[scores.index(max(scores))]
        others += chosen != outputs[0]
    assert others
    with pytest.raises(UserError, match="target=nearest needs several"):
        distilled("out", target="nearest", generation=GreedySearch())


@pytest.mark.exhaustive
def test_several_references_stay(distilled, corpus, tmp_path):
    lines = [
        {"source": "a dog", "target": "x", "references": ["x", "y"]},
        {"source": "b", "target": "z"},
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    files = dict.fromkeys(("train", "val"), str(file))
    directory = distilled("out", data=Table(files, references_column="references")).run()
    source = loaded(directory, "distilled")
    assert source.load("val", tmp_path / "c")["references"] == [["x", "y"], ["z"]]
    kept = source.load("train", tmp_path / "c")
    assert kept["references"] == [[text] for text in kept["target"]]
    assert not (directory / "test.jsonl").exists()


def test_back_translations_stand_before_the_pairs_turned_round(writers, corpus, tmp_path):
    file = tmp_path / "mono.de"
    file.write_text("ein Hund\n\nzwei Vögel\n")
    given = {"bundle": str(writers / "transformer"), "generation": BEAM, "input": str(file)}
    data, cache = ParallelText(str(corpus), "de", "en"), str(tmp_path / "cache")
    given |= {"output": str(tmp_path / "out"), "data": data, "cache_dir": cache}
    run = with_settings(BackTranslation(**given, tag="BT"))
    source = loaded(run.run(), "backtranslated")
    kept = source.load("train", tmp_path / "cache")
    made = load_bundle(writers / "transformer").generate(["ein Hund", "zwei Vögel"], BEAM)
    assert kept["source"] == [*(f"<BT> {text}" for text in made), *(s for s, _ in pairs())]
    assert kept["target"] == ["ein Hund", "zwei Vögel", *(said for _, said in pairs())]
    assert source.load("val", tmp_path / "cache")["source"][0] == "a dog sees a ball ."
    file.write_text("ein Hund\n")
    with pytest.raises(UserError, match="made with different contents of input; use the same"):
        run.run()
    file.write_text("\n \n")
    with pytest.raises(UserError, match="contains no text"):
        replace(run, output=str(tmp_path / "new")).run()
    assert not (tmp_path / "new").exists()
    for name in ("mono.jsonl", "mono.json"):
        (tmp_path / name).write_text('{"source": "ein Hund"}\n{"source": "zwei Vögel"}\n')
        read = replace(run, input=str(tmp_path / name)).inputs(None)
        assert read.sources == ["ein Hund", "zwei Vögel"]


def test_noise_drops_blanks_and_moves_a_little():
    words = [f"w{number}" for number in range(4000)]
    made = noised(" ".join(words), 0.1, random.Random(1)).split()
    assert len(made) == pytest.approx(3600, rel=0.03)
    assert made.count("_") == pytest.approx(360, rel=0.15)
    kept = [int(word[1:]) for word in made if word != "_"]
    earlier = [
        sum(other > word for other in kept[max(0, at - 20) : at]) for at, word in enumerate(kept)
    ]
    assert max(earlier) == 3
    assert sum(earlier) > 1000
    assert noised("one", 1.0, random.Random(1)) == "_"
    assert noised("a b c", 0.1, random.Random(5)) == noised("a b c", 0.1, random.Random(5))
