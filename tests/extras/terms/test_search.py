"""The beam that shares its places among banks, and forbidden terms in every search."""

import pickle
import re
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from seqattn.extras.terms.line_terms import Forbidden, LineTerms, Required
from seqattn.extras.terms.search import TermBeamSearch
from seqattn.extras.terms.words import Lexicon
from seqattn.generation import BeamSearch, Generator, GreedySearch, LengthLimit, Sampling
from seqattn.generation.constraints import Constraints
from tests.builders import make_transformer
from tests.generation.table_model import TableModel
from tests.generation.test_beam import assert_same, exhaustive

SOURCES = [[4, 5, 3], [5, 3], [4, 4, 5, 5, 3], [5, 4, 3]]
PIECES = ["", "⁇", "", "", " a", "b", " b", *("c" * 9)]
LEXICON = Lexicon(PIECES, np.array([1, 2, 3, 4, 6]))


class Model(TableModel):
    """Tokens without unknown text and marks."""

    def __init__(self, scale=2.0, size=7):
        super().__init__(size, scale=scale)

    def random_logits(self, source, prefix):
        logits = super().random_logits(source, prefix)
        return [-40.0 if token in (1, 2) else one for token, one in enumerate(logits)]


AB = Required(["ab", "b"], [(4, 5), (6,)])
BB = Required(["b bb"], [(6, 6, 5)])
TERMS = {
    "one of two variants": ([AB], []),
    "several tokens": ([BB], []),
    "two terms": ([AB, Required(["a"], [(4,)])], []),
    "one within another": ([BB, Required(["b"], [(6,)])], []),
    "forbidden": ([], ["a", "bb"]),
    "both": ([Required(["a"], [(4,)])], ["b", "a a"]),
}


def terms(name):
    required, forbidden = TERMS[name]
    return LineTerms(LEXICON, required, [Forbidden(forbidden, LEXICON, False)], False)


def satisfies(ids, name):
    """As a regular expression reads the text."""
    text = "".join(PIECES[token] for token in ids)
    required, forbidden = TERMS[name]
    found = [re.search(rf"(?<![ab]){one}(?![ab])", text) for one in forbidden]
    return not any(found) and all(
        any(re.search(rf"(?<![ab]){one}(?![ab])", text) for one in term.texts) for term in required
    )


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_wide_beam_finds_the_best_of_all_outputs_with_the_terms(name, alpha):
    model = Model(1.0)
    search = TermBeamSearch(LengthLimit(0.0, 4), 1_000, 20, alpha, early_stopping=False)
    each = [Constraints(processor=terms(name))] * 2
    outputs = Generator(model, search).generate(SOURCES[:2], constraints=each)
    for source, few in zip(SOURCES, outputs):
        every = exhaustive(lambda p, s=source: model.following(s, p), 4, alpha)
        every = [one for one in every if not {1, 2} & {*one[0]}]
        expected = [one for one in every if satisfies(one[0], name)][:20]
        assert 8 < len(expected) < len(every)
        assert_same(few[: len(expected)], expected)


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("beams", [1, 2, 4])
def test_a_narrow_beam_finds_outputs_with_all_terms(name, beams):
    search = TermBeamSearch(LengthLimit(0.0, 9), beams, beams)
    each = [Constraints(processor=terms(name))] * len(SOURCES)
    for few in Generator(Model(), search).generate(SOURCES, constraints=each):
        assert few
        assert all(satisfies(one.ids, name) for one in few)


def test_random_terms_are_in_every_output_with_room_for_them():
    e = "é".encode().decode("ascii", "surrogateescape")
    pieces = [*PIECES[:7], "a", " ", "犬", *e]
    lexicon, random = Lexicon(pieces, np.array([1, 2, 3, 4, 6, 8, 9])), Random(0)

    def form(text):
        """Return tokens that spell a text, each as long as it can be, or as short."""
        longest, ids, text = random.random() < 0.7, [], text.replace("é", e)
        while text:
            some = [n for n, piece in enumerate(pieces) if n > 3 and text.startswith(piece)]
            ids.append((max if longest else min)(some, key=lambda n: len(pieces[n])))
            text = text.removeprefix(pieces[ids[-1]])
        return tuple(ids)

    def word():
        return "".join(random.choices("aabbé犬", k=random.randint(1, 3)))

    def required():
        texts = [word(), f"{word()} {word()}"][random.randint(0, 1) :]
        return Required(texts, [form(f"{space}{one}") for one in texts for space in (" ", "")])

    for trial in range(60):
        own = LineTerms(lexicon, [required() for _ in range(1 + trial % 4)], [], False)
        search = TermBeamSearch(LengthLimit(0.0, 50), 1 + trial % 5)
        each, source = [Constraints(processor=own)], [4 + trial % 3, 4 + trial % 7, 3]
        [[best]] = Generator(Model(size=12), search).generate([source], constraints=each)
        text = own.text(best.ids)
        assert all(one.met(text) for one in own.required), (own.required, text)


def test_no_batch_and_no_process_changes_outputs_with_terms():
    names = [None, *TERMS][:4]
    each = [Constraints(processor=name and terms(name)) for name in names]
    for model in (Model(), make_transformer()):
        search = TermBeamSearch(LengthLimit(1.5, 6), 3, 3, batch_size=1)
        alone, together, plain = (
            Generator(model, one).generate(SOURCES, constraints=own)
            for one, own in (
                (search, each),
                (replace(search, batch_size=4), each),
                (BeamSearch(LengthLimit(1.5, 6), 3, 3), None),
            )
        )
        assert [[one.ids for one in few] for few in alone] == [
            [one.ids for one in few] for few in together
        ]
        assert [one.ids for one in together[0]] == [one.ids for one in plain[0]]
    shared = replace(search, workers=2)
    assert Generator(model, shared).generate(SOURCES, constraints=each) == alone


@pytest.mark.parametrize("search", [GreedySearch(), Sampling(n_best=4), BeamSearch(n_best=4)])
def test_every_search_leaves_forbidden_terms_out(search):
    """Where an output ends by itself: none of these searches knows its limit."""
    search = replace(search, limit=LengthLimit(0.0, 30))
    own = Constraints(processor=terms("forbidden"))
    sources = [[4, 5, n, m, 3] for n in (4, 5, 6) for m in (4, 5, 6)]
    free = Generator(Model(), search).generate(sources)
    outputs = Generator(Model(), search).generate(sources, constraints=[own] * len(sources))
    ended = [one for few in outputs for one in few if len(one.ids) < 30]
    assert len(ended) > 5
    assert all(satisfies(one.ids, "forbidden") for one in ended)
    assert not all(satisfies(one.ids, "forbidden") for few in free for one in few)


def test_outputs_that_cannot_have_all_terms_are_found_without_them():
    search = TermBeamSearch(LengthLimit(0.0, 2), 3, 3)
    own = [Constraints(processor=terms("several tokens"))]
    [few] = Generator(Model(), search).generate(SOURCES[:1], constraints=own)
    assert few
    assert not any(satisfies(one.ids, "several tokens") for one in few)


def test_a_term_that_other_pieces_spell_counts():
    own = terms("several tokens")
    assert own.progress((6, 6)).bank == 2
    assert own.progress((6, 6)).wanted == [5]
    assert own.progress((4, 6)).bank == 1
    assert own.progress((6, 6, 5)).met
    assert not own.progress((6, 6, 5, 5)).met
    other = LineTerms(Lexicon([*PIECES[:7], " b bb"], LEXICON.after), own.required, [], False)
    assert other.progress((7,)).met
    assert pickle.loads(pickle.dumps(own)).progress((6, 6)) == own.progress((6, 6))


def test_spaces_and_marks_of_tokens_are_read_as_terms_are():
    pieces = [*PIECES[:7], " ", "\u00a0", "e", "\u0301", "\u0301 "]
    lexicon = Lexicon(pieces, LEXICON.after)
    own = LineTerms(lexicon, [Required(["b b", "e\u0301"], [(6, 6)])], [], False)
    assert own.progress((6, 7, 8, 5)).met
    own = LineTerms(lexicon, [Required(["\u00e9"], [(9, 10)])], [], False)
    assert own.progress((6, 7, 9, 10)).met
    forbidden = Forbidden(["b b", "\u00e9"], lexicon, False)
    assert forbidden.is_pending(own.text((6, 7, 6)))
    assert not forbidden.is_pending(own.text((9,)))
    assert forbidden.is_pending(own.text((9, 10)))


def test_a_term_begins_where_a_word_does():
    own = LineTerms(LEXICON, [Required(["bb"], [(5, 5), (6, 5)])], [], False)
    assert own.progress(()).wanted == [5, 6]
    assert own.progress((4,)).wanted == [6]
    assert own.progress((4, 5)).bank == 0
    assert own.progress((4, 6)).bank == 1


def test_pieces_across_words_complete_forbidden_terms():
    pieces = [*PIECES[:7], "b a", "a.", ".a b", "犬", "犬.", "x犬"]
    cases = [(" b", "bb", [7]), (" ", "a", [8, 9]), (" b", "a", [9]), ("x", "犬", [10, 11, 12])]
    lexicon = Lexicon(pieces, LEXICON.after)
    for text, term, tokens in cases:
        assert sorted(Forbidden([term], lexicon, False).completed(text)) == tokens
    assert Forbidden(["a"], lexicon, False).is_pending(" b a")
    assert not Forbidden(["a"], lexicon, False).is_pending(" ba")
