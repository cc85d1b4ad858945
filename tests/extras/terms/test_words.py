"""Words of texts and of tokens: where terms begin and end."""

import sys

import pytest

from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.extras.terms.glossary import Glossary, _forms
from seqattn.extras.terms.line_terms import Forbidden
from seqattn.extras.terms.words import Index, Lexicon, boundary, occurrences, spelled

TEXTS = ["AI は犬 x", "ein Café, die Bücher", "犬AI 3犬 (der Hund)", "die Hunde"] * 9
KINDS = {
    "characters": {"kind": "characters"},
    "unigram": {"kind": "unigram"},
    "normalized": {"kind": "unigram", "normalization": "nmt_nfkc"},
    "bytes": {"kind": "bpe", "byte_fallback": True},
    "byte-level": {"prefix_space": False},
    "byte-level with a space": {"prefix_space": True},
}


class Bundle:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer


@pytest.fixture(scope="module", params=KINDS)
def spelling(request, tmp_path_factory):
    """A bundle that has only a tokenizer."""
    options = KINDS[request.param]
    if "kind" not in options:
        pytest.importorskip("tokenizers")
        from tests.data.test_byte_level import learnt

        return Bundle(Tokenizer(learnt(**options)))
    folder, config = tmp_path_factory.mktemp("tokenizer"), TokenizerConfig(**options)
    texts = TEXTS if not config.byte_fallback else ["AI ein Hund die (der Hunde"] * 9
    return Bundle(train_tokenizer(texts, texts, config, folder))


def ids(bundle, text):
    return bundle.tokenizer.encode_target([text])[0][:-1]


def test_tokens_read_as_the_text_that_they_spell(spelling):
    for text in TEXTS[:4]:
        [decoded] = spelling.tokenizer.decode_target([ids(spelling, text)])
        assert Lexicon.of(spelling).text(ids(spelling, text)).strip() == decoded.strip()


def test_a_token_ends_a_word_where_the_glossary_sees_its_end(spelling):
    lexicon = Lexicon.of(spelling)
    for token, text in enumerate(lexicon.texts):
        if token > 3 and not "\udc80" <= text[:1] <= "\udcff":
            ended = 0 in occurrences(f"AI{text}", "AI")
            assert (token in lexicon.after) == ended, text


def test_terms_have_the_tokens_that_texts_have(spelling):
    for term in ("Hund", "die Hunde", "Café"):
        forms = _forms(spelling, term, True)
        for text in (f"ein {term} x", term, f"{term} x"):
            row = ids(spelling, text)
            parts = {tuple(row[a:b]) for a in range(len(row)) for b in range(a, len(row) + 1)}
            assert parts & {*forms}, (text, forms)
        assert not any("  " in Lexicon.of(spelling).text(form) for form in forms)


def test_bytes_are_read_as_soon_as_they_spell_a_character():
    first, second = "é".encode().decode("ascii", "surrogateescape")
    assert spelled(f"Caf{first}{second} ", False) == "Café "
    assert spelled(f"CAF{first}", True) == f"caf{first}"
    assert spelled(f"{first}{first}{second}{second}x", False) == "�é�x"
    assert not [*occurrences(f"Caf{first}", "Caf")]


def test_bytes_complete_forbidden_terms():
    dog, dash = (one.encode().decode("ascii", "surrogateescape") for one in ("犬", "\u2013"))
    lexicon = Lexicon(["", "⁇", "", "", " x", "x", *dog, *dash], [1, 2, 3, 4])
    cases = [
        ("AI", "AI", [7, 8, 10, 11]),  # bytes that begin no character end the word
        ("AI", f"AI{dash[:2]}", [*range(6, 12)]),  # as dashes, spaces and incomplete ones do
        ("AI", "AI\udcc3", [6, 9]),  # the other bytes make letters
        ("犬", f"x{dog[:2]}", [8]),
        ("é", f"x{dog[:2]}", []),
    ]
    for term, text, tokens in cases:
        assert sorted(Forbidden([term], lexicon, False).completed(text)) == tokens
    assert Forbidden(["AI"], lexicon, False).is_pending(f"AI{dash[:2]}")
    assert not Forbidden(["犬"], lexicon, False).is_pending("犬")


def test_an_index_finds_what_a_search_for_each_term_finds():
    texts = ["New York and york", "x犬犬y 犬-x", "a b a b a", "", "Yorkshire (York)"]
    terms = ["New York", "York", "york and", "犬", "犬犬", "a b a", "b", "(York", "x犬"]
    index = Index(terms, str)
    for text in texts:
        each = [(place, term) for term in terms for place in occurrences(text, term)]
        assert sorted(index.found(text)) == sorted(each)
    assert boundary("a犬", 1)
    assert not boundary("ab", 1)


def test_work_on_a_glossary_grows_with_its_entries_and_not_with_their_pairs():
    def calls(count):
        """Python functions called to read a glossary and to check a text."""
        entries = {f"w{n}": [f"Haus {n}", f"!Haus {n} x"] for n in range(count)}
        entries[""] = [f"!Buch{n}" for n in range(count)]
        called = 0

        def note(frame, event, argument):
            nonlocal called
            called += event == "call"

        sys.setprofile(note)
        try:
            glossary = Glossary(entries=entries)
            assert glossary.unmet("w1 w2", "Haus 1 Buch3") == ["Haus 2", "!Buch3"]
        finally:
            sys.setprofile(None)
        return called

    assert calls(400) < 5 * calls(100)
