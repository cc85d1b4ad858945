"""Tokenizers of Hugging Face models: the same ids for the same text, by the rows they stand for."""

import json
import math
import re
import shutil
from random import Random

import pytest

from seqattn.errors import UserError
from seqattn.extras.exchange.hf_tokenizers import read_tokenizer
from seqattn.tokens import BOS, EOS, PAD, RESERVED, UNK
from tests.extras.exchange import foreign_tokenizers
from tests.extras.exchange.foreign_tokenizers import nasty

pytest.importorskip("transformers")
CODES = [">>fra<<", ">>deu<<"]
FAMILIES = ["marian", "m2m_100", "nllb", "mbart50", "t5", "pegasus", "bart"]
TWO_FORMS = ["nllb", "mbart50", "t5", "pegasus", "bart"]
"""Families that transformers saves as tokenizer.json alone; the hub has sentencepiece's file."""
UNTRIMMED = ["nllb", "mbart50", "pegasus"]
"""Families whose conversion in transformers keeps the spaces around a text, unlike sentencepiece,
which the models were trained with; ids are sentencepiece's here."""
AROUND = " \t\u00a0\u3000\u200b\ufeff\x01\x7f▁"


class Case:
    """A tokenizer of transformers and its folder, as on the hub and as transformers saves it."""

    def __init__(self, path, make, **options):
        self.folder, self.saved = path, path / "saved"
        self.theirs, self.config = make(path, **options)
        self.theirs.save_pretrained(self.saved)


@pytest.fixture(scope="session")
def case(tmp_path_factory):
    """Gives the case of a family, made once."""
    made = {}

    def of(name, **options):
        key = f"{name} {options}"
        if key not in made:
            path = tmp_path_factory.mktemp(name)
            made[key] = Case(path, getattr(foreign_tokenizers, name), **options)
        return made[key]

    return of


def assert_same_ids(case, folder, trim=False):
    imported = read_tokenizer(folder, case.config)
    ours, (source, target) = imported.tokenizer, (imported.rows, imported.target_rows)
    lines = [line.strip(AROUND) if trim else line for line in nasty()]
    # the normalizer of tokenizers leaves a letter with a combining mark as it is
    lines = [line.replace("\uff21\u0301", "") for line in lines]
    for wanted, ids, rows in (
        (case.theirs(lines)["input_ids"], ours.encode_source(lines), source),
        (case.theirs(text_target=lines)["input_ids"], ours.encode_target(lines), target),
    ):
        for line, theirs, own in zip(lines, wanted, ids, strict=True):
            if own != [EOS]:  # an empty line has no begin marks here
                assert [rows[one] for one in own] == theirs, repr(line)
    assert sum(ids == [EOS] for ids in ours.encode_source(lines)) < 40
    return imported


@pytest.mark.parametrize(
    ("name", "folder"),
    [*((name, "saved") for name in FAMILIES), *((name, "folder") for name in TWO_FORMS)],
)
def test_a_thousand_nasty_lines_have_the_same_ids(case, name, folder):
    imported = assert_same_ids(case(name), getattr(case(name), folder), name in UNTRIMMED)
    config = case(name).config

    assert {*imported.rows} == {*range(config["vocab_size"])}
    assert imported.rows is imported.target_rows
    assert imported.rows[PAD] == config["pad_token_id"]
    assert imported.rows[BOS] == config["decoder_start_token_id"]
    assert imported.rows[EOS] == config["eos_token_id"]
    assert imported.lacking == (BOS,)
    assert len(imported.rows) == config["vocab_size"] + 1  # our begin is a copy


@pytest.mark.parametrize("name", FAMILIES)
def test_outputs_read_as_theirs_with_unknown_text_shown(case, name):
    one, chance = case(name), Random(2)
    imported = read_tokenizer(one.saved, one.config)
    # transformers shows the codes of M2M-100, and no sentinel of T5; here it is the other way round
    shown = re.compile("__.*__|<row .*>|▁<extra_id.*")
    names = imported.tokenizer.target_vocabulary()
    ids = [n for n in range(RESERVED, len(names)) if not shown.fullmatch(names[n])]
    rows = [chance.choices(ids, k=chance.randrange(1, 20)) for _ in range(300)]
    theirs = one.theirs.batch_decode(
        [[imported.rows[one] for one in ids] for ids in rows],
        skip_special_tokens=True, clean_up_tokenization_spaces=False,
    )  # fmt: skip
    ours = imported.tokenizer.decode_target(
        [[*imported.tokenizer.target_begin, *ids, EOS] for ids in rows]
    )
    assert [text.strip() for text in ours] == [text.strip() for text in theirs]
    assert imported.tokenizer.decode_target([[UNK]]) == ["⁇"]


@pytest.mark.parametrize("name", FAMILIES)
def test_text_that_spells_a_mark_is_text(case, name):
    imported = read_tokenizer(case(name).saved, case(name).config)
    tokenizer = imported.tokenizer
    special = {imported.rows.index(row) for row in case(name).theirs.all_special_ids} - {UNK}
    for encode, begin in (
        (tokenizer.encode_source, tokenizer.source_begin),
        (tokenizer.encode_target, tokenizer.target_begin),
    ):
        for mark in case(name).theirs.all_special_tokens:
            [ids] = encode([f"a {mark} b"])
            assert not special & {*ids[len(begin) : -1]} or "extra_id" in mark


def test_a_language_code_before_a_text_of_marian_is_read(case):
    one = case("marian", codes=tuple(CODES))
    imported = read_tokenizer(one.saved, one.config)
    lines = [f"{code}{space}The dog ☃" for code in CODES for space in ("", " ", "  ")]

    theirs = one.theirs(lines)["input_ids"]
    assert [
        [imported.rows[n] for n in ids] for ids in imported.tokenizer.encode_source(lines)
    ] == theirs
    begun = read_tokenizer(one.saved, one.config, source_begin=[">>deu<<"])
    assert begun.tokenizer.encode_source(["The dog ☃", lines[0]]) == [
        imported.tokenizer.encode_source([text])[0] for text in (lines[3], lines[0])
    ]
    with pytest.raises(UserError, match=r"source_begin: .* has no piece '>>it<<'"):
        read_tokenizer(one.saved, one.config, source_begin=[">>it<<"])


def test_marian_with_two_vocabularies_has_two_id_spaces(case):
    one = case("marian", separate=True)
    imported = assert_same_ids(one, one.saved)

    assert not imported.tokenizer.joint
    assert imported.rows == imported.target_rows
    assert imported.tokenizer.source_vocabulary() != imported.tokenizer.target_vocabulary()


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("vocab.json", None, r"vocab\.json does not exist; expected a file of a tokenizer"),
        ("vocab.json", b"[]", r"vocab\.json must hold an object"),
        ("vocab.json", b'{"a": "x"}', "the row of 'a' must be a number, got 'x'"),
        ("vocab.json", b'{"a": -1}', "the row of 'a' must be a number, got -1"),
        ("vocab.json", b'{"a": Infinity}', "the row of 'a' must be a number, got inf"),
        ("vocab.json", b'{"a": 1.5}', "the row of 'a' must be a number, got 1.5"),
        ("vocab.json", b'{"a": true}', "the row of 'a' must be a number, got True"),
        ("vocab.json", b'{"a": ' + b"9" * 400 + b"}", "the row of 'a' must be a number, got 999"),
        ("vocab.json", b'{"a": 0}', "has no piece <unk> for unknown text"),
        ("vocab.json", b'{"<unk>": 99999}', "of another model: row 99999 of"),
        ("vocab.json", b"\x80\x04cos\nsystem\n", "is not valid"),
        ("vocab.json", b"[" * 100_000, "must nest lists and objects at most 64 deep"),
        ("vocab.json", b'{"\xff": 1}', "is not valid UTF-8"),
        ("source.spm", None, r"source\.spm is missing; download it beside the weights"),
        ("source.spm", b"\x80\x04cos\nsystem\n", "is not a sentencepiece model"),
        ("target.spm", b"\x0a\xff\xff\xff\xff\x0f", "is not a sentencepiece model"),
        ("tokenizer_config.json", b'{"unk_token": "../../etc/passwd"}', "has no piece ../../etc"),
    ],
)
def test_damaged_and_hostile_files_are_refused_in_a_line(case, tmp_path, file, content, reason):
    shutil.copytree(case("marian").saved, tmp_path, dirs_exist_ok=True)
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_bytes(content)

    with pytest.raises(UserError, match=reason) as caught:
        read_tokenizer(tmp_path, case("marian").config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"model_type": "bert"}, "has a tokenizer of bert; supported are marian, m2m_100, mbart, "),
        ({"vocab_size": None}, "config.json needs vocab_size, a number, got None"),
        ({"vocab_size": 1 << 40}, "config.json needs vocab_size, a number, got"),
        ({"vocab_size": 20}, "has a tokenizer of another model: row"),
        ({"pad_token_id": "x"}, "config.json needs pad_token_id, a number, got 'x'"),
        ({"pad_token_id": 10**6}, "has a tokenizer of another model: row 1000000"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_in_a_line(case, changed, reason):
    one = case("marian")
    with pytest.raises(UserError, match=reason) as caught:
        read_tokenizer(one.saved, json.loads(json.dumps(one.config | changed)))
    assert "\n" not in str(caught.value)


def test_sides_begin_with_the_languages_that_are_asked_for(case):
    for name, code, piece in (("nllb", "fra_Latn", "fra_Latn"), ("m2m_100", "fr", "__fr__")):
        one = case(name)
        tokenizer = read_tokenizer(one.saved, one.config, [code], [piece]).tokenizer
        for encode, pieces in (
            (tokenizer.encode_source, tokenizer.source_pieces),
            (tokenizer.encode_target, tokenizer.target_pieces),
        ):
            assert pieces(encode(["The dog"])[0])[0] == piece
        with pytest.raises(UserError, match=r"target_begin: .* has no piece 'xx'; use one of"):
            read_tokenizer(one.saved, one.config, [code], ["xx"])
    row = case("nllb").theirs.convert_tokens_to_ids("ita_Latn")
    forced = case("nllb").config | {"forced_bos_token_id": row}
    tokenizer = read_tokenizer(case("nllb").saved, forced).tokenizer
    assert tokenizer.target_pieces(tokenizer.target_begin) == ["ita_Latn"]
    for name, code, piece in (("nllb", "fra_Latn", "fra_Latn"), ("m2m_100", "fr", "__fr__")):
        one = case(name)
        tokenizer = read_tokenizer(one.saved, one.config).tokenizer
        other = tokenizer.into(code)
        assert other.target_pieces(other.target_begin) == [piece]
        assert other.source_begin == tokenizer.source_begin
        with pytest.raises(UserError, match=r"target_language=xx is not in this voc.*; use one of"):
            other.into("xx")
    bart = case("bart")
    assert read_tokenizer(bart.saved, bart.config, [], []).tokenizer.source_begin == ()


def test_a_sentinel_of_t5_is_a_piece_with_the_space_before_it(case):
    one, text = case("t5"), "The dog <extra_id_3> the cat <extra_id_0>"
    imported = read_tokenizer(one.saved, one.config)
    [ids] = imported.tokenizer.encode_source([text])
    assert [imported.rows[n] for n in ids] == one.theirs(text)["input_ids"]
    assert imported.tokenizer.decode_target([ids]) == [text]  # outputs show them


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        (
            "nllb",
            {"tgt_lang": None},
            r"names no target language; add target_begin=\[CODE\], with one ",
        ),
        (
            "nllb",
            {"src_lang": None},
            r"names no source language; add source_begin=\[CODE\], with one ",
        ),
        ("nllb", {"legacy_behaviour": True}, "puts language codes after the text, which is not su"),
        (
            "nllb",
            {"additional_special_tokens": [], "added_tokens_decoder": {}},
            "lists no language ",
        ),
        (
            "mbart50",
            {"additional_special_tokens": ["en_XX"], "added_tokens_decoder": {}},
            "is mBART-c",
        ),
        ("mbart50", {"tokenizer_class": "MBartTokenizerFast"}, "puts language codes after the te"),
        ("pegasus", {"offset": 0}, "has 0 reserved pieces; supported are 103"),
        ("t5", {"unk_token": "?"}, r"has no piece \? for unknown text"),
    ],
)
def test_folders_that_lack_what_is_needed_are_refused(case, tmp_path, name, settings, reason):
    one = case(name)
    shutil.copytree(one.folder, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    with pytest.raises(UserError, match=reason) as caught:
        read_tokenizer(tmp_path, one.config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "is missing, and so is a sentencepiece model; download one"),
        ({"model": {"type": "WordPiece"}}, "is of kind WordPiece; supported are Unigram and BPE"),
        ({"model": {"type": "Unigram", "vocab": [["a"]]}}, r"tokenizer\.json is not a tokenizer"),
        ({"model": {"type": "Unigram", "vocab": [["a", []]]}}, "is not a tokenizer"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}}}, r"tokenizer\.json is not a tokenizer"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [[1]]}}, "is not a tokenizer"),
        ({"model": {"type": "Unigram", "vocab": [["<unk>", 0], ["a", 0]]},
          "normalizer": {"precompiled_charsmap": "AAAA"}}, "of another model: 2 pieces for 628 em"),
        ({"model": [], "added_tokens": {"id": 3}}, "is of kind None"),
    ],
)  # fmt: skip
def test_a_damaged_tokenizer_json_is_refused(case, tmp_path, content, reason):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=reason) as caught:
        read_tokenizer(tmp_path, case("t5").config)
    assert "\n" not in str(caught.value)


CHANGES = {
    "an infinite row": (
        lambda spec: spec["added_tokens"].append({"id": math.inf, "content": "x"}),
        "the row of 'x' must be a number, got inf",
    ),
    "a large score": (
        lambda spec: spec["model"]["vocab"].append(["x", 1e300]),
        "is not a tokenizer: the score of 'x' is 1e",
    ),
    "a score of many digits": (
        lambda spec: spec["model"]["vocab"].append(["x", 10**400]),
        "is not a tokenizer: int too large to convert to float",
    ),
    "a score that is no number": (
        lambda spec: spec["model"]["vocab"].append(["x", math.nan]),
        "is not a tokenizer: the score of 'x' is nan",
    ),
    "no base64": (
        lambda spec: spec.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "!!!"}),
        "is not a tokenizer: ",
    ),
    "rules that are none": (
        lambda spec: spec.update(normalizer={"precompiled_charsmap": "AAAA"}),
        "is not a sentencepiece model",
    ),
    "a text for the normalizer": (
        lambda spec: spec.update(normalizer="NFKC"),
        "is not a tokenizer: its normalizer is not an object",
    ),
    "another normalizer": (
        lambda spec: spec.update(
            normalizer={"type": "Sequence", "normalizers": [{"type": "Lowercase"}]}
        ),
        "its normalizer has Lowercase '', which is not supported",
    ),
    "other signs": (
        lambda spec: spec.update(
            normalizer={"type": "Replace", "pattern": {"String": "``"}, "content": '"'}
        ),
        "its normalizer has Replace '``', which is not supported",
    ),
    "another splitting": (
        lambda spec: spec.update(pre_tokenizer={"type": "Digits", "individual_digits": True}),
        "its pre_tokenizer has Digits, which is not supported",
    ),
    "no pieces": (lambda spec: spec["model"].update(vocab=[["<unk>", 0]]), "of another model: "),
    "few pieces": (
        lambda spec: spec["model"].update(vocab=spec["model"]["vocab"][:10]),
        "is damaged or of another model: 110 pieces for 628 embeddings",
    ),
    "a mark after the end": (
        lambda spec: spec["post_processor"]["single"].append(spec["post_processor"]["single"][1]),
        "puts nothing before a text and </s> </s> after it, which is not supported",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_tokenizer_json_is_refused_in_a_line(case, tmp_path, name):
    one, (change, reason) = case("t5"), CHANGES[name]
    shutil.copytree(one.saved, tmp_path, dirs_exist_ok=True)
    spec = json.loads((tmp_path / "tokenizer.json").read_text())
    change(spec)
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(UserError, match=re.escape(reason)) as caught:
        read_tokenizer(tmp_path, one.config)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_of_marks_alone_is_refused(case, tmp_path):
    one = case("t5")
    shutil.copytree(one.saved, tmp_path, dirs_exist_ok=True)
    spec = json.loads((tmp_path / "tokenizer.json").read_text())
    spec["model"]["vocab"] = spec["model"]["vocab"][:3]
    for row, token in enumerate(spec["added_tokens"]):
        token["id"] = row
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(UserError, match="has a tokenizer without pieces; download it again"):
        read_tokenizer(tmp_path, one.config | {"vocab_size": len(spec["added_tokens"])})
