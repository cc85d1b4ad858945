"""Byte-level BPE: any text, spelt by its bytes."""

import json
import pickle
from random import Random

import pytest

from seqattn.data.byte_level import ByteLevelModel
from seqattn.data.foreign_models import MARKS
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.tokenizer_side import Begin
from seqattn.errors import UserError
from seqattn.tokens import EOS, UNK
from tests.absent import printed_without

tokenizers = pytest.importorskip("tokenizers")
TEXTS = ["the cat sees the dog", " two  dogs\nsee ☃ 中文", "naïve</s>", "\ud7ff\x00 ", "👩‍👩‍👧"]


def learnt(**changes):
    package = tokenizers.ByteLevelBPETokenizer()
    package.train_from_iterator(TEXTS[:1] * 9, 280, show_progress=False)
    content = json.loads(package.to_str())["model"]
    pieces = [*MARKS, "<b>", *content["vocab"]]
    fields = {"pieces": pieces, "control": ["<b>"], "prefix_space": False}
    merges = [" ".join(pair) for pair in content["merges"]]
    return ByteLevelModel(**{**fields, "merges": merges, **changes}).model_dump_json().encode()


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(learnt(), begin=Begin(("<b>",), ("<b>",)))


def test_every_text_comes_back_to_the_letter(tokenizer):
    ids = tokenizer.encode_source(TEXTS)

    assert tokenizer.joint
    assert tokenizer.decode_target(ids) == TEXTS
    assert {(row[0], row[-1]) for row in ids} == {(*tokenizer.source_begin, EOS)}
    assert UNK not in {one for row in ids for one in row}
    assert tokenizer.encode_source(["", "the"])[0] == [EOS]
    assert tokenizer.decode_target([[0, UNK, EOS]]) == ["⁇"]
    assert tokenizer.source_line_breaks() == "piece"


def test_labels_read_as_text_and_offsets_cover_it(tokenizer):
    text = "the dog\nsees ☃"
    [ids], [(same, places)] = tokenizer.encode_source([text]), tokenizer.source_offsets([text])

    assert tokenizer.source_pieces(ids, text)[:3] == ["<b>", "the", "▁dog"]
    assert "↵" in tokenizer.source_pieces(ids)
    assert same == ids[:-1]
    assert "".join(text[begin:end] for begin, end in places) == text
    assert places[-3:] == [(13, 13), (13, 13), (13, 14)]  # three bytes of one character


def test_a_stored_tokenizer_is_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"joint.json", "tokenizer.json"}
    for copy in (Tokenizer.load(tmp_path), pickle.loads(pickle.dumps(tokenizer))):
        assert copy.fingerprint == tokenizer.fingerprint
        assert copy.encode_target(TEXTS) == tokenizer.encode_target(TEXTS)


def test_sampling_is_refused(tokenizer):
    with pytest.raises(UserError, match=r"subword_sampling does not support byte-level BPE; set"):
        tokenizer.sample_source(TEXTS, 0.1, [Random(0)] * len(TEXTS))


def test_invalid_unicode_is_named(tokenizer):
    with pytest.raises(UserError, match=r"text 1 is not valid Unicode"):
        tokenizer.encode_source(["a \ud800"])


@pytest.mark.parametrize(
    "model",
    [
        b"{",
        b"{}",
        b'{"a": ' + b"[" * 5_000,
        learnt(merges=["a"]),
        learnt(merges=["zz zz"]),
        learnt(pieces=["a", "a"]),
        learnt(control=["zz"]),
        learnt().replace(b"false", b'"no"'),
    ],
)
def test_damaged_models_are_refused_in_a_line(model):
    with pytest.raises(UserError) as caught:
        Tokenizer(model)
    assert "\n" not in str(caught.value)


def test_a_missing_piece_to_begin_with_is_named():
    with pytest.raises(UserError, match=r"the tokenizer model has no piece '<x>'"):
        Tokenizer(learnt(), begin=Begin(("<x>",)))


def test_without_tokenizers_a_line_says_what_to_install():
    program = f"""
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
try:
    Tokenizer({learnt()!r})
except UserError as error:
    print(error)
"""
    said = printed_without(["tokenizers"], program)
    assert said.startswith("byte-level vocabularies need tokenizers; run pip install")
    assert "[exchange]" in said
