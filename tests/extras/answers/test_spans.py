"""Windows show every token, their labels say what they hold, and nothing is lost in silence."""

import itertools

import datasets
import numpy as np
import pytest
import torch

from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.extras.answers.span_batch import SpanEncoder
from seqattn.extras.answers.span_clues import CLUES
from seqattn.extras.answers.span_data import SpanData
from seqattn.extras.answers.span_dataset import SpanDataset, tokenize_questions
from seqattn.extras.answers.span_matching import CLUES as MODEL_CLUES
from seqattn.extras.answers.span_matching import MATCHES as MODEL_MATCHES
from seqattn.extras.answers.span_options import SpanOptions
from seqattn.extras.answers.span_text import MATCHES, TextReader, spell_words
from tests.extras.answers.small_spans import CONTEXTS, ROWS, FewQuestions, small_tokenizer
from tests.nodes import made


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def reader(cache):
    return TextReader(small_tokenizer(cache))


@pytest.fixture
def dataset(cache, reader):
    def build(rows=ROWS, contexts=CONTEXTS, drops=True, tokenizer=reader.tokenizer, **limits):
        table = FewQuestions(rows, contexts).load("train")
        tables = tokenize_questions(table, tokenizer, cache)
        return SpanDataset(*tables, SpanOptions(**limits), drops)

    return build


def windows(data):
    return data.windows(range(len(data)))


@pytest.mark.parametrize(("window", "stride"), [(384, 192), (9, 4), (7, 7), (5, 1)])
@pytest.mark.parametrize("tokens", [0, 1, 4, 5, 7, 8, 9, 10, 13, 27])
def test_windows_hold_every_token_and_none_is_needless(window, stride, tokens):
    starts = SpanOptions(window=window, stride=stride).pieces(np.array([tokens]))[1].tolist()
    seen = {place for start in starts for place in range(start, min(start + window, tokens))}
    assert seen == set(range(tokens))
    assert starts[0] == 0
    assert all(b - a == stride for a, b in itertools.pairwise(starts))
    assert all(start + window < tokens for start in starts[:-1])


@pytest.mark.parametrize(("window", "stride"), [(384, 192), (20, 5)])
def test_each_answer_is_recovered_from_the_places_of_its_windows(dataset, window, stride):
    data = dataset(window=window, stride=stride)
    held = set()
    for place in range(len(data)):
        batch = data.batch([place])
        row = int(batch.index)
        answers, context = ROWS[row][3], CONTEXTS[ROWS[row][2]]
        width = batch.context.shape[1]
        start, end = int(batch.start), int(batch.end)
        if start == width:
            assert end == width
            continue
        held.add(row)
        assert context[int(batch.begins[0, start]) : int(batch.ends[0, end])] == answers[0]
    assert held == {0, 1, 2, 3, 4, 6}
    assert data.summary("train") == f"7 train questions in {len(data)} windows"


def test_a_window_without_the_whole_answer_says_that_it_holds_none(dataset):
    data = dataset([ROWS[1]], window=20, stride=5)
    labels = []
    for window in windows(data):
        begin, end = window.context.begins[window.start], window.context.ends[window.stop - 1]
        at = CONTEXTS[0].index("US$5.2 million")
        whole = begin <= at and at + len("US$5.2 million") <= end
        labels.append((bool(window.answers), whole))
    assert {holds for holds, _ in labels} == {True, False}
    assert all(holds == whole for holds, whole in labels)


def test_a_window_learns_a_later_answer_where_the_first_is_not_in_it(dataset):
    question, context = ROWS[1][1], CONTEXTS[0]
    first, later = context.split()[0], context.split()[-2]
    data = dataset([("q", question, 0, [first, later])], window=20, stride=10)
    places = [context.index(first), context.rindex(later)]
    held = []
    for window in windows(data):
        read = window.context
        begins = [int(read.begins[answer.first]) for answer in window.answers]
        starts, stops = read.begins[window.start], read.ends[window.stop - 1]
        words = zip(places, (first, later), strict=True)
        assert begins == [at for at, word in words if starts <= at and at + len(word) <= stops]
        held.append(tuple(begins))
    assert {(places[0],), (places[1],)} <= set(held)


def test_a_batch_is_its_rows_padded(dataset):
    data = dataset()
    batch = data.batch([0, 4, 5])
    for row, place in enumerate([0, 4, 5]):
        alone = data.batch([place])
        width, asked = alone.context.shape[1], alone.question.shape[1]
        for name in ("context", "match", "begins", "ends"):
            padded = getattr(batch, name)[row]
            assert torch.equal(padded[:width], getattr(alone, name)[0])
            assert not padded[width:].any()
        assert torch.equal(batch.question[row, :asked], alone.question[0])
        assert not batch.question[row, asked:].any()
    assert batch.start.tolist() == [
        data.batch([0]).start,
        data.batch([4]).start,
        batch.context.shape[1],
    ]
    assert batch.index.tolist() == [0, 4, 5]
    assert (len(MATCHES), len(CLUES)) == (MODEL_MATCHES, MODEL_CLUES)
    assert batch.match.shape[2] == MODEL_MATCHES + MODEL_CLUES


def test_tokens_know_their_words_by_their_characters(dataset):
    data = dataset()
    batch = data.batch([0, 4])
    for row, place in enumerate((0, 4)):
        window = windows(data)[place]
        sides = ((window.question, batch.question_words), (window.context, batch.context_words))
        for text, numbers in sides:
            words = [[*text.words, ""][word] for word in text.word]
            spelt = batch.characters[row, numbers[row]]  # (L, characters)
            want = spell_words([[*words, "x" * spelt.shape[1]]])[0, :-1]
            assert spelt[: len(words)].tolist() == want.tolist()
            assert not numbers[row, len(words) :].any()


def test_tokens_carry_the_match_of_their_word(dataset):
    data = dataset([ROWS[0]])
    batch, read = data.batch([0]), windows(data)[0].context
    marked = {read.words[read.word[place]] for place in batch.match[0, :, 1].nonzero()}
    assert marked == {"the", "mill", "down"}
    assert {read.words[read.word[place]] for place in batch.match[0, :, 2].nonzero()} == marked


def test_what_cannot_be_trained_on_is_left_out_and_counted(dataset, reader):
    rows = [*ROWS, ("long", "Why " * 60, 0, ["mill"]), ("blank", " ", 0, ["mill"]),
            ("empty", "Why?", 3, [])]  # fmt: skip
    data = dataset(rows, [*CONTEXTS, "  "], max_question=40)
    assert {window.row for window in windows(data)} == set(range(7))
    assert data.summary("train") == (
        f"10 train questions in {len(data)} windows; 1 dropped: question too long; "
        "2 dropped: empty question or context"
    )
    kept = dataset(rows, [*CONTEXTS, "  "], drops=False, max_question=40)
    assert {window.row for window in windows(kept)} == set(range(10))
    long = next(window.question for window in windows(kept) if window.row == 7)
    whole = reader.question("Why " * 60).ids
    assert long.ids.tolist() == [*whole[:39].tolist(), 3]
    assert kept.batch([len(kept) - 1]).context.tolist() == [[0]]


def test_answers_that_are_no_tokens_or_in_no_window_are_counted(dataset, tmp_path):
    other = small_tokenizer(tmp_path, "bpe", vocab_size=140)
    rows = [("a", "Who?", 1, ["ry's sis"]), ("b", "Who?", 1, ["Mary's sister, Ann, has a red"])]
    data = dataset(rows, tokenizer=other, window=12, stride=6)
    assert data.summary("val").endswith(
        "; 1 with an answer that begins or ends inside a token (extended to the token); "
        "1 whose first answer fits in no window"
    )


def test_an_answer_must_stand_where_it_is_said_to(reader, tmp_path):
    table = FewQuestions().table.map(lambda row: {"starts": [n + 1 for n in row["starts"]]})
    with pytest.raises(UserError, match=r"question 1: the answer '1990' must begin at character 4"):
        tokenize_questions(table, reader.tokenizer, tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stride": 500}, "loader.stride must be at most loader.window (384) so that windows"),
        ({"max_question": 1}, "max_question must be a whole number from 2 to"),
        (
            {"max_tokens": 100},
            "loader.max_tokens must be at least 384 for a window or question of 384 to",
        ),
    ],
)
def test_options_out_of_range_are_refused(options, words):
    with pytest.raises(UserError) as refused:
        made(SpanOptions, **options)
    assert words in str(refused.value)


def data_module(tmp_path, config=None, **options):
    chosen = SpanOptions(**{"max_tokens": 256, "window": 32, "stride": 16, **options})
    config = config or TokenizerConfig(vocab_size=80)
    return SpanData(FewQuestions(), config, chosen, str(tmp_path), seed=3)


def test_two_vocabularies_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"share a vocabulary; set tokenizer\.joint=true"):
        data_module(tmp_path, TokenizerConfig(joint=False))


def test_an_epoch_holds_every_window_once(tmp_path):
    data = data_module(tmp_path, max_rows=2)
    batches = [batch for [batch] in data.loader("train")]
    seen = sorted((int(i), int(o)) for b in batches for i, o in zip(b.index, b.offset))
    assert seen == sorted((w.row, w.start) for w in windows(data._splits["train"]))


def test_the_module_says_what_became_of_the_questions(tmp_path):
    data = data_module(tmp_path, max_question=5)
    with pytest.raises(UserError, match="the train split has no usable questions: 7 train"):
        data.load()
    data = data_module(tmp_path)
    data.load()
    count = len(data._splits["train"])
    assert [line.partition("; read from ")[0] for line in data.notices()] == [
        f"7 {split} questions in {count} windows" for split in ("train", "val")
    ]
    assert data.longest == (32, max(len(w.question.ids) for w in windows(data._splits["val"])))
    rows = data.rows("val")
    assert rows.ids == [row[0] for row in ROWS]
    assert rows.references == [row[3] for row in ROWS]
    assert rows.contexts[2] == CONTEXTS[1]


def test_the_encoder_gives_all_windows_in_runs_within_the_budget(dataset, reader):
    options = SpanOptions(max_tokens=64, window=20, stride=7, max_question=30)
    encoder = SpanEncoder(reader.tokenizer, options)
    questions = [row[1] for row in ROWS] + ["Why " * 40]
    contexts = [CONTEXTS[row[2]] for row in ROWS] + [""]
    batches = list(encoder(questions, contexts))
    for batch in batches:
        rows, longest = batch.windows, max(batch.context.shape[1], batch.question.shape[1])
        assert rows * longest <= 64
    order = [int(n) for batch in batches for n in batch.index]
    runs = [n for place, n in enumerate(order) if place == 0 or order[place - 1] != n]
    assert sorted(runs) == list(range(len(questions)))
    data = dataset(drops=False, window=20, stride=7, max_question=30)
    wanted = sorted((w.row, w.start) for w in windows(data))
    got = sorted((int(i), int(o)) for b in batches for i, o in zip(b.index, b.offset))
    assert got == [*wanted, (7, 0)]
    assert max(batch.question.shape[1] for batch in batches) == 30


def test_the_encoder_wants_a_context_for_each_question(reader):
    encoder = SpanEncoder(reader.tokenizer, SpanOptions())
    with pytest.raises(UserError, match="each question must have a context, got 2 questions and 1"):
        list(encoder(["a", "b"], ["c"]))


datasets.disable_progress_bars()
