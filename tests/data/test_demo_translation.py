"""The bundled English to German corpus is what its README says."""

import re

import pytest

from tests.pages import ROOT

FOLDER = ROOT / "data" / "demo_translation"
PARTS = ("train", "val", "test")
NAMES = [f"{part}.{language}" for part in PARTS for language in ("en", "de")]


def lines(name: str) -> list[str]:
    return (FOLDER / name).read_text(encoding="utf-8").splitlines()


def words(name: str) -> set[str]:
    return set(re.findall(r"\w+", " ".join(lines(name))))


def test_every_file_is_small_and_so_is_the_folder():
    sizes = [path.stat().st_size for path in FOLDER.iterdir()]
    assert max(sizes) < 1_000_000
    assert sum(sizes) < 1_000_000


@pytest.mark.parametrize("part", ["val", "test"])
def test_no_sentence_of_val_or_test_occurs_in_train_but_every_word_does(part):
    assert not set(lines(f"{part}.en")) & set(lines("train.en"))
    for language in ("en", "de"):
        assert words(f"{part}.{language}") <= words(f"train.{language}")


def test_no_sentence_stands_twice_and_val_shares_none_with_test():
    english = [line for part in PARTS for line in lines(f"{part}.en")]
    assert len(english) == len(set(english))


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
