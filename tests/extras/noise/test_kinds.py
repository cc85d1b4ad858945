"""What each kind of noise does to a pair, and what it leaves alone."""

import random
import re

import pytest

from seqattn.data.word_links import WORD, LinkedPair, words_in
from seqattn.extras.noise.edits import edited
from seqattn.extras.noise.kinds import KINDS, Writing, Writings, notices

ENGLISH = Writing.of(["The dog sees a cat.", "No mark"])
GERMAN = Writing.of(["Der Hund hört die größte Straße.", "Süße Äpfel"])
APART = Writing.of(["der hund sieht die katze ."])
CHINESE = Writing.of(["我喜欢猫。"])
HINDI = Writing.of(["बिल्ली सो रही है।"])


def noised(kind, source, target, links=None, writings=(ENGLISH, GERMAN), seed=1):
    pair = LinkedPair(source, target, links)
    return edited(pair, *KINDS[kind](pair, Writings(*writings), random.Random(seed)))


@pytest.mark.parametrize(
    ("kind", "writings", "pair", "expected"),
    [
        ("upper", (ENGLISH, GERMAN), ("a street!", "die Straße!"), ("A STREET!", "DIE STRASSE!")),
        ("upper", (ENGLISH, CHINESE), ("<2zh> a cat", "猫a"), ("<2zh> A CAT", "猫a")),
        ("title", (ENGLISH, GERMAN), ('3rd "it" o_', "ǆ (die)"), ('3rd "It" O_', "ǅ (Die)")),
        ("end_punctuation", (ENGLISH, GERMAN), ("a. No. ", "Ja, nein!?"), ("a. No ", "Ja, nein")),
        ("end_punctuation", (APART, APART), ("no .", "nein ."), ("no", "nein")),
        ("end_punctuation", (APART, GERMAN), ("no", "nein"), ("no .", "nein.")),
        ("end_punctuation", (HINDI, CHINESE), ("बिल्ली", "是"), ("बिल्ली", "是")),
        ("end_punctuation", (CHINESE, ENGLISH), ("是", "yes"), ("是。", "yes.")),
        ("end_punctuation", (ENGLISH, GERMAN), ("yes.", "ja"), ("yes.", "ja")),
        ("end_punctuation", (ENGLISH, GERMAN), ("a list:", "Liste:"), ("a list:", "Liste:")),
        ("end_punctuation", (ENGLISH, GERMAN), ("...", "..."), ("...", "...")),
        ("typos", (CHINESE, ENGLISH), ("我 喜欢 猫", "cats"), ("我 喜欢 猫", "cats")),
        ("typos", (ENGLISH, GERMAN), ("a@b.de 1a I >>de<<", "a"), ("a@b.de 1a I >>de<<", "a")),
        ("tags", (ENGLISH, GERMAN), ("a b", "c"), ("a b", "c")),
    ],
)  # fmt: skip
def test_a_kind_acts_where_it_can(kind, writings, pair, expected):
    assert noised(kind, *pair, writings=writings)[:2] == expected


def test_typos_are_of_each_sort_and_of_letters_near():
    sorts = {
        "doubled": lambda new: re.sub(r"(.)\1", r"\1", new, count=1) == "the flight home",
        "lost": lambda new: len(new) == 14 and new.count(" ") == 2,
        "swapped": lambda new: sorted(new) == sorted("the flight home"),
        "joined": lambda new: new.count(" ") == 1,
        "split": lambda new: new.count(" ") == 3,
    }
    counts = dict.fromkeys([*sorts, "neighbor"], 0)
    for seed in range(600):
        new, target, _ = noised("typos", "The flight home", "x", seed=seed)
        assert new[0].isupper() or new.startswith("he ")
        new = new.lower()
        assert target == "x"
        sort = next((name for name, holds in sorts.items() if holds(new)), "neighbor")
        counts[sort] += 1
        if sort == "neighbor":
            [(right, wrong)] = [both for both in zip("the flight home", new) if len({*both}) > 1]
            assert wrong in ENGLISH.neighbors[right]
    assert min(counts.values()) > 50


def test_a_tenth_of_the_words_get_a_typo():
    text = " ".join(["words"] * 40)
    new = noised("typos", text, "x").source
    assert 1 <= len(words_in(new)) <= 44
    assert 35 <= words_in(new).count("words") <= 38  # a lost space changes two


def test_keyboards_are_those_of_the_letters():
    assert {*ENGLISH.neighbors["f"]} == {*"drtgcv"}
    assert {*ENGLISH.neighbors["t"]} == {*"ryfg"}
    assert {*GERMAN.neighbors["t"]} == {*"rzfg"}
    assert "z" in Writing.of(["Le garçon est là, où l'été a été."]).neighbors["a"]
    assert "q" in Writing.of(["a naïve café in the middle of a long town road"] * 9).neighbors["a"]
    assert {*Writing.of(["Собака видит кошку"]).neighbors["ж"]} == {*"дэзхю"}
    assert not set(Writing.of(["το σπίτι"]).neighbors["τ"]) & set(" abc")


def test_a_tag_is_linked_with_its_like():
    for seed in range(200):
        links = {(0, 1), (1, 0), (2, 2), (3, 2)}
        source, target, new = noised(
            "tags", "one two three four", "zwei eins drei", links, seed=seed
        )
        read, said = words_in(source), words_in(target)
        added = {(i, j) for i, j in new if read[i] == said[j]}
        assert len(added) == len(read) - 4 == len(said) - 3 > 0
        spelled = {(read[i], said[j]) for i, j in new - added}
        assert spelled == {("one", "eins"), ("two", "zwei"), ("three", "drei"), ("four", "drei")}
        place = source.index(read[min(i for i, _ in added)])
        assert source[place:].startswith(" ".join(read[i] for i, _ in sorted(added)))


def test_copies_are_equal_words_linked_in_order_after_tags():
    pair = noised("copied", "<2de> one two.", "eins zwei. ", {(0, 0), (1, 0)})
    tag, *read = words_in(pair.source)
    assert tag == "<2de>"
    assert read == words_in(pair.target)
    assert all(re.fullmatch("[a-z]{2,8}", word) for word in read)
    assert pair.links == {(n + 1, n) for n in range(len(read))}


def test_what_cannot_act_is_said():
    said = [*notices(KINDS, Writings(CHINESE, HINDI), is_linked=False)]
    assert [line.split(" does")[0] for line in said] == ["typos", "title", "upper", "tags"]
    assert "source and target" in said[1]
    assert [*notices(KINDS, Writings(ENGLISH, GERMAN), is_linked=True)] == []
    [line] = notices(["upper"], Writings(ENGLISH, CHINESE), is_linked=True)
    assert "on the target, where case makes no difference" in line
    assert WORD.findall(line)
