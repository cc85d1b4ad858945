"""Noise on training pairs is drawn by seed, epoch and row, within the plan of batches."""

import numpy as np
import pytest
import torch

from seqattn.data.module import Seq2SeqData
from seqattn.data.options import LoaderOptions
from seqattn.data.sources import ParallelText
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.extras.noise.noise import Noise
from seqattn.settings.nodes import build as build_node
from seqattn.tokens import PAD
from tests.cli.small import composed, pairs, refused_before_work
from tests.data.source_helpers import write_text
from tests.data.test_subword_sampling import batches_of, rows_of

PAIRS = [(source.capitalize(), target) for source, target in pairs()] * 3
MANY = Noise(upper=0.2, title=0.2, typos=0.2, end_punctuation=0.3, copied=0.1, tags=0.2)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for split, rows in (("train", PAIRS), ("val", PAIRS[:7])):
        write_text(folder, split, rows)
    words = [min(len(source.split()), len(target.split())) for source, target in PAIRS]
    lines = (" ".join(f"{n}-{n}" for n in range(count)) for count in words)
    (folder / "links").write_text("".join(f"{line}\n" for line in lines))
    return folder


def build(corpus, noise=MANY, seed=3, links=None, config=None, learnt=None, **options):
    options = LoaderOptions(**{"max_tokens": 400, "max_length": 80, **options})
    source = ParallelText(str(corpus), "en", "de")
    config = config or TokenizerConfig("bpe", vocab_size=400, byte_fallback=True)
    kind, more = Seq2SeqData, {}
    if links:
        kind = pytest.importorskip("seqattn.extras.align.guided_data").LinkedData
        more = {"links": {"train": ("links", str(corpus / links))}}
    return kind(
        source, config, options, str(corpus / "cache"), seed=seed,
        join=noise and noise.rows(source, seed), learnt=learnt, **more,
    )  # fmt: skip


def test_without_rates_nothing_is_wrapped(corpus):
    assert Noise().rows(ParallelText(str(corpus), "en", "de"), 3) is None


def test_a_vocabulary_is_learned_from_texts_of_which_some_are_in_capitals(corpus):
    sides = [[*texts] for texts in zip(*PAIRS)]
    noise = Noise(upper=0.3, typos=1, end_punctuation=1, copied=1)
    learnt = noise.learnt(*sides)
    for texts, clean in zip(learnt, sides, strict=True):
        assert [*texts] == [*texts]
        changed = [(new, old) for new, old in zip(texts, clean, strict=True) if new != old]
        assert all(new == old.upper() for new, old in changed)
        assert 0.2 < len(changed) / len(clean) < 0.4
    assert Noise(typos=1).learnt(*sides) == tuple(sides)
    capitals = [text.upper() for text in sides[0]]
    tokens = [
        sum(map(len, build(corpus, noise, learnt=more).tokenizer.encode_source(capitals)))
        for more in (None, noise.learnt)
    ]
    assert tokens[1] < 0.9 * tokens[0]


@pytest.mark.parametrize("options", [{}, {"subword_sampling": 0.2}])
def test_a_pair_depends_on_seed_epoch_and_row_alone(corpus, options):
    data = build(corpus, **options)
    expected = [rows_of(data.loader("train"), epoch) for epoch in range(3)]
    clean = [rows_of(build(corpus, None, **options).loader("train"), epoch) for epoch in range(3)]
    assert expected[0].keys() == clean[0].keys()
    for noisy, plain in zip(expected, clean):
        changed = sum(noisy[row] != plain[row] for row in noisy)
        assert 90 < changed < 160
    assert sum(expected[1][row] != expected[2][row] for row in expected[1]) > 90
    for changes in ({"num_workers": 1}, {"max_tokens": 160}):
        other = build(corpus, **changes, **options)
        assert rows_of(other.loader("train"), 1) == expected[1]
    single = data.split("train")
    single.epoch = 2
    for row in range(0, len(PAIRS), 7):
        batch = single.batch([row])
        sides = batch.source[0], batch.target_output[0]
        assert tuple(tuple(ids[ids != PAD].tolist()) for ids in sides) == expected[2][row]
    assert rows_of(build(corpus, seed=4, **options).loader("train"), 1) != expected[1]


def test_ranks_and_resumed_runs_share_the_batches_of_an_epoch(corpus):
    data = build(corpus)
    order = {"seed": 3, "step_batches": 2}
    every = [[*sampler_of(data, 1, **order)] for _ in range(2)]
    assert every[0] == every[1]
    ranks = [[*sampler_of(data, 1, rank=rank, world=2, **order)] for rank in range(2)]
    assert [batch for step in zip(*ranks) for batch in step] == every[0]
    resumed = sampler_of(data, 1, **order)
    resumed.start_batch = 3
    iter(resumed)  # loaders with workers make an iterator that they do not use
    assert [*resumed] == every[0][3:]
    assert [*resumed] == every[0]
    for epoch in range(9):
        sampler = sampler_of(data, epoch, **order)
        batches = [*sampler]
        assert len(batches) == len(sampler) == len(every[0])
        numbers = [row for batch in batches for row in batch]
        assert len({*numbers}) == len(numbers) > 0.95 * len(PAIRS)


def sampler_of(data, epoch, **order):
    sampler = data.split("train").sampler(data.options, shuffle=True, **order)
    sampler.set_epoch(epoch)
    return sampler


def test_batches_keep_to_their_limits(corpus):
    data = build(corpus)
    loader, sizes = data.loader("train"), []
    for epoch in range(4):
        loader.set_epoch(epoch)
        for batch in batches_of(loader):
            sizes += [batch.source.numel(), batch.target_output.numel()]
    assert 200 < max(sizes) <= 400
    assert max(data.longest) <= 80


def test_pairs_that_do_not_fit_stay_clean_and_are_told(corpus):
    data = build(corpus, Noise(upper=1), max_length=26)
    [line] = [line for line in data_lines(data) if "train" in line]
    assert "of the noise left out, as pairs would be longer than planned" in line
    plain = rows_of(build(corpus, None, max_length=26).loader("train"))
    noisy = rows_of(data.loader("train"))
    assert {*plain} == {*noisy}
    changed = {row for row in plain if plain[row] != noisy[row]}
    assert 0 < len(changed) < len(plain)
    assert all(len(side) <= 26 for row in changed for side in noisy[row])
    assert all(a != b for row in changed for a, b in zip(plain[row], noisy[row]))  # both or none


def data_lines(data):
    data.load()
    return data.notices()


def test_characters_that_the_vocabulary_lacks_are_not_trained_on(corpus):
    data = build(corpus, Noise(upper=1), config=TokenizerConfig("bpe", vocab_size=90))
    [line] = [line for line in data_lines(data) if "train" in line]
    assert "100.0% of the noise left out, as the vocabulary lacks characters" in line


def test_case_of_a_vocabulary_that_folds_it_is_no_noise(corpus):
    config = TokenizerConfig("bpe", vocab_size=90, normalization="nmt_nfkc_cf")
    data = build(corpus, Noise(upper=1), config=config)
    [line] = [line for line in data_lines(data) if "train" in line]
    assert "upper does not act on the source and target, where case makes no difference" in line


def test_links_are_those_of_the_noisy_words(corpus):
    data = build(corpus, links="links")
    rows, plain = data.split("train"), build(corpus, None, links="links").split("train")
    places, names = range(len(rows)), data.tokenizer.source_pieces
    changed = added = 0
    for epoch in range(2):
        rows.epoch = epoch
        kinds = rows._kinds(np.arange(len(rows)), epoch)
        draws = rows._draws(np.arange(len(rows)), epoch, kinds)
        batch, clean = rows.batch(places), plain.batch(places)
        for n in places:
            links = linked_words(data, batch, n)
            if not torch.equal(width(batch.source[n]), width(clean.source[n])) and n in draws:
                pair, changed = draws[n].pair, changed + 1
                assert links == {*pair.links}
                added += len(links) > PAIRS[n][0].count(" ") + 1
            elif torch.equal(width(batch.target_output[n]), width(clean.target_output[n])):
                assert links == linked_words(data, clean, n)
    assert changed > 100
    assert added > 10
    assert len(names(range(9))) == 9


def width(ids):
    return ids[ids != PAD]


def linked_words(data, batch, n):
    """Links between words of spelled pieces, from those between pieces."""
    words = []
    for ids, decode in (
        (batch.source[n], data.tokenizer.source_pieces),
        (batch.target_output[n], data.tokenizer.target_pieces),
    ):
        numbers, number = [], -1
        for piece in decode(ids.tolist()):
            number += piece.startswith("▁")
            numbers.append(number)
        words.append(numbers)
    return {(words[0][s], words[1][t]) for t, s in batch.links[n].nonzero().tolist()}


def test_data_that_noise_cannot_change_is_refused(corpus):
    source = ParallelText(str(corpus), "en", "de")
    source.documents = "lines"
    with pytest.raises(UserError, match=r"noise and data.documents are mutually exclusive"):
        MANY.rows(source, 1)
    source = ParallelText(str(corpus), "en", "de")
    source.redraws = True
    with pytest.raises(UserError, match="stay as they are, unlike those of ParallelText"):
        MANY.rows(source, 1)
    for words, part in (
        ("noise.upper=1.5", "noise.upper must be a number from 0 to 1"),
        ("noise.typos=-0.1", "noise.typos must be a number from 0 to 1"),
        ("noise.tags=nan", "noise.tags must be a"),
        ("noise.upper=often", "noise.upper must be a number"),
        ("noise.lower=0.1", "unknown key noise.lower"),
    ):
        assert part in refused_before_work("noise=robust", f"++{words}"), words


def test_kinds_can_be_chosen_in_a_list():
    settings, _ = composed("train", "noise=[upper,typos]", "noise.typos=0.3")
    assert build_node(settings["noise"]) == Noise(upper=0.07, typos=0.3)
