"""Words of texts: where terms begin and end."""

import sys

from seqattn.extras.terms.glossary import Glossary
from seqattn.extras.terms.words import Index, boundary, occurrences


def test_an_index_finds_what_a_search_for_each_term_finds():
    texts = ["New York and york", "x犬犬y 犬-x", "a b a b a", "", "Yorkshire (York)"]
    terms = ["New York", "York", "york and", "犬", "犬犬", "a b a", "b", "(York", "x犬"]
    index = Index(dict.fromkeys(terms))
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
