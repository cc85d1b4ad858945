"""Contexts too long to be read at once are read in windows that all begin with the question."""

import json
from dataclasses import replace

import pytest

from seqattn.data.module import Seq2SeqData
from seqattn.data.options import LoaderOptions
from seqattn.data.source_ids import Headed, read_sources
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.extras.answers.asked import question_source
from seqattn.extras.answers.squad import AnswerPairs, Squad

NAMES = ["ann", "bob", "cid", "dot", "eve", "fay", "gus"]


def document(facts):
    """As many questions on one context of so many facts, and one without an answer."""
    texts = [f"{NAMES[n % 7]} has {n} cats and dogs ." for n in range(facts)]
    context, asked = " ".join(texts), []
    for n in (0, facts // 2, facts - 1):
        answer = {"text": f"{n} cats", "answer_start": context.index(f" {n} cats") + 1}
        asked.append({"id": f"{facts}-{n}", "question": "how many ?", "answers": [answer]})
    asked.append({"id": f"{facts}", "question": "why ?", "answers": [], "is_impossible": True})
    return {"paragraphs": [{"context": context, "qas": asked}]}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("questions")
    for name, sizes in (("train", (3, 12)), ("dev", (4,))):
        (folder / f"{name}.json").write_text(json.dumps({"data": [*map(document, sizes)]}))
    options = LoaderOptions(long_sources="window", max_source_length=30, max_length=60)
    found = Seq2SeqData(
        AnswerPairs(Squad(str(folder))), TokenizerConfig("bpe"), options, str(folder / "cache")
    )
    found.load()
    return found


def windows_of(data, longest=30):
    """Texts of the windows of each training row, and what is to be answered."""
    found = {}
    for [batch] in data.loader("train"):
        sources = data.tokenizer.decode_target(batch.source.tolist())
        for row, source, length in zip(batch.index.tolist(), sources, (batch.source > 0).sum(1)):
            assert length <= longest
            found.setdefault(row, []).append(source)
    return found


def test_each_window_has_the_question_and_the_answer_and_none_is_dropped(data):
    found, texts = windows_of(data), data.rows("train")
    assert sorted(found) == list(range(8))
    for row, windows in found.items():
        head = texts.sources[row][: texts.sources[row].head]
        assert head == f"question: {'why' if row % 4 == 3 else 'how many'} ? context: "
        for window in windows:
            assert window.startswith(head)
            assert texts.targets[row] == "unanswerable" or texts.targets[row] in window
    assert [len(found[row]) for row in range(3)] == [1, 1, 1]
    assert len(found[7]) > 5  # of a question without an answer all windows are read
    assert all(1 <= len(found[row]) < 4 for row in (4, 5, 6))
    [told, _] = data.notices()
    assert told.startswith("kept all 8 train pairs; split 4 sources (50.0%) into ")
    assert " more without the answer; read from " in told


def test_no_window_cuts_its_answer_whatever_its_length(data):
    texts = data.rows("train")
    for length in range(24, 44):
        options = replace(data.options, max_source_length=length)
        folder, tokenizer = str(data.cache_dir), data.tokenizer
        cut = Seq2SeqData(data.source, data.tokenizer_config, options, folder, 0, tokenizer)
        for row, windows in windows_of(cut, length).items():
            answer = texts.targets[row]
            assert answer == "unanswerable" or all(answer in window for window in windows)


def test_generation_reads_the_same_windows_and_all_of_them(data):
    texts = data.rows("train")
    read = read_sources(texts.sources, data.tokenizer, data.options)
    for row, windows in windows_of(data).items():
        whole = data.tokenizer.decode_target(read[row])
        assert set(windows) <= set(whole)
    whole = data.tokenizer.decode_target(read[7])
    assert whole[-1].endswith(texts.sources[7][-20:])
    for word in set(texts.sources[7].split()):
        assert any(word in window for window in whole)


def test_a_head_longer_than_half_a_window_is_cut_to_it(tmp_path):
    tokenizer = train_tokenizer(["a b c d"], ["a b"], TokenizerConfig("bpe"), tmp_path)
    options = LoaderOptions(long_sources="window", max_source_length=8)
    [windows] = read_sources([question_source("a " * 9, "b c " * 9)], tokenizer, options)
    plain = read_sources([str(question_source("a " * 9, "b c " * 9))], tokenizer, options)[0]
    assert {len(window) for window in windows} == {8}
    assert len({tuple(window[:4]) for window in windows}) == 1
    assert len({tuple(window[:4]) for window in plain}) > 1
    assert isinstance(Headed("ab", 1), str)
