"""The bundled English to German corpus is what its generator and its README say."""

import re
import sys

import pytest

from tests.data.generators import DATA, generator_of

FOLDER = DATA / "demo_translation"
PARTS = ("train", "val", "test")
NAMES = [f"{part}.{language}" for part in PARTS for language in ("en", "de")]


@pytest.fixture(scope="module")
def generator():
    with generator_of("translation") as module:
        yield module


def lines(name: str) -> list[str]:
    return (FOLDER / name).read_text(encoding="utf-8").splitlines()


def words(name: str) -> set[str]:
    return set(re.findall(r"\w+", " ".join(lines(name))))


@pytest.fixture(scope="module")
def draws(generator):
    """Every structure that was drawn, with its English text."""
    sampler = generator.Sampler(generator.SEED)
    sentences = [sampler.sentence() for _ in range(generator.DRAWS)]
    return [(generator.english_sentence(sentence), sentence) for sentence in sentences]


@pytest.fixture(scope="module")
def drawn(draws):
    """The last structure of each English text."""
    return dict(draws)


def test_both_sides_have_as_many_lines_as_stated(generator):
    sizes = {**generator.SIZES, "test": sum(generator.TEST_BLOCKS.values())}
    for part in PARTS:
        assert len(lines(f"{part}.en")) == len(lines(f"{part}.de")) == sizes[part]


def test_every_file_is_small_and_so_is_the_folder():
    sizes = [path.stat().st_size for path in FOLDER.iterdir()]
    assert max(sizes) < 1_000_000
    assert sum(sizes) < 1_000_000


def test_every_noun_and_verb_of_the_lexicon_occurs_in_train(generator):
    english, german = words("train.en"), words("train.de")
    english |= {word.lower() for word in english}
    german |= {word.lower() for word in german}
    lexicon = generator.lexicon
    assert {verb.base for verb in lexicon.VERBS} <= english
    assert {noun.english for noun in lexicon.NOUNS} <= english
    assert {noun.german for noun in lexicon.NOUNS} <= german
    assert {adjective.english for adjective in lexicon.ADJECTIVES} <= english
    lemmas = [noun.english for noun in lexicon.NOUNS] + [verb.base for verb in lexicon.VERBS]
    lemmas += [adjective.english for adjective in lexicon.ADJECTIVES]
    assert len(set(lemmas)) >= 150
    assert min(len(english), len(german)) >= 150


@pytest.mark.parametrize("part", ["val", "test"])
def test_no_sentence_of_val_or_test_occurs_in_train_but_every_word_does(part):
    assert not set(lines(f"{part}.en")) & set(lines("train.en"))
    for language in ("en", "de"):
        assert words(f"{part}.{language}") <= words(f"train.{language}")


def test_no_sentence_stands_twice_and_val_shares_none_with_test():
    english = [line for part in PARTS for line in lines(f"{part}.en")]
    assert len(english) == len(set(english))


def test_an_english_sentence_has_one_german_translation(generator, draws):
    german_of = {}
    for english, sentence in draws:
        german = generator.german_sentence(sentence)
        assert german_of.setdefault(english, german) == german


def test_train_and_val_hold_nothing_held_out_and_each_test_block_its_own_kind(generator, drawn):
    for line in lines("train.en") + lines("val.en"):
        assert generator.held_out_kinds(drawn[line]) == set(), line
    kinds = [kind for kind, count in generator.TEST_BLOCKS.items() for _ in range(count)]
    for line, kind in zip(lines("test.en"), kinds):
        assert generator.held_out_kinds(drawn[line]) == {kind}, line


def test_the_text_of_train_shows_no_held_out_combination():
    # Read off the text itself, so that a fault in `held_out_kinds` cannot hide: "because" leads
    # to no "can" before its clause ends, "although" to no "whom".
    for line in lines("train.en") + lines("val.en"):
        assert not re.search(r"\b[Bb]ecause [^,]*\b(can|cannot)\b", line), line
        assert not re.search(r"\b[Ii]f [^,]*\bwants? to\b", line), line
        assert not re.search(r"\bthat [^,]*\bwill\b", line), line
        assert not re.search(r"\b[Aa]lthough [^,]*\b(has|have)\b", line), line
        assert not re.search(r"\b([Aa]lthough|that) [^,]*, whom\b", line), line
        assert not re.search(r"\b[Bb](uy|uys|ought) (the|a|this|every) (cake|soup)\b", line), line


def test_what_is_held_out_is_common_in_train_in_other_company(generator, drawn):
    sentences = [drawn[line] for line in lines("train.en")]
    joined = [(s.conjunction, s.other.tense) for s in sentences if s.other]
    for conjunction, tense in generator.HELD_OUT_TENSES:
        assert sum(one == conjunction for one, _ in joined) >= 100
        assert sum(other == tense for _, other in joined) >= 50
    nested = [
        sentence.conjunction
        for sentence in sentences
        if (other := sentence.other)
        and (other.subject.relative or (other.object and other.object.relative))
    ]
    assert all(nested.count(word) >= 20 for word in generator.CONJUNCTIONS)
    for verb in generator.lexicon.VERBS:
        nouns = generator.lexicon.nouns_of(verb.objects)
        held_out = [noun for noun in nouns if generator.is_held_out_pair(verb, noun)]
        assert len(held_out) <= len(nouns) / 2, verb.base


def test_the_readme_lists_exactly_the_pairs_held_out(generator):
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z ]+) \| ([a-z, ]+) \|$", readme, re.MULTILINE)
    listed = {verb: nouns.split(", ") for verb, nouns in rows if verb != "verb"}
    assert listed == generator.held_out_pairs()


@pytest.mark.parametrize(
    ("verb", "tense", "negated", "final", "second"),
    [
        ("buy", "perfect", False, "er einen Hund gekauft hat", "er hat einen Hund gekauft"),
        ("buy", "want", True, "er keinen Hund kaufen will", "er will keinen Hund kaufen"),
        ("invite", "present", False, "er einen Hund einlädt", "er lädt einen Hund ein"),
        ("follow", "past", False, "er einem Hund gefolgt ist", "er ist einem Hund gefolgt"),
    ],
)
def test_the_german_verb_stands_where_the_clause_wants_it(
    generator, verb, tense, negated, final, second
):
    grammar = sys.modules["translation_grammar"]
    lexicon = generator.lexicon
    nouns = {noun.english: noun for noun in lexicon.NOUNS}
    verbs = {item.base: item for item in lexicon.VERBS}
    clause = generator.Clause(
        subject=generator.Phrase(nouns["he"]),
        verb=verbs[verb],
        tense=tense,
        negated=negated,
        object=generator.Phrase(nouns["dog"], lexicon.A),
    )
    assert grammar.plain(grammar.german_clause(clause, "final")) == final
    assert grammar.plain(grammar.german_clause(clause, "second")) == second


@pytest.mark.parametrize("part", ["val", "test"])
def test_every_word_is_linked_and_a_german_one_surely_to_one_english_word_at_most(part):
    sides = (lines(f"{part}.{suffix}") for suffix in ("en", "de", "align"))
    for english, german, written in zip(*sides, strict=True):
        links = [re.fullmatch(r"(\d+)([-p])(\d+)", link).groups() for link in written.split()]
        assert len({(i, j) for i, _, j in links}) == len(links), written
        assert {int(i) for i, _, _ in links} == set(range(len(english.split()))), english
        assert {int(j) for _, _, j in links} == set(range(len(german.split()))), german
        surely = [j for _, kind, j in links if kind == "-"]
        assert len(set(surely)) == len(surely), german


@pytest.mark.parametrize(
    ("english", "german", "links"),
    [
        (
            "Yesterday his friend switched on the small radio.",
            "Gestern hat sein Freund das kleine Radio eingeschaltet.",
            "0-0 1-2 2-3 3p1 3-7 4p7 5-4 6-5 7-6",
        ),
        (
            "Some mothers want to buy the cakes, which Paul took.",
            "Einige Mütter wollen die Kuchen kaufen, die Paul genommen hat.",
            "0-0 1-1 2-2 3p2 3p5 4-5 5-3 6-4 7-6 8-7 9-8 9p9",
        ),
        (
            "The strong friend, who can send many uncles two cheap pictures, cannot show her "
            "mother pictures.",
            "Der starke Freund, der vielen Onkeln zwei billige Bilder schicken kann, kann ihrer "
            "Mutter keine Bilder zeigen.",
            "0-0 1-1 2-2 3-3 4-10 5-9 6-4 7-5 8-6 9-7 10-8 11-11 11-14 12-16 13-12 14-13 15-15",
        ),
    ],
)
def test_links_are_those_that_a_person_draws(english, german, links):
    number = lines("test.en").index(english)
    assert (lines("test.de")[number], lines("test.align")[number]) == (german, links)


@pytest.mark.parametrize(
    ("verb", "tense", "negated", "noun", "english", "german", "links"),
    [
        ("pick", "present", False, "a", "he picks up a dog", "er holt einen Hund ab",
         "0-0 1-1 1p4 2p1 2-4 3-2 4-3"),
        ("invite", "present", True, "the", "he does not invite the dog",
         "er lädt den Hund nicht ein", "0-0 1p1 1p5 2-4 3-1 3-5 4-2 5-3"),
        ("look", "past", True, "a", "he did not look for a dog", "er hat keinen Hund gesucht",
         "0-0 1-1 2-2 3-4 4p4 5p2 6-3"),
        ("see", "want", True, "the", "he does not want to see the dog",
         "er will den Hund nicht sehen", "0-0 1p1 2-4 3-1 4p1 4p5 5-5 6-2 7-3"),
    ],
)  # fmt: skip
def test_what_one_language_says_by_more_words_is_linked_by_the_rules_of_the_readme(
    generator, verb, tense, negated, noun, english, german, links
):
    grammar, lexicon = sys.modules["translation_grammar"], generator.lexicon
    nouns = {one.english: one for one in lexicon.NOUNS}
    article = {"a": lexicon.A, "the": lexicon.THE}[noun]
    clause = generator.Clause(
        subject=generator.Phrase(nouns["he"]),
        verb={one.base: one for one in lexicon.VERBS}[verb],
        tense=tense,
        negated=negated,
        object=generator.Phrase(nouns["dog"], article),
    )
    sentence = grammar.Sentence(clause)
    said = (grammar.english_sentence(sentence), grammar.german_sentence(sentence))
    assert said == (english.capitalize() + ".", german[0].upper() + german[1:] + ".")
    assert grammar.alignment(sentence) == links


def test_a_preposition_of_several_words_and_one_that_holds_an_article(generator):
    grammar, lexicon = sys.modules["translation_grammar"], generator.lexicon
    nouns = {noun.english: noun for noun in lexicon.NOUNS}
    garden, church = (generator.Phrase(nouns[n], lexicon.THE) for n in ("garden", "church"))
    in_garden = grammar.prepositional(("in", "in"), "dative", garden)
    before = grammar.prepositional(("in front of", "vor"), "dative", church)
    assert tuple(map(grammar.plain, in_garden)) == ("in the garden", "im Garten")
    assert grammar.links(*in_garden) == "0-0 1p0 2-1"
    assert tuple(map(grammar.plain, before)) == ("in front of the church", "vor der Kirche")
    assert grammar.links(*before) == "0p0 1-0 2p0 3-1 4-2"
