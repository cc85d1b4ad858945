"""Pieces drawn by our own random numbers: their distribution, and what sentencepiece gives."""

import itertools
import math
import random
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from seqattn.data.segmentation import Segmentation
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.tokens import EOS, UNK

DRAWS = 20_000
MERGES = ["ab", "bc", "abc", "ca", "abab", "cab"]  # the best first
PIECES = {"a": -2.0, "b": -1.5, "ab": -2.5, "ba": -2.2, "aba": -3.0}
TEXTS = [
    "the cat sat on the mat", "a cat and a dog", "dogs and cats sat", "on a mat a dog sat",
    "The Dog sat", "caterpillars on mats", "two  spaces", "ends here ",
]  # fmt: skip
STRANGE = [
    "", " ", "cat ☃☃ dog☃", "zebra ¿qué? ☃", "a▁b ▅", "line\nbreak \n\n dog", "mat" * 30, "①ﬁ",
    "<s> </s> <0x41> ⁇", "\tcat",
]  # fmt: skip


def segmentation(scores, alpha):
    """By pieces of such scores, as if a model had them."""
    pieces, never = list(scores), lambda n: False
    processor = SimpleNamespace(
        is_unknown=never, is_control=never, is_byte=never, is_unused=never,
        get_piece_size=lambda: len(pieces), id_to_piece=pieces.__getitem__,
        get_score=lambda n: scores[pieces[n]],
    )  # fmt: skip
    return Segmentation(processor, alpha)


def assert_drawn(segmentation, word, wanted):
    """That the shares of DRAWS draws are those of `wanted`, within 4.5 standard deviations."""
    draws = random.Random(1)
    found = Counter(tuple(segmentation.split_word(word, draws)) for _ in range(DRAWS))
    assert found.keys() <= wanted.keys()
    for pieces, share in wanted.items():
        margin = 4.5 * math.sqrt(share * (1 - share) / DRAWS) + 1e-9
        assert abs(found[pieces] / DRAWS - share) < margin


def test_bpe_dropout_draws_as_its_algorithm_does():
    """Every subset of the merges that may be left out at a step, written out."""
    scores = dict.fromkeys("abc", 0.0) | {piece: -float(n) for n, piece in enumerate(MERGES)}
    shares = Counter()

    def go(parts, share):
        pairs = [(-scores[a + b], n) for n, (a, b) in enumerate(itertools.pairwise(parts))
                 if a + b in scores]  # fmt: skip
        for kept in itertools.product([True, False], repeat=len(pairs)):
            part = share * math.prod(0.7 if keep else 0.3 for keep in kept)
            left = sorted(itertools.compress(pairs, kept))
            if not left:
                shares[parts] += part
                continue
            at = left[0][1]
            go((*parts[:at], parts[at] + parts[at + 1], *parts[at + 2 :]), part)

    go(tuple("abcab"), 1.0)
    assert len(shares) > 8
    assert math.isclose(sum(shares.values()), 1.0)
    assert_drawn(segmentation(scores, 0.3), "abcab", shares)


@pytest.mark.parametrize("alpha", [0.3, 0.9])
def test_unigram_segmentations_are_drawn_by_their_probability(alpha):
    shares = {}
    for cuts in itertools.product([True, False], repeat=4):
        places = [0, *(n for n, cut in enumerate(cuts, 1) if cut), 5]
        parts = tuple("ababa"[start:end] for start, end in itertools.pairwise(places))
        if all(part in PIECES for part in parts):
            shares[parts] = math.exp(alpha * sum(PIECES[part] for part in parts))
    whole = sum(shares.values())
    wanted = {key: share / whole for key, share in shares.items()}
    assert len(wanted) > 6
    assert_drawn(segmentation(PIECES, alpha), "ababa", wanted)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    def train(**options):
        config = TokenizerConfig(**{"joint": True, **options})
        return train_tokenizer(TEXTS * 3, TEXTS, config, cache)

    cache = tmp_path_factory.mktemp("cache")
    return train


KINDS = {
    "bpe": {"kind": "bpe", "vocab_size": 45},
    "unigram": {"kind": "unigram"},
    "bpe bytes": {"kind": "bpe", "byte_fallback": True, "vocab_size": 300},
    "unigram bytes": {"kind": "unigram", "byte_fallback": True},
    "bpe folded": {"kind": "bpe", "normalization": "nmt_nfkc_cf", "vocab_size": 45},
    "unigram folded": {"kind": "unigram", "normalization": "nmt_nfkc_cf"},
    "documents": {"kind": "unigram", "line_breaks": True, "normalization": "nmt_nfkc_cf"},
    "bpe documents": {"kind": "bpe", "line_breaks": True, "normalization": "nfkc"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_where_nothing_is_left_to_chance_pieces_are_sentencepieces(vocabulary, kind):
    tokenizer = vocabulary(**KINDS[kind])
    side = tokenizer.encode_source.__self__
    # no merge left out; of two segmentations the likelier
    cut = Segmentation(side._processor, 1e-300 if "bpe" in kind else 1e5)
    assert (cut.split_word == cut.bpe_dropout) == ("bpe" in kind)
    texts = [*TEXTS, *STRANGE]
    wanted = tokenizer.encode_source(texts)
    for normalized, ids in zip(side._processor.normalize(side._prepared(texts)[1]), wanted):
        assert [*cut(normalized, random.Random(1)), EOS] == ids
    assert any(UNK in ids for ids in wanted) == ("bytes" not in kind)


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_pieces_say_the_same_text(vocabulary, kind):
    tokenizer, texts = vocabulary(**KINDS[kind]), [*TEXTS, *STRANGE]
    plain = tokenizer.encode_source(texts)
    randoms = [random.Random(f"1 {n}") for n in range(len(texts))]
    drawn = tokenizer.sample_source(texts, 0.3, randoms)
    assert sum(one != other for one, other in zip(plain, drawn)) > len(TEXTS) // 2
    assert tokenizer.decode_target(drawn) == tokenizer.decode_target(plain)


_OTHER = """
import random, sys
from pathlib import Path
from seqattn.data.tokenizer import Tokenizer
tokenizer = Tokenizer.load(Path(sys.argv[1]))
texts = sys.argv[2:]
print(tokenizer.sample_source(texts, 0.3, [random.Random(f"1 {n}") for n in range(8)]))
"""


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_another_process_draws_the_same(vocabulary, kind, tmp_path):
    vocabulary(**KINDS[kind]).save(tmp_path)
    randoms = [random.Random(f"1 {n}") for n in range(8)]
    here = Tokenizer.load(tmp_path).sample_source(TEXTS, 0.3, randoms)
    told = subprocess.run(
        [sys.executable, "-c", _OTHER, tmp_path, *TEXTS], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == str(here)
