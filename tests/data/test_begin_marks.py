"""Pieces that begin every text of a side, and two models over one vocabulary."""

import json
import pickle
from random import Random

import pytest
from sentencepiece import sentencepiece_model_pb2 as proto

from seqattn.data.foreign_models import ForeignModel
from seqattn.data.options import LoaderOptions
from seqattn.data.source_ids import Headed, read_sources
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.tokenizer_side import Begin
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from seqattn.tokens import EOS, UNK

TEXTS = ["the cat sees the dog", "a dog  sees a cat .", "two dogs see a cat"] * 4
OTHERS = ["die katze sieht den hund", "süße katzen sehen"] * 4
CODES = ["<en>", ">>de<<", ">>fr<<"]
BEGIN = Begin(("<en>",), ("<en>", ">>de<<"))


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Models of two corpora, each with the pieces of both in one order."""
    learnt = []
    for texts in (TEXTS, OTHERS):
        config = TokenizerConfig("unigram", normalization="nmt_nfkc")
        train_tokenizer(texts, texts, config, path := tmp_path_factory.mktemp("side"))
        learnt.append(ForeignModel.read(next(path.rglob("joint.model")).read_bytes(), "a model"))
    names = dict.fromkeys(one.name for model in learnt for one in model.pieces[EOS + 1 :])
    return [model.adopted([*CODES, *names], CODES) for model in learnt]


def test_begin_marks_stand_before_every_text_but_an_empty_one(models):
    plain, marked = Tokenizer(models[0]), Tokenizer(models[0], begin=BEGIN)
    source, target = marked.source_begin, marked.target_begin

    assert plain.target_pieces(target) == ["<en>", ">>de<<"]
    for encode, begin in ((marked.encode_source, source), (marked.encode_target, target)):
        wanted = [[*begin, *ids] for ids in plain.encode_source(TEXTS)]
        assert encode([*TEXTS, "", " "]) == [*wanted, [EOS], [EOS]]
    assert marked.decode_target(marked.encode_target(TEXTS)) == plain.decode_target(
        plain.encode_target(TEXTS)
    )
    randoms = [Random(0), Random(0)]
    [drawn], [free] = (
        one.sample_target(["the dogs"], 0.1, [random])
        for one, random in zip((marked, plain), randoms)
    )
    assert drawn == [*target, *free]


def test_the_code_of_a_language_replaces_that_before_a_source(models):
    other = Tokenizer(models[0], begin=Begin((">>de<<",))).into("fr")
    assert other.source_pieces(other.source_begin) == [">>fr<<"]
    assert other.target_begin == ()
    with pytest.raises(
        UserError, match=r"language=it is not in this vocabulary; use one of de, fr"
    ):
        other.into("it")


def test_labels_and_offsets_count_begin_marks(models):
    plain, marked = Tokenizer(models[0]), Tokenizer(models[0], begin=BEGIN)
    text = "the ☃ cat"
    [ids] = marked.encode_source([text])

    assert marked.source_pieces(ids, text) == ["<en>", *plain.source_pieces(ids[1:], text)]
    assert "☃" in marked.source_pieces(ids, text)
    [(there, places)], [(ours, own)] = marked.source_offsets([text]), plain.source_offsets([text])
    assert (there, places) == ([*marked.source_begin, *ours], [(0, 0), *own])


def test_a_code_in_the_text_stands_in_place_of_the_begin_marks(models):
    marked = Tokenizer(models[0], begin=BEGIN)
    plain, text = Tokenizer(models[0]), ">>fr<< the cat"
    [ids] = marked.encode_source([text])

    assert ids == plain.encode_source([text])[0]
    assert "".join(marked.source_pieces(ids, text)) == ">>fr<<▁the▁cat</s>"
    assert ids[1:] == plain.encode_source(["the cat"])[0]
    for other in ("the >>fr<< cat", " >>fr<< the cat", ">>it<< the cat", "<en> the cat"):
        assert not {*plain.encode_source([">>fr<<"])[0][:-1]} & {*marked.encode_source([other])[0]}


def test_windows_begin_with_the_begin_marks(models):
    marked = Tokenizer(models[0], begin=BEGIN)
    options = LoaderOptions(max_length=8, long_sources="window")
    for text in (" ".join(TEXTS[:3]), Headed(f"the cat {' '.join(TEXTS[:3])}", 8)):
        [windows] = read_sources([text], marked, options)
        assert len(windows) > 1
        assert {(*ids[:1], ids[-1]) for ids in windows} == {(*marked.source_begin, EOS)}


@pytest.mark.parametrize("size", [None, 25])
def test_what_is_stored_comes_back_and_tells_tokenizers_apart(models, tmp_path, size):
    tokenizer = Tokenizer(*models, joint=True, begin=BEGIN, size=size)
    tokenizer.save(tmp_path)

    for copy in (Tokenizer.load(tmp_path), pickle.loads(pickle.dumps(tokenizer))):
        assert copy.joint
        assert copy.fingerprint == tokenizer.fingerprint
        assert copy.target_begin == tokenizer.target_begin
        assert copy.source_size == tokenizer.source_size == (size or 36)
        assert copy.encode_source([*TEXTS, *OTHERS]) == tokenizer.encode_source([*TEXTS, *OTHERS])
    assert tokenizer.fingerprint != Tokenizer(*models, joint=True, size=size).fingerprint
    assert Tokenizer(*models, joint=True).fingerprint == Tokenizer(*models).fingerprint


def test_two_models_over_one_vocabulary_segment_as_each_does_alone(models):
    both = Tokenizer(*models, joint=True)
    source, target = (Tokenizer(model) for model in models)

    assert both.joint
    assert both.source_vocabulary() == both.target_vocabulary()
    assert both.encode_source(TEXTS) == source.encode_source(TEXTS)
    assert both.encode_target(OTHERS) == target.encode_target(OTHERS)
    assert not Tokenizer(*models).joint


def test_an_unknown_character_that_the_other_side_has_is_found_by_its_name(models):
    both = Tokenizer(*models, joint=True)
    [ids] = both.encode_source(["a ü"])

    assert UNK not in ids
    assert both.source_pieces(ids)[-2:] == ["ü", "</s>"]
    assert both.decode_target([ids]) == ["a ü"]


def test_pieces_beyond_the_vocabulary_are_read_as_unknown(models):
    complete, cut = Tokenizer(models[0]), Tokenizer(models[0], size=20)

    for encode in (
        lambda one: one.encode_source(TEXTS),
        lambda one: one.sample_source(TEXTS, 0.3, [Random(n) for n in range(len(TEXTS))]),
        lambda one: [ids for ids, _ in one.source_offsets(TEXTS)],
    ):
        wanted = [[one if one < 20 else UNK for one in ids] for ids in encode(complete)]
        assert encode(cut) == wanted
        assert any(UNK in ids for ids in wanted)


def test_adopting_changes_ids_and_no_segmentation(tmp_path):
    for kind in ("unigram", "bpe"):
        config = TokenizerConfig(kind, 34)
        own = train_tokenizer(TEXTS, OTHERS, config, tmp_path / kind)
        content = next((tmp_path / kind).rglob("joint.model")).read_bytes()
        names = own.source_vocabulary()[EOS + 1 :]
        turned = Tokenizer(
            ForeignModel.read(content, "").adopted(["thecat", *names[::-1], "catsees"])
        )
        lines = [*TEXTS, *OTHERS, "the catsees ü☃", "thecat"]

        assert Tokenizer(ForeignModel.read(content, "").adopted()).fingerprint != own.fingerprint
        assert Tokenizer(ForeignModel.read(content, "").adopted()).encode_source(lines) == (
            own.encode_source(lines)
        )
        assert [turned.source_pieces(ids) for ids in turned.encode_source(lines)] == [
            own.source_pieces(ids) for ids in own.encode_source(lines)
        ]


def test_a_model_with_its_own_marks_elsewhere_gets_ours():
    model = proto.ModelProto()
    for name, kind in (("<unk>", 2), ("<s>", 3), ("</s>", 3), ("▁a", 1), ("b", 1), ("<x>", 1)):
        model.pieces.add(piece=name, score=-1, type=kind)
    tokenizer = Tokenizer(ForeignModel.read(model.SerializeToString(), "").adopted(symbols=["<x>"]))

    assert tokenizer.source_vocabulary() == ["<pad>", "<unk>", "<s>", "</s>", "▁a", "b", "<x>"]
    assert tokenizer.encode_source(["ab<x>c"]) == [[4, 5, 6, UNK, EOS]]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is not a sentencepiece model"),
        (b"\x80\x04cos\nsystem\n", "is not a sentencepiece model"),
        (proto.ModelProto(trainer_spec={"model_type": 3}).SerializeToString(), "not a sentence"),
    ],
)
def test_a_file_that_is_no_model_is_refused(content, reason):
    with pytest.raises(UserError, match=reason):
        ForeignModel.read(content, "FILE")


def test_a_model_of_words_is_refused():
    model = proto.ModelProto(pieces=[{"piece": "<unk>", "type": 2}])
    model.trainer_spec.model_type = proto.TrainerSpec.WORD
    with pytest.raises(UserError, match=r"^FILE is a model of words or characters; use"):
        ForeignModel.read(model.SerializeToString(), "FILE")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"begin": {"source": ["it"]}}, "has no piece 'it' to begin a text with"),
        ({"begin": {"source": ["<pad>"]}}, "has no piece '<pad>' to begin"),
        ({"begin": {"left": ["<en>"]}}, "is not a seqattn tokenizer"),
        ({"begin": ["<en>"]}, "is not a seqattn tokenizer"),
        ({"size": 4}, "has 36 pieces, not 4"),
        ({"size": 99}, "has 36 pieces, not 99"),
        ({"size": "9"}, "is not a seqattn tokenizer"),
        ({"joint": 1}, "is not a seqattn tokenizer"),
    ],
)
def test_damaged_settings_are_refused(models, tmp_path, changed, reason):
    Tokenizer(*models, joint=True, begin=BEGIN).save(tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))

    with pytest.raises(UserError, match=reason) as caught:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_models_with_different_pieces_are_not_joint(models, tmp_path):
    other = ForeignModel.read(models[1], "").adopted(["x"])
    with pytest.raises(UserError, match="the models of a joint vocabulary have different pieces"):
        Tokenizer(models[0], other, joint=True)
