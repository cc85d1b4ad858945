"""Each noise is what its paper says."""

import re
import statistics
from random import Random

import pytest
from rouge_score.rouge_scorer import RougeScorer

from seqattn.errors import UserError
from seqattn.extras.denoising.noise import (
    MASK,
    SENTINELS,
    Noise,
    infill,
    poisson,
    sentences_of,
    t5_spans,
)

WORDS = [f"w{number}" for number in range(200)]  # all different, so that places can be told
TEXT = " ".join(WORDS)
STORY = "The dog sees a cat. The cat runs! Why does it run? A bird sings (alone). The dog barks."


def test_masking_replaces_its_share_of_words_at_their_places_anywhere():
    seen = set()
    for seed in range(40):
        source, target = Noise("masking", 0.15)(TEXT, Random(seed))
        masked = [n for n, word in enumerate(source.split()) if word == MASK]
        assert target == TEXT
        assert len(masked) == 30
        assert [w for w in source.split() if w != MASK] == [
            w for n, w in enumerate(WORDS) if n not in masked
        ]
        seen.update(masked)
    assert len(seen) > 195


def test_deletion_leaves_the_other_words_in_order_and_at_least_one():
    source, target = Noise("deletion", 0.15)(TEXT, Random(3))
    assert target == TEXT
    assert len(source.split()) == 170
    assert sorted(source.split(), key=WORDS.index) == source.split()
    assert len(Noise("deletion", 0.9)("both words", Random(3))[0].split()) == 1


@pytest.mark.parametrize("kind", ["masking", "deletion", "infilling", "spans", "gap_sentences"])
def test_letters_of_scripts_without_spaces_are_words(kind):
    """Some are left in the source, and the target is the text, without spaces of its own."""
    text = "猫在垫子上睡觉。狗在「院子」里跑步。Ein Hund 跑。"
    for seed in range(20):
        source, target = Noise(kind, permute=kind == "masking")(text, Random(seed))
        assert "\0" not in source + target
        assert sum(letter in source for letter in "猫狗子步") > 1
        if kind == "spans":
            parts = [iter(re.split(r" ?<extra_id_\d+> ?", side)) for side in (source, target)]
            next(parts[1])
            both = "".join(part for pair in zip(*parts) for part in pair)
            assert both.replace(" ", "") == text.replace(" ", "")
        elif kind != "gap_sentences":
            assert target == text
    assert Noise("none")(text, Random(0)) == (text, text)
    assert len(sentences_of(text)) == 3
    assert len(sentences_of(text)[1]) == 7


@pytest.mark.parametrize("kind", ["deletion", "spans"])
def test_a_text_that_is_too_short_to_change_is_left_out(kind):
    assert Noise(kind)("alone", Random(3)) == ("", "")


def test_no_span_of_infilling_is_shorter_for_its_place():
    """The one that is cut to the share may be any."""
    first, last = [], []
    words = [f"w{n}" for n in range(40)]
    for seed in range(4000):
        output = infill(words, 12, 3.0, Random(seed))
        places = [n for n, word in enumerate(output) if word == MASK]
        if len(places) > 1 and places[0] > 0 and places[-1] < len(output) - 1:
            near = {n + 1 for n in places} & {*places}
            if not near:
                after, before = output[places[0] + 1], output[places[-1] - 1]
                first.append(int(after[1:]) - int(output[places[0] - 1][1:]) - 1)
                last.append(int(output[places[-1] + 1][1:]) - int(before[1:]) - 1)
    assert len(first) > 1000
    assert statistics.mean(first) == pytest.approx(statistics.mean(last), abs=0.25)


def test_a_poisson_draw_has_its_mean_and_variance():
    random = Random(5)
    drawn = [poisson(3.0, random) for _ in range(20_000)]
    assert statistics.mean(drawn) == pytest.approx(3.0, abs=0.05)
    assert statistics.variance(drawn) == pytest.approx(3.0, rel=0.05)
    assert drawn.count(0) / len(drawn) == pytest.approx(0.0498, abs=0.005)


def test_infilling_replaces_its_share_of_words_in_poisson_spans_by_one_mask_each():
    """BART, section 2.2: spans of length 0 insert a mask."""
    lengths = []
    for seed in range(400):
        source, target = Noise("infilling", 0.3)(TEXT, Random(seed))
        assert target == TEXT
        output = source.split()
        kept = [word for word in output if word != MASK]
        assert len(kept) == 140
        assert kept == sorted(kept, key=WORDS.index)
        for before, word, after in zip(output, output[1:], output[2:], strict=False):
            if word == MASK and MASK not in (before, after):
                lengths.append(int(after[1:]) - int(before[1:]) - 1)
    assert len(lengths) > 5000
    assert statistics.mean(lengths) == pytest.approx(3.0, abs=0.15)
    assert lengths.count(0) / len(lengths) == pytest.approx(0.05, abs=0.02)


def test_shuffled_sentences_are_the_same_ones():
    source, target = Noise("none", permute=True)(STORY, Random(1))
    assert target == STORY
    assert source != STORY
    assert sorted(sentences_of(source)) == sorted(sentences_of(STORY))
    assert len(sentences_of(STORY)) == 5
    orders = {Noise("none", permute=True)(STORY, Random(n))[0] for n in range(400)}
    assert len(orders) > 100  # of 120


@pytest.mark.parametrize("seed", range(20))
def test_spans_have_sentinels_in_order_and_the_target_gives_every_word_back(seed):
    """T5, section 3.1.4: the share of words, spans of the mean length, none beside another."""
    words = WORDS[:100]
    source, target = Noise("spans", 0.15)(" ".join(words), Random(seed))
    assert [w for w in source.split() if w in SENTINELS] == SENTINELS[:5]
    assert [w for w in target.split() if w in SENTINELS] == SENTINELS[:6]
    assert len(target.split()) == 15 + 6
    assert target.endswith(SENTINELS[5])
    assert not re.search(r"<extra_id_\d+> <extra_id_\d+>", source)
    removed = dict(re.findall(r"(<extra_id_\d+>) ((?:w\d+ )+)", target))
    assert all(removed[one] for one in SENTINELS[:5])
    for sentinel, span in removed.items():
        source = source.replace(sentinel, span.strip())
    assert source.split() == words


def test_long_texts_have_fewer_longer_spans_than_sentinels():
    source, target = Noise("spans", 0.5, 1.0)(TEXT, Random(2))
    assert len(SENTINELS) - 1 == sum(word in SENTINELS for word in source.split())
    assert sum(word not in SENTINELS for word in target.split()) == 100
    pairs = {t5_spans(["a", "b"], 1, 3.0, Random(seed)) for seed in range(20)}
    assert pairs == {
        ("a <extra_id_0>", "<extra_id_0> b <extra_id_1>"),
        ("<extra_id_0> b", "<extra_id_0> a <extra_id_1>"),
    }


def test_gap_sentences_are_those_most_like_the_rest_by_rouge_1():
    """PEGASUS, section 3.1.1, "Ind-Orig": each alone against the rest."""
    text = (
        "The storm closed the port and the road. Birds sing. The port and the road stay closed "
        "after the storm. Nobody slept! Ships wait at the closed port. Prices rise?"
    )
    whole = [" ".join(one) for one in sentences_of(text)]
    scorer = RougeScorer(["rouge1"])
    scores = [
        scorer.score(" ".join([*whole[:n], *whole[n + 1 :]]), one)["rouge1"].fmeasure
        for n, one in enumerate(whole)
    ]
    best = sorted(sorted(range(6), key=lambda n: -scores[n])[:2])
    source, target = Noise("gap_sentences", 0.3)(text, Random(0))
    assert target == " ".join(whole[n] for n in best)
    assert source.split(MASK)[0].strip() == " ".join(whole[: best[0]])
    assert source.count(MASK) == 2
    for n in sorted(set(range(6)) - set(best)):
        assert whole[n] in source
    assert Noise("gap_sentences")("One sentence only.", Random(0))[1] == ""  # nothing to learn


def test_a_text_of_few_words_or_none_is_no_error():
    for kind in ("masking", "deletion", "infilling", "spans", "gap_sentences", "none"):
        for text in ("", " ", "a", "a b", "a b c.", "a.\n\nb c.\n"):
            source, target = Noise(kind)(text, Random(4))
            assert isinstance(source, str)
            assert (
                (target == " ".join(text.split()))
                or "\n" in text
                or kind in ("spans", "gap_sentences")
                or (kind, text) == ("deletion", "a")
            )
    assert Noise("none")("a.\n\nb c.\n", Random(4))[1] == "a.\n\nb c."  # line breaks stay


def test_sentences_are_not_permuted_where_the_target_is_no_text():
    with pytest.raises(UserError, match=r"^permute needs a noise whose target is the text"):
        Noise("spans", permute=True)
