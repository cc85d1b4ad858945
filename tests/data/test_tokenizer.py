import hashlib
import pickle
import re
from pathlib import Path

import pytest
import sentencepiece

from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from seqattn.tokens import BOS, EOS, PAD, UNK

SOURCE = ["the cat sees the dog", "a dog  sees a cat .", "the cats see &apos; two dogs"] * 4
TARGET = ["die katze sieht den hund", "ein hund sieht  eine katze .", "süße katzen sehen"] * 4


def train(tmp_path, **changes):
    config = TokenizerConfig(**{"kind": "bpe", "vocab_size": 45, **changes})
    return train_tokenizer(SOURCE, TARGET, config, tmp_path)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "characters"])
@pytest.mark.parametrize("joint", [True, False])
def test_known_text_comes_back_to_the_letter_with_its_spaces(tmp_path, kind, joint):
    size = {"bpe": 40, "unigram": 30 if joint else 24}.get(kind)
    tokenizer = train(tmp_path, kind=kind, joint=joint, vocab_size=size)
    texts = [*TARGET, "die  katze ", " den hund", ""]

    assert tokenizer.decode_target(tokenizer.encode_target(texts)) == texts


def test_ids_end_with_the_end_mark_and_have_no_begin_mark(tmp_path):
    tokenizer = train(tmp_path)

    for ids in [*tokenizer.encode_source(SOURCE), *tokenizer.encode_target(TARGET)]:
        assert ids[-1] == EOS
        assert not {PAD, BOS, EOS} & set(ids[:-1])
    assert tokenizer.encode_source([""]) == [[EOS]]
    assert tokenizer.encode_source([]) == []


def test_marks_are_dropped_from_decoded_text_and_unknown_is_shown(tmp_path):
    tokenizer = train(tmp_path)
    [ids] = tokenizer.encode_target(["ein hund"])

    assert tokenizer.decode_target([[BOS, *ids, PAD, PAD], [PAD], []]) == ["ein hund", "", ""]
    [unknown] = tokenizer.encode_target(["ein ☃"])
    assert UNK in unknown
    assert tokenizer.decode_target([unknown]) == ["ein ⁇"]


def test_letters_lead_to_symbols_that_spaces_separate(tmp_path):
    words, phones = ["tʃip", "naïve", "n t"], ["tʃ ø p", "  n aø  ih v ", "n"]
    config = TokenizerConfig("characters", joint=False, symbols=["<2x>"], target_kind="symbols")
    tokenizer = train_tokenizer(words, phones, config, tmp_path)

    assert {*tokenizer.source_vocabulary()[5:]} == {*"".join(words).replace(" ", "▁")}
    names = {f"▁{phone}" for phone in " ".join(phones).split()}
    assert {*tokenizer.target_vocabulary()[4:]} == {"<2x>", "▁<2x>", *names}
    [ids] = tokenizer.encode_source(["<2x>nt tʃ"])
    assert tokenizer.source_pieces(ids) == ["<2x>", "n", "t", "▁", "t", "ʃ", "</s>"]
    assert tokenizer.source_offsets(["nt"])[0][1] == [(0, 1), (1, 2)]
    rows = tokenizer.encode_target(phones)
    assert [*map(len, rows)] == [4, 5, 2]
    assert tokenizer.decode_target(rows) == ["tʃ ø p", "n aø ih v", "n"]
    assert tokenizer.encode_target(["nt"]) == [[UNK, EOS]]


def test_each_unknown_symbol_of_a_run_is_counted(tmp_path):
    tokenizer = train_tokenizer(["a b"], ["a"], TokenizerConfig("symbols"), tmp_path)
    assert tokenizer.unknown(["x yy a x", "b"]) == {"▁x": 2, "▁yy": 1}


def test_byte_fallback_spells_what_no_piece_spells(tmp_path):
    tokenizer = train(tmp_path, byte_fallback=True, vocab_size=300)

    ids = tokenizer.encode_target(["ein ☃"])
    assert UNK not in ids[0]
    assert tokenizer.decode_target(ids) == ["ein ☃"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_line_breaks_kept_are_pieces_that_leave_words_as_they_are(tmp_path, kind):
    texts = ["the cat\nsees  the dog\n\n", "a dog \n a cat ."] * 4
    config = TokenizerConfig(kind, normalization="nmt_nfkc", line_breaks=True)
    tokenizer = train_tokenizer(texts, texts, config, tmp_path)

    [broken, plain] = tokenizer.encode_source(["a cat \n\n\tthe   dog\n", "a cat the dog"])
    assert tokenizer.source_pieces([t for t in broken if t not in plain]) == ["↵"]
    assert [t for t in broken if t in plain] == plain
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.decode_target([broken, plain]) == ["a cat\nthe dog", "a cat the dog"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_known_line_breaks_come_back_to_the_letter_where_nothing_is_folded(tmp_path, kind):
    texts = ["the cat\n\nsees  the\tdog\n", "\na\n"] * 4
    tokenizer = train_tokenizer(texts, texts, TokenizerConfig(kind), tmp_path)

    assert tokenizer.decode_target(tokenizer.encode_source(texts)) == texts


def test_text_that_spells_a_mark_is_text(tmp_path):
    [ids] = train(tmp_path, byte_fallback=True, vocab_size=300).encode_source(["</s><pad>"])

    assert not {PAD, UNK, BOS, EOS} & set(ids[:-1])


def test_a_joint_vocabulary_is_one_and_separate_ones_know_their_own_side_only(tmp_path):
    joint, separate = train(tmp_path), train(tmp_path, joint=False, vocab_size=40)

    assert joint.joint
    assert joint.source_size == joint.target_size == 45
    assert joint.encode_source(TARGET) == joint.encode_target(TARGET)
    assert not separate.joint
    assert (separate.source_size, separate.target_size) == (40, 40)
    assert UNK in separate.encode_source(["süße"])[0]
    assert UNK not in separate.encode_target(["süße"])[0]


def test_pieces_name_the_ids_of_each_side(tmp_path):
    tokenizer = train(tmp_path, joint=False, vocab_size=40)
    [source], [target] = tokenizer.encode_source(["the cat"]), tokenizer.encode_target(["katze"])

    assert "".join(tokenizer.source_pieces(source)) == "▁the▁cat</s>"
    assert "".join(tokenizer.target_pieces(target)) == "▁katze</s>"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "▁the▁☃▁cat▁中文▁sees↵it</s>"),
        ({"normalization": "nmt_nfkc"}, "▁the▁☃▁cat▁中文▁sees▁it</s>"),
        ({"normalization": "nmt_nfkc", "line_breaks": True}, "▁the▁☃▁cat▁中文▁sees↵▁it</s>"),
    ],
)
def test_unknown_pieces_are_named_as_they_stand_in_their_text(tmp_path, changes, said):
    tokenizer = train(tmp_path, **changes)
    text = "the ☃ cat 中文 sees\nit"
    [ids] = tokenizer.encode_source([text])
    named = tokenizer.source_pieces(ids, text)
    assert "".join(named) == said
    assert tokenizer.source_pieces(ids).count("<unk>") >= 2
    assert tokenizer.source_pieces([*ids[:5], EOS], text) == [*named[:5], "</s>"]


@pytest.mark.parametrize("joint", [True, False])
def test_a_saved_tokenizer_is_the_same_when_loaded_or_pickled(tmp_path, joint):
    tokenizer = train(tmp_path, joint=joint, vocab_size=40)
    tokenizer.save(tmp_path / "run")
    names = {"tokenizer.json"} | ({"joint.model"} if joint else {"source.model", "target.model"})
    assert {path.name for path in (tmp_path / "run").iterdir()} == names

    for copy in (Tokenizer.load(tmp_path / "run"), pickle.loads(pickle.dumps(tokenizer))):
        assert copy.joint == joint
        assert copy.fingerprint == tokenizer.fingerprint
        assert copy.encode_source(SOURCE) == tokenizer.encode_source(SOURCE)
        assert copy.encode_target(TARGET) == tokenizer.encode_target(TARGET)


def test_a_vocabulary_is_trained_once_for_the_same_text_and_config(tmp_path, capfd):
    first = train(tmp_path)
    # Line, not log: sentencepiece itself says nothing.
    assert capfd.readouterr() == (
        "",
        "training a joint bpe vocabulary of 45 pieces on 24 lines ...\n",
    )
    assert train(tmp_path).fingerprint == first.fingerprint
    assert capfd.readouterr().err == ""

    config = TokenizerConfig(kind="bpe", vocab_size=45)
    train_tokenizer([*SOURCE[:-1], "the catsee dogs"], TARGET, config, tmp_path)
    train(tmp_path, vocab_size=44)
    assert capfd.readouterr().err.count("training") == 2


def test_training_again_gives_the_same_vocabulary(tmp_path):
    for kind in ("bpe", "unigram"):
        runs = [train(tmp_path / str(i), kind=kind, vocab_size=30) for i in range(2)]
        assert runs[0].fingerprint == runs[1].fingerprint


def test_iterators_are_as_good_as_lists(tmp_path):
    config = TokenizerConfig(kind="bpe", vocab_size=45)
    once = train_tokenizer(iter(SOURCE), iter(TARGET), config, tmp_path / "once")

    assert once.fingerprint == train(tmp_path / "list").fingerprint


def test_a_damaged_cache_is_mended(tmp_path):
    tokenizer = train(tmp_path)
    [model] = tmp_path.rglob("joint.model")
    model.write_bytes(model.read_bytes()[:50])

    assert train(tmp_path).fingerprint == tokenizer.fingerprint
    assert model.stat().st_size > 50
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize(("kind", "joint"), [("bpe", True), ("unigram", True), ("bpe", False)])
def test_a_vocabulary_larger_than_the_text_can_give_says_how_large_it_can_be(tmp_path, kind, joint):
    side = "joint" if joint else "source"
    with pytest.raises(UserError) as caught:
        train(tmp_path, kind=kind, vocab_size=9000, joint=joint)

    pattern = rf"tokenizer.vocab_size must be at most (\d+) for this {side} corpus \({kind}\), got "
    most = int(re.match(pattern, str(caught.value))[1])
    assert str(caught.value).endswith("got 9000; lower it, or set null")
    assert not list(tmp_path.rglob("*.model"))
    if joint:
        assert train(tmp_path, kind=kind, vocab_size=most).source_size == most
        with pytest.raises(UserError, match="at most"):
            train(tmp_path, kind=kind, vocab_size=most + 1)


def test_a_vocabulary_too_small_for_the_characters_says_how_small_it_can_be(tmp_path):
    least = 4 + len(set("".join(SOURCE + TARGET).replace(" ", "▁")))

    with pytest.raises(UserError, match=f"vocab_size must be at least {least} .* got 7; raise"):
        train(tmp_path, vocab_size=7)
    assert train(tmp_path, vocab_size=least).source_size == least


@pytest.mark.parametrize("kind", ["characters", "symbols"])
def test_all_of_too_many_are_refused_unless_their_number_is_asked_for(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("seqattn.data.vocabulary._ALL_UNASKED", 20)
    texts, space = ["a b c d e f g h i j k l m n o p q r s t"] * 2, kind == "characters"
    line = rf"{24 + space} different {kind}, .*; set tokenizer.vocab_size=N for the N most frequent"
    with pytest.raises(UserError, match=line):
        train_tokenizer(texts, texts, TokenizerConfig(kind), tmp_path)
    assert train_tokenizer(texts, texts, TokenizerConfig(kind, 12), tmp_path).source_size == 12
    assert train_tokenizer(texts[:1], ["a"], TokenizerConfig(kind, 24), tmp_path).source_size == 24


def test_more_symbols_than_subwords_are_by_default_are_pieces(tmp_path):
    symbols = [f"<{number}>" for number in range(9_000)]
    config = TokenizerConfig("characters", symbols=symbols)
    assert train_tokenizer(["a", *symbols], ["b"], config, tmp_path).source_size > 9_000
    with pytest.raises(UserError, match=r"tokenizer.vocab_size=40 is too small for all symbols"):
        train_tokenizer(["a"], ["b"], TokenizerConfig("characters", 40, symbols=symbols), tmp_path)


@pytest.mark.parametrize("symbols", [None, ["x" * 9_000]])
def test_symbols_that_no_model_holds_are_refused(tmp_path, symbols):
    config = TokenizerConfig("symbols", symbols=symbols)
    with pytest.raises(UserError, match="cannot have symbols of thousands of characters"):
        train_tokenizer(["x" * 9_000], ["b"], config, tmp_path)


def test_no_text_is_refused(tmp_path):
    config = TokenizerConfig(kind="bpe", vocab_size=45)
    with pytest.raises(UserError, match="source corpus is empty"):
        train_tokenizer([], [], config, tmp_path)
    folded = TokenizerConfig(normalization="nmt_nfkc")
    for line, some in (("", config), (" ", folded)):
        with pytest.raises(UserError, match="the joint corpus contains no text: every line is"):
            train_tokenizer([line] * 2, [line] * 2, some, tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"line_breaks": True}, "normalization=identity already keeps line breaks"),
        ({"target_kind": "bpe"}, "tokenizer.target_kind=bpe needs a vocabulary for each side; set"),
        ({"kind": "symbols", "byte_fallback": True}, "tokenizer.byte_fallback needs subwords; set"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        TokenizerConfig(**settings)


def test_absent_truncated_and_foreign_tokenizers_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"is not a tokenizer: tokenizer.json is missing"):
        Tokenizer.load(tmp_path / "nowhere")

    train(tmp_path / "cache").save(tmp_path)
    model = tmp_path / "joint.model"
    content = model.read_bytes()
    model.write_bytes(content[:-10])
    with pytest.raises(UserError, match=r"joint.model does not match its digest: truncated"):
        Tokenizer.load(tmp_path)
    model.unlink()
    with pytest.raises(UserError, match=r"joint.model is missing"):
        Tokenizer.load(tmp_path)

    head = tmp_path / "tokenizer.json"
    for foreign in ('{"version": "1.0", "model": {}}', "[1]", head.read_text()[:30]):
        head.write_text(foreign)
        with pytest.raises(UserError, match=r"is not a seqattn tokenizer"):
            Tokenizer.load(tmp_path)


def test_models_of_another_kind_are_refused(tmp_path):
    with pytest.raises(UserError, match="is not a sentencepiece model"):
        Tokenizer(b"no model at all")

    prefix = tmp_path / "other"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SOURCE),
        model_prefix=str(prefix),
        vocab_size=30,
        model_type="bpe",
        minloglevel=2,
    )
    with pytest.raises(
        UserError, match="must have ids 0, 1, 2, 3 for pad, unk, bos, eos, got -1, 0"
    ):
        Tokenizer(Path(f"{prefix}.model").read_bytes())


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_size_left_open_is_the_largest_that_a_small_corpus_can_give(tmp_path, kind):
    texts = [f"{word} {other}" for word in ("ab", "cde", "fab") for other in ("bed", "cab", "ace")]
    with pytest.raises(UserError) as caught:
        train_tokenizer(texts, texts, TokenizerConfig(kind=kind, vocab_size=8000), tmp_path)
    most = int(str(caught.value).split("at most ")[1].split(" ")[0])
    tokenizer = train_tokenizer(texts, texts, TokenizerConfig(kind=kind), tmp_path)
    assert tokenizer.source_size == most


def test_a_model_with_a_piece_that_is_no_utf8_is_refused(tmp_path):
    train_tokenizer(SOURCE, SOURCE, TokenizerConfig("bpe", vocab_size=60), tmp_path).save(tmp_path)
    content = (tmp_path / "joint.model").read_bytes()
    piece = Tokenizer.load(tmp_path).source_pieces([EOS + 9])[0].encode()
    field = b"\n" + bytes([len(piece)])
    damaged = content.replace(field + piece, field + b"\xff" * len(piece), 1)
    assert damaged != content
    (tmp_path / "joint.model").write_bytes(damaged)
    head = (tmp_path / "tokenizer.json").read_text()
    digests = [hashlib.sha256(one).hexdigest() for one in (content, damaged)]
    (tmp_path / "tokenizer.json").write_text(head.replace(*digests))
    with pytest.raises(UserError, match="has pieces that are not valid UTF-8"):
        Tokenizer.load(tmp_path)
