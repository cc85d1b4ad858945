"""A file of plain text as pairs: noise is drawn by seed, epoch and row, and resumes."""

import itertools
import json

import pytest

from seqattn.data.module import Seq2SeqData
from seqattn.data.options import LoaderOptions
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.extras.denoising.noise import MASK, SENTINELS
from seqattn.extras.denoising.source import Denoising
from tests.cli.small import refused_before_work
from tests.data.test_subword_sampling import SYLLABLES, rows_of
from tests.growth import SIGNS, grows

WORDS = ["".join(parts) for parts in itertools.product(SYLLABLES, SYLLABLES[:4], SYLLABLES[:2])]
LINES = [" ".join(WORDS[(n * k) % 48] for k in range(1, n % 9 + 5)) for n in range(1, 61)]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


def build(file, seed=3, alpha=None, workers=0, **settings):
    source = Denoising({"train": str(file)}, hold_out=10, **settings)
    options = LoaderOptions(
        max_tokens=200, max_length=60, subword_sampling=alpha, num_workers=workers
    )
    config = TokenizerConfig("unigram", symbols=[MASK, *SENTINELS])
    return Seq2SeqData(source, config, options, str(file.parent / "cache"), seed=seed)


@pytest.mark.parametrize("noise", ["infilling", "spans"])
def test_each_epoch_has_other_noise_of_the_same_texts(file, noise):
    data = build(file, noise=noise)
    texts = data._rows("train")["text"]
    loader = data.loader("train")
    first, second = rows_of(loader), rows_of(loader, 1)
    assert len(first) == 50
    assert sum(first[row] != second[row] for row in first) > 40
    decode = data.tokenizer.decode_target
    piece = {name: data.tokenizer.source_vocabulary().index(name) for name in [MASK, *SENTINELS]}
    for epoch in (first, second):
        for row, (source, target) in epoch.items():
            if noise == "infilling":
                assert decode([target]) == [texts[row]]
                assert piece[MASK] in source
            else:  # both sides are of one draw
                assert piece[SENTINELS[0]] in source
                words = [word for side in decode([source, target]) for word in side.split()]
                assert sorted(w for w in words if w not in SENTINELS) == sorted(texts[row].split())


def test_noise_depends_on_seed_row_and_epoch_alone(file):
    expected = rows_of(build(file).loader("train"), 2)
    assert rows_of(build(file, workers=1).loader("train"), 2) == expected
    ranks = [build(file) for _ in range(2)]
    parts = {}
    for rank, data in enumerate(ranks):
        data.load()
        rows = data._splits["train"]
        rows.epoch = 2
        for place in range(rank, len(rows), 2):
            batch = rows.batch([place])
            parts[int(batch.index)] = tuple(batch.source[0].tolist())
    assert parts == {row: source for row, (source, _) in expected.items()}
    other = rows_of(build(file, seed=4).loader("train"), 2)
    assert sum(other[row] != expected[row] for row in expected) > 40


def test_a_run_resumed_within_an_epoch_sees_the_same_noise(file):
    loader = build(file).loader("train")
    loader.set_epoch(1)
    batches = iter(loader)
    next(batches)
    again = build(file).loader("train")
    again.load_state_dict(loader.state_dict())
    rest, resumed = ([batch for [batch] in steps] for steps in (batches, again))
    assert len(resumed) == len(rest) >= 2
    for mine, theirs in zip(resumed, rest, strict=True):
        assert mine.source.equal(theirs.source)
        assert mine.target_output.equal(theirs.target_output)


def test_validation_has_fixed_noise_and_texts_that_training_lacks(file):
    one, other = build(file), build(file, seed=9)
    assert rows_of(one.loader("val")) == rows_of(other.loader("val"), 5)
    rows = one.rows("val")
    assert len(rows.sources) == 10
    assert all(MASK in text for text in rows.sources)
    assert not set(rows.targets) & set(one.rows("train").targets)


def test_subword_sampling_comes_on_top(file):
    data = build(file, alpha=0.2)
    plain, sampled = rows_of(build(file).loader("train")), rows_of(data.loader("train"))
    assert sum(plain[row] != sampled[row] for row in plain) > 30
    decode = data.tokenizer.decode_target
    assert all(decode(plain[row][1:]) == decode(sampled[row][1:]) for row in plain)


def test_tables_long_texts_and_several_files_are_read(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"body": "one two three four five"}) + "\n")
    (tmp_path / "b.de").write_text("eins zwei\n\n")
    files = {"train": [str(tmp_path / "a.jsonl"), str(tmp_path / "b.de")], "val": None}
    rows = Denoising(files, "body", "none", max_words=2).load("train", tmp_path / "cache")
    assert rows["text"] == ["one two", "three four", "five", "eins zwei", ""]
    assert rows["source"] == rows["target"] == rows["text"]
    (tmp_path / "c.jsonl").write_text(json.dumps({"body": "a\nb\nc d"}) + "\n")
    lines = Denoising({"train": str(tmp_path / "c.jsonl")}, "body", "none", max_words=2)
    assert lines.load("train", tmp_path / "cache")["text"] == ["a\nb", "c d"]
    with pytest.raises(UserError, match=r"has no column 'text', only body; set data.column"):
        Denoising(files).load("train", tmp_path / "cache")
    (tmp_path / "n.jsonl").write_text('{"text": 3}\n')
    with pytest.raises(UserError, match=r"column .text. of .* must contain text, got int64"):
        Denoising({"train": str(tmp_path / "n.jsonl")}).load("train", tmp_path / "cache")
    (tmp_path / "e.txt").write_text("")
    with pytest.raises(UserError, match="hold_out"):
        Denoising({"train": str(tmp_path / "e.txt")}, hold_out=0.1).load("val", tmp_path / "cache")
    (tmp_path / "b.de").write_text("drei\n")  # a changed file is read again
    again = Denoising(files, "body", "none", max_words=2).load("train", tmp_path / "cache")
    assert again["text"][-1] == "drei"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"files": {}}, "missing required key: data.files.train"),
        ({"files": {"train": "a", "val": "b"}, "hold_out": 5}, "data.files.val and data.hold_out "),
    ],
)
def test_what_it_cannot_read_is_refused(settings, told):
    with pytest.raises(UserError, match=f"^{told}"):
        Denoising(**settings)


def test_equal_texts_are_held_out_together(tmp_path):
    rows = [n for n, count in enumerate([30, *[1] * 20, *[3] * 10]) for _ in range(count)]
    (tmp_path / "often.en").write_text("".join(f"x{n}\n" for n in rows))
    files = {"train": str(tmp_path / "often.en")}
    source = Denoising(files, noise="masking", share=0.9, hold_out=10, hold_out_test=0.1)
    splits = [list(source.load(split)["text"]) for split in ("train", "val", "test")]
    assert list(map(len, splits)) == [62, 10, 8]
    assert not set.intersection(*map(set, splits[:2]))
    assert sorted(itertools.chain(*splits)) == sorted(f"x{n}" for n in rows)


def test_other_data_are_refused():
    told = refused_before_work("task=denoising", "data=demo_translation")
    assert told == "task=denoising does not support data=demo_translation; choose from denoising"


def test_a_text_takes_no_more_time_than_its_length(tmp_path):
    def read(text):
        (tmp_path / "text.txt").write_text(text)
        Denoising({"train": str(tmp_path / "text.txt")}).load("train", tmp_path)

    assert [sign for sign in SIGNS if grows(read, sign)] == []
