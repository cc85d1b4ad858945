"""Given pairs get their links in order, whatever stops the command, and a reading is chosen."""

import shutil

import numpy as np
import pytest

import seqattn
from seqattn.analysis.word_alignment import AlignmentReading
from seqattn.data.word_links import WordLinks
from seqattn.extras.align import align as subcommand
from seqattn.extras.align.choose import Candidate, by_agreement, by_gold, candidates
from seqattn.extras.align.gold import alignment_scores, with_interval
from seqattn.extras.align.symmetrize import symmetrized
from tests.absent import of_extra
from tests.cli.small import data_of, refusal, run, succeed


def links(text):
    return frozenset(tuple(map(int, one.split("-"))) for one in text.split())


FORWARD, BACKWARD = links("0-0 1-1 2-2 4-3 3-4"), links("0-0 1-1 2-1 2-2 5-5 3-4")


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("intersection", "0-0 1-1 2-2 3-4"),
        ("union", "0-0 1-1 2-1 2-2 3-4 4-3 5-5"),
        # 4-3 touches 3-4, and 2-1 has no unaligned word; 5-5 touches none, and both words are free
        ("grow_diag_final_and", "0-0 1-1 2-2 3-4 4-3 5-5"),
    ],
)
def test_two_directions_become_one(how, expected):
    assert symmetrized(FORWARD, BACKWARD, how) == links(expected)


def test_scores_are_those_of_och_and_ney():
    gold = [
        WordLinks(links("0-0 1-1"), links("0-0 1-1 1-2")),
        WordLinks(links("0-1"), links("0-1 0-0")),
    ]
    found = [links("0-0 1-2 2-2"), links("0-1")]
    metric = of_extra("explain.alignment_error").AlignmentErrorRate()
    for one, (sure, possible) in zip(found, gold):
        metric.update(one, sure, possible)
    error, precision, recall = alignment_scores(found, gold)
    assert error.score == pytest.approx(float(metric.compute()))
    assert (precision.score, recall.score) == (pytest.approx(75), pytest.approx(100 * 2 / 3))
    assert with_interval(precision).startswith("75.0 ± ")


def test_the_best_reading_is_nearest_to_gold_or_to_the_other_direction():
    found = [Candidate(AlignmentReading(), [links(text)]) for text in ("0-0 1-1", "0-1 1-0")]
    others = [Candidate(AlignmentReading(), [links(text)]) for text in ("0-0 0-1", "1-0 0-1")]
    sure = links("0-1 1-0")
    assert by_gold(found, [WordLinks(sure, sure)]).tolist() == [100.0, 0.0]
    np.testing.assert_allclose(by_agreement(found, others), [[50, 0], [50, 100]])


@pytest.fixture
def bundle(trained, tmp_path):
    shutil.copytree(trained / "model", tmp_path / "model")
    return f"bundle={tmp_path}/model"


def files(corpus, split="val"):
    return f"source={corpus}/{split}.en", f"target={corpus}/{split}.de"


def expected(bundle, corpus, split="val"):
    texts = [(corpus / f"{split}.{side}").read_text().splitlines() for side in ("en", "de")]
    return [one.pharaoh() for one in seqattn.load(bundle.partition("=")[2]).align(*texts)]


def test_two_files_and_a_split_are_aligned_as_in_python(capfd, bundle, corpus, tmp_path):
    lines = expected(bundle, corpus)
    assert any(lines)
    assert succeed(capfd, "align", bundle, *files(corpus)).splitlines() == lines
    succeed(capfd, "align", bundle, *data_of(corpus), "split=val", f"output={tmp_path}/links")
    assert (tmp_path / "links").read_text().splitlines() == lines
    assert not (tmp_path / "links.partial").exists()


@pytest.mark.parametrize("torn", ["", "0-0 1-"])
def test_a_stopped_command_continues(capfd, bundle, corpus, tmp_path, monkeypatch, torn):
    words = (bundle, *files(corpus, "train"), f"output={tmp_path}/links")
    monkeypatch.setattr(subcommand, "_PART", 8)
    aligned, links_of = [], subcommand.Aligner.links

    def stopping(self, sources, targets):
        aligned.extend(sources)
        if len(aligned) == 24:
            raise KeyboardInterrupt
        return links_of(self, sources, targets)

    monkeypatch.setattr(subcommand.Aligner, "links", stopping)
    aligning = subcommand.Aligning(
        bundle=bundle.partition("=")[2], data=None, source=words[1].partition("=")[2],
        target=words[2].partition("=")[2], output=f"{tmp_path}/links",
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        aligning.run()
    assert not (tmp_path / "links").exists()
    with (tmp_path / "links.partial").open("a") as file:
        file.write(torn)
    aligning.run()
    assert len(aligned) == 60 + 8  # the part that was stopped is aligned again
    assert (tmp_path / "links").read_text().splitlines() == expected(bundle, corpus, "train")
    capfd.readouterr()


def stopped(*_):
    raise KeyboardInterrupt


def test_progress_of_other_files_or_settings_is_not_continued(
    capfd, bundle, corpus, tmp_path, monkeypatch
):
    changed = {"val.en": ("source", "a", "b"), "val.de": ("target", "e", "f")}
    changed["gold"] = "links", "0", "1"
    for name in ("val.en", "val.de"):
        shutil.copy(corpus / name, tmp_path)
    (tmp_path / "gold").write_text("0-0\n" * 6)
    words = [bundle, *files(tmp_path), f"output={tmp_path}/links", f"links={tmp_path}/gold"]
    with monkeypatch.context() as patch:
        patch.setattr("seqattn.subcommands.journal.write_lines", stopped)
        assert run(capfd, "align", *words).code == 130
    progress = (tmp_path / "links.partial").read_bytes()
    for name, (key, *letters) in changed.items():
        before = (tmp_path / name).read_text()
        (tmp_path / name).write_text(before.replace(*letters))
        assert f"holds progress with different contents of {key};" in refusal(
            capfd, "align", *words
        )
        (tmp_path / name).write_text(before)
    other = f"reverse.{bundle}", "symmetrize=union"
    line = refusal(capfd, "align", *words, *other)
    assert "symmetrize=grow_diag_final_and, different contents of reverse.bundle;" in line
    assert (tmp_path / "links.partial").read_bytes() == progress
    succeed(capfd, "align", *words)
    assert (tmp_path / "links").read_text().splitlines() == expected(bundle, corpus)


def test_gold_links_give_scores_and_a_reading_that_the_bundle_keeps(
    capfd, bundle, corpus, tmp_path
):
    lines = expected(bundle, corpus)
    (tmp_path / "gold").write_text("".join(f"{line}\n" for line in lines))
    given = (*data_of(corpus), f"data.alignments={tmp_path}/gold")
    out = succeed(capfd, "align", bundle, *given, "split=val", f"output={tmp_path}/links")
    assert "AER       │ 0.0 ± 0.0" in out
    out = succeed(capfd, "align", bundle, *given, "choose=true")
    kept = seqattn.load(tmp_path / "model").reading
    assert kept.chosen == "AER 0.0 on 6 pairs of val, by default 0.0"
    assert kept.chosen in out
    assert expected(bundle, corpus) == lines


def test_gold_links_of_all_pairs_serve_those_held_out(capfd, bundle, corpus, tmp_path):
    lines = expected(bundle, corpus, "train")
    (tmp_path / "gold").write_text("".join(f"{line}\n" for line in lines))
    given = (*data_of(corpus), f"data.alignments={tmp_path}/gold", "data.hold_out=9")
    out = succeed(capfd, "align", bundle, *given, "split=val", f"output={tmp_path}/links")
    assert "AER       │ 0.0 ± 0.0" in out
    assert len((tmp_path / "links").read_text().splitlines()) == 9
    assert "AER 0.0 on 9 pairs of val" in succeed(capfd, "align", bundle, *given, "choose=true")
    (tmp_path / "gold").write_text("\n" * 10)
    line = refusal(capfd, "align", bundle, *given, "split=val")
    assert line.endswith("got 10 lines for 9 pairs, or 60 with those of other splits")


def test_two_directions_choose_by_their_agreement(capfd, bundle, corpus, tmp_path):
    shutil.copytree(tmp_path / "model", tmp_path / "back")
    reverse = f"reverse.bundle={tmp_path}/back"
    succeed(capfd, "align", bundle, reverse, *data_of(corpus), "choose=true")
    for name in ("model", "back"):
        assert seqattn.load(tmp_path / name).reading.chosen.startswith("agreement ")
    both = succeed(capfd, "align", bundle, reverse, *files(corpus), "symmetrize=union")
    for one, line in zip(both.splitlines(), expected(bundle, corpus), strict=True):
        assert links(line) <= links(one)


def test_candidates_are_what_the_bundle_reads_by_them(bundle, corpus, tmp_path):
    texts = [(corpus / f"val.{side}").read_text().splitlines() for side in ("en", "de")]
    for reading, found in candidates(seqattn.load(tmp_path / "model"), *texts, "it"):
        model = seqattn.load(tmp_path / "model")
        model.config["alignment"] = {
            "shifted": reading.shifted, "layer": reading.layer, "head": reading.head
        }  # fmt: skip
        aligned = [links(one.pharaoh()) for one in model.align(*texts)]
        assert found == aligned


def test_texts_without_spaces_and_pairs_without_links_are_counted(capfd, bundle, tmp_path):
    (tmp_path / "a").write_text("a dog\n狗看见了一个球在房子里\n\n")
    (tmp_path / "b").write_text(f"ein Hund\nein Hund\n{'a ' * 9}\n")
    ended = run(capfd, "align", bundle, f"source={tmp_path}/a", f"target={tmp_path}/b")
    assert (ended.code, ended.out.count("\n")) == (0, 3)
    assert "1 texts without spaces between words, each one word" in ended.err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "set one of source=FILE target=FILE, split=SPLIT and choose=true"),
        (("source=a",), "source and target name two files with as many lines; set both"),
        (("choose=true",), "the validation split has no gold links; set data.alignments=FILE, or"),
        (("source=a", "target=b"), "a does not exist; expected a text file"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_line(capfd, bundle, corpus, words, line):
    assert line in refusal(capfd, "align", bundle, *data_of(corpus), *words)
