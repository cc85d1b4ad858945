"""Systems whose difference is known: do intervals and tests keep what they promise?

`python -m tests.extras.compare.simulated_study DRAWS` prints the figures of docs/compare.md.

A sentence has a length and a difficulty, a seed is better or worse on all sentences, and on each
sentence by chance. Words match with a probability that follows from these, and an n-gram that
matches goes on to match: so that BLEU is computed of counts as it is of texts.
"""

import sys
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from seqattn.extras.compare.seed_statistics import SeedVariance, difference, seed_interval
from seqattn.metrics.significance import SentenceCounts, sentence_tests


class World(NamedTuple):
    """What is drawn from."""

    gap: float
    """How much better the first system is, in logits of a word."""
    spread: float
    """Standard deviation over seeds, in logits."""
    seeds: tuple[int, int] = (3, 3)
    sentences: int = 100


def bleu(sums):
    lengths = int(sums[0]), int(sums[1])
    return BLEU.compute_bleu(sums[2:6], sums[6:], *lengths, smooth_method="exp").score


def sentences(world, chance):
    """Lengths and difficulties."""
    return chance.integers(6, 25, world.sentences), chance.normal(0, 1, world.sentences)


def system(skill, spread, seeds, texts, chance):
    """BLEU of each seed."""
    lengths, difficulties = texts
    found = []
    for _ in range(seeds):
        skills = skill + chance.normal(0, spread) + chance.normal(0, 0.6, len(lengths))
        word = 1 / (1 + np.exp(difficulties - skills))
        made = np.maximum(4, lengths + chance.integers(-1, 2, len(lengths)))
        totals = [made - n for n in range(4)]
        matches = [chance.binomial(totals[0], word)]
        for total in totals[1:]:
            matches.append(chance.binomial(np.minimum(matches[-1], total), word**0.45))
        counts = np.stack([made, lengths, *matches, *totals], axis=1).astype(float)
        found.append(SentenceCounts("BLEU", counts, bleu))
    return found


def both(world, texts, chance):
    """The two systems on the same sentences."""
    first = system(0.8 + world.gap, world.spread, world.seeds[0], texts, chance)
    return first, system(0.8, world.spread, world.seeds[1], texts, chance)


def mean(runs):
    return np.mean([one.score for one in runs])


def true_difference(world, draws=1500):
    """The mean over many seeds and many sets of sentences."""
    chance = np.random.default_rng(7)
    drawn = (both(world, sentences(world, chance), chance) for _ in range(draws))
    return np.mean([mean(first) - mean(second) for first, second in drawn])


def difference_coverage(world, draws, seed=0, pooled_with=0):
    """The share of intervals of a difference that hold the true one, and of p below 0.05.

    With `pooled_with`, seeds' variance is that of so many more systems, too.
    """
    chance, truth, found = np.random.default_rng(seed), true_difference(world), []
    for _ in range(draws):
        texts = sentences(world, chance)
        compared = both(world, texts, chance)
        others = [system(0.8, world.spread, 3, texts, chance) for _ in range(pooled_with)]
        pooled = SeedVariance.of([*compared, *others]) if pooled_with else None
        found.append(difference(*compared, pooled))
    covered = np.mean([low <= truth <= high for low, high in (one.interval for one in found)])
    return covered, np.mean([one.p < 0.05 for one in found])


def seed_coverage(world, draws, seed=0):
    """The share of a system's intervals that hold its mean over all seeds on its sentences."""
    chance, held = np.random.default_rng(seed), 0
    for _ in range(draws):
        texts = sentences(world, chance)
        truth = mean(system(0.8, world.spread, 300, texts, chance))
        runs = system(0.8, world.spread, world.seeds[0], texts, chance)
        low, high = seed_interval([one.score for one in runs])
        held += low <= truth <= high
    return held / draws


def sentence_test_levels(world, draws, seed=0):
    """How often bootstrap and randomization find a difference."""
    chance, found = np.random.default_rng(seed), []
    for _ in range(draws):
        first, second = both(world, sentences(world, chance), chance)
        found.append(sentence_tests({"a": first, "b": second}, 300, 300)["a", "b"])
    return np.mean(np.array(found) < 0.05, axis=0)


def grouped_words(chance, groups=50, size=20, seeds=3):
    """Labels of rows, and the word errors of two systems that are equally good on other groups.

    Rows of a group, such as the forms of a lemma, are about as hard, and suit the same system.
    """
    labels = [str(n) for n in np.repeat(np.arange(groups), size)]
    hard = chance.normal(-2.5, 1.5, groups)
    systems = []
    for _ in range(2):
        wrong = np.repeat(1 / (1 + np.exp(-hard - chance.normal(0, 1, groups))), size)
        errors = 100.0 * (chance.random((seeds, len(labels))) < wrong)
        systems.append([SentenceCounts.of_means(["WER"], one[:, None])[0] for one in errors])
    return labels, systems


def grouped_coverage(draws, seed=0, resamples=300):
    """Shares of intervals that hold the true value, of a score and of a difference of 0.

    Returns:
        (2, 2), for groups and for rows.
    """
    truth = mean(grouped_words(np.random.default_rng(7), 30_000, 1)[1][0])
    chance, found = np.random.default_rng(seed), []
    for _ in range(draws):
        labels, systems = grouped_words(chance)
        for units in (labels, None):
            first, second = ([one.by_group(units) for one in runs] for runs in systems)
            ends = (first[0].interval(resamples), truth), (difference(first, second).interval, 0)
            found += [low <= value <= high for (low, high), value in ends]
    return np.reshape(found, (draws, 2, 2)).mean(0)


def told(share, draws):
    """A share in per cent with its binomial standard error."""
    return f"{100 * share:5.1f} ± {100 * (share * (1 - share) / draws) ** 0.5:.1f} %"


def main(draws):
    print(f"{draws} draws; ± is one binomial standard error")
    for spread in (0.0, 0.05, 0.15):
        for seeds in ((2, 2), (3, 3), (3, 5), (5, 5)):
            equal, apart = World(0, spread, seeds), World(0.2, spread, seeds)
            covered, power = difference_coverage(apart, draws)
            _, wrong = difference_coverage(equal, draws)
            print(
                f"spread {spread} seeds {seeds}: difference covered {told(covered, draws)}, "
                f"found {told(power, draws)}; false positives {told(wrong, draws)}",
                flush=True,
            )
        covered, power = difference_coverage(World(0.2, spread), draws, pooled_with=4)
        _, wrong = difference_coverage(World(0, spread), draws, pooled_with=4)
        print(
            f"spread {spread} seeds (3, 3), pooled with 4 systems: difference covered "
            f"{told(covered, draws)}, found {told(power, draws)}; false positives "
            f"{told(wrong, draws)}",
            flush=True,
        )
        if spread:
            covered = seed_coverage(World(0, spread), draws)
            print(f"spread {spread}: mean of 3 seeds covered {told(covered, draws)}", flush=True)
        for seeds in ((1, 1), (3, 3)):
            bootstrap, randomization = sentence_test_levels(World(0, spread, seeds), draws)
            print(
                f"spread {spread} seeds {seeds}, false positives over sentences: "
                f"bootstrap {told(bootstrap, draws)}, randomization {told(randomization, draws)}",
                flush=True,
            )

    for unit, shares in zip(("groups", "rows"), grouped_coverage(draws), strict=True):
        score, gap = (told(share, draws) for share in shares)
        print(f"50 groups of 20 rows, over {unit}: score covered {score}, difference {gap}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
