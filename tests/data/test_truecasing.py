"""Outputs in the case that texts of the target side have."""

import hashlib
import itertools
import json
import math
import pickle

import pytest

from seqattn.data.tokenizer import Tokenizer
from seqattn.data.truecasing import Truecaser, _kind
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from tests.data.test_tokenizer import SOURCE

TITLES = ["Gas Deal with ENA", "Gas prices", "Deal with Lehman", "the eSpeed deal", "RE: ENA gas"]


def score(caser, forms):
    """The logarithm of what a sequence of forms is worth, from the counts themselves."""
    kinds = ["start", *map(_kind, forms)]
    names = ("start", "lower", "title", "upper", "mixed")
    counts = {(a, b): 1 + caser.kinds[a].get(b, 0) for a in names for b in names}
    total = 0.0
    for form, before, kind in zip(forms, kinds, kinds[1:]):
        seen = caser.forms.get(form.casefold(), {}).get(form, 0)
        made = form in (form.casefold(), form.capitalize(), form.upper())
        rare = 0.5 * caser.rare[kind] / sum(caser.rare.values()) if made else 0
        after = counts[before, kind] / sum(counts[before, b] for b in names)
        anywhere = sum(counts[a, kind] for a in names) / sum(counts.values())
        total += math.log(seen + rare) + math.log(after / anywhere)
    return total


@pytest.mark.parametrize("text", ["gas deal with ena", "the espeed prices", "new lehman deal"])
def test_the_best_of_all_sequences_of_forms_is_written(text):
    caser = Truecaser.learnt(TITLES)
    forms = [
        {word, word.capitalize(), word.upper(), *caser.forms.get(word, {})} for word in text.split()
    ]
    best = max(itertools.product(*forms), key=lambda chosen: score(caser, chosen))
    assert caser(text) == " ".join(best)


def test_signs_spaces_and_words_that_nobody_saw_stay():
    caser = Truecaser.learnt([*TITLES * 9, "some words in lower case"] * 3)
    assert caser("re:  ena (gas) - 12/30 deal!") == "RE:  ENA (gas) - 12/30 Deal!"
    assert [caser(text) for text in ("", " -- ")] == ["", " -- "]
    assert caser("zzyzx 東京").casefold() == "zzyzx 東京"
    assert Truecaser.learnt([])("some text") == "some text"


@pytest.mark.parametrize("joint", [True, False])
def test_a_tokenizer_writes_its_outputs_in_case_wherever_it_is_read(tmp_path, joint):
    config = TokenizerConfig(
        kind="bpe", vocab_size=45, joint=joint, normalization="nmt_nfkc_cf", truecase=True
    )
    targets = ["Die Katze sieht den Hund", "Ein Hund sieht eine Katze"] * 4
    plain = TokenizerConfig(kind="bpe", vocab_size=45, joint=joint, normalization="nmt_nfkc_cf")
    cased, folded = (
        train_tokenizer(SOURCE, targets, made, tmp_path / "cache") for made in (config, plain)
    )
    assert cased.fingerprint == folded.fingerprint  # the ids are the same
    ids = cased.encode_target(targets)
    assert folded.decode_target(ids) == [text.lower() for text in targets]
    cased.save(tmp_path / "saved")
    again = train_tokenizer(SOURCE, targets, config, tmp_path / "cache")
    for one in (
        cased,
        again,
        Tokenizer.load(tmp_path / "saved"),
        pickle.loads(pickle.dumps(cased)),
    ):
        assert one.decode_target(ids) == targets
        assert one.joint == joint
    (tmp_path / "saved" / "truecaser.json").write_text("{}")
    with pytest.raises(UserError, match="does not match its digest"):
        Tokenizer.load(tmp_path / "saved")


def test_case_that_is_kept_is_not_restored():
    with pytest.raises(UserError, match=r"got identity; set tokenizer.truecase=false"):
        TokenizerConfig(truecase=True)


KINDS = '{"start":{},"lower":{},"title":{},"upper":{},"mixed":{}}'
RARE = '{"lower":1,"title":1,"upper":1}'
MALFORMED = [
    b"", b"{", b"null", b"[]", b"5", b"\xff", b"{}", b"[" * 100_000,
    f'{{"forms":{{}},"kinds":{KINDS}}}', f'{{"forms":{{}},"kinds":{{}},"rare":{RARE}}}',
    f'{{"forms":{{}},"kinds":{KINDS},"rare":{{}}}}',
    f'{{"forms":[],"kinds":{KINDS},"rare":{RARE}}}',
    f'{{"forms":{{"a":5}},"kinds":{KINDS},"rare":{RARE}}}',
    f'{{"forms":{{"a":{{"A":0}}}},"kinds":{KINDS},"rare":{RARE}}}',
    f'{{"forms":{{"a":{{"A":-1}}}},"kinds":{KINDS},"rare":{RARE}}}',
    f'{{"forms":{{"a":{{"A":"1"}}}},"kinds":{KINDS},"rare":{RARE}}}',
    f'{{"forms":{{"a":{{"A":1{"0" * 400}}}}},"kinds":{KINDS},"rare":{RARE}}}',
    f'{{"forms":{{"a":{{"\\ud800":1}}}},"kinds":{KINDS},"rare":{RARE}}}',
    f'{{"forms":null,"kinds":{KINDS},"rare":{RARE}}}',
]  # fmt: skip


@pytest.mark.parametrize("content", MALFORMED)
def test_a_malformed_table_of_forms_is_one_line(tmp_path, content):
    content = content if isinstance(content, bytes) else content.encode()
    config = TokenizerConfig("bpe", vocab_size=60, normalization="nmt_nfkc_cf", truecase=True)
    train_tokenizer(SOURCE, TITLES, config, tmp_path).save(tmp_path)
    (tmp_path / "truecaser.json").write_bytes(content)
    head = json.loads((tmp_path / "tokenizer.json").read_text())
    head["files"]["truecaser.json"] = hashlib.sha256(content).hexdigest()
    (tmp_path / "tokenizer.json").write_text(json.dumps(head))
    with pytest.raises(UserError, match=r"truecaser.json is not a valid truecaser"):
        Tokenizer.load(tmp_path)


def test_the_smallest_table_of_forms_is_read():
    content = f'{{"forms":{{}},"kinds":{KINDS},"rare":{RARE}}}'.encode()
    assert Truecaser.read(content)("gas deal") == "gas deal"
