"""Sampling against the distribution it must draw from, with fixed seeds and stated bounds."""

import collections
from dataclasses import replace

import pytest
import torch

from seqattn import ops
from seqattn.generation import Generator, LengthLimit, Sampling, sampling
from seqattn.generation.sampling import _nucleus, _nucleus_unsorted
from seqattn.ops.gpu import running_sums
from seqattn.tokens import EOS, PAD
from tests.builders import POSITIONS, make_transformer
from tests.generation.table_model import TableModel
from tests.operations import operations

LOGITS = [8.0, 0.1, -0.7, 0.4, 1.5, 0.9, -1.2]  # padding's would be the largest
DRAWS = 4000
ONE = LengthLimit(ratio=0.0, extra=1)


@pytest.fixture(params=["on a CPU", "as on a GPU"])
def device(request, monkeypatch):
    if request.param == "as on a GPU":
        monkeypatch.setattr(ops, "at_hand", lambda x: False)
        monkeypatch.setattr(sampling, "_TOP", 3)


def drawn(**options):
    """How often each first token is drawn; the end counts as itself."""
    model = TableModel(len(LOGITS), lambda source, prefix: LOGITS)
    search = Sampling(ONE, **options)
    found = Generator(model, replace(search, batch_size=0)).generate([[4, 3]] * DRAWS)
    return collections.Counter(best.ids[0] if best.ids else EOS for (best,) in found)


def distribution(temperature=1.0, allowed=range(1, 7)):
    scores = torch.tensor(LOGITS) / temperature
    scores[[token for token in range(7) if token not in allowed]] = -torch.inf
    return scores.softmax(0).tolist()


def chi_square(counts, probabilities):
    expected = {token: p * DRAWS for token, p in enumerate(probabilities) if p}
    assert set(counts) <= set(expected)
    return sum((counts[token] - e) ** 2 / e for token, e in expected.items())


@pytest.mark.parametrize("seed", [0, 1, 12345])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_match_the_distribution(seed, temperature):
    counts = drawn(seed=seed, temperature=temperature)
    assert PAD not in counts
    assert chi_square(counts, distribution(temperature)) < 25.7  # 5 degrees, 1 in 10 000


@pytest.mark.parametrize(
    ("top_k", "allowed"),
    [(1, {4}), (2, {4, 5}), (3, {4, 5, 3}), (6, range(1, 7)), (99, range(1, 7))],
)
def test_top_k_draws_from_the_k_likeliest_in_their_proportions(top_k, allowed):
    counts = drawn(top_k=top_k)
    assert set(counts) == set(allowed)
    assert chi_square(counts, distribution(allowed=allowed)) < 25.7


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("top_p", [0.05, 0.4, 0.5, 0.7, 0.85, 0.99, 1.0])
def test_top_p_draws_from_the_fewest_likeliest_that_reach_it(top_p):
    ranked = sorted(enumerate(distribution()), key=lambda pair: -pair[1])
    allowed, total = set(), 0.0
    for token, probability in ranked:
        if total < top_p and probability:
            allowed.add(token)
            total += probability
    counts = drawn(top_p=top_p)
    assert set(counts) == allowed
    assert chi_square(counts, distribution(allowed=allowed)) < 25.7


@pytest.mark.usefixtures("device")
def test_top_p_is_of_what_top_k_leaves_and_of_the_tempered_distribution():
    share = distribution(0.5, {4, 5, 3})
    assert share[4] < 0.75 < share[4] + share[5] < 0.95
    assert set(drawn(temperature=0.5, top_k=3, top_p=0.75)) == {4, 5}
    assert set(drawn(temperature=0.5, top_k=3, top_p=0.95)) == {4, 5, 3}


def test_the_log_probability_is_the_models_own_before_any_cut():
    model = TableModel(len(LOGITS), lambda source, prefix: LOGITS)
    search = Sampling(ONE, temperature=0.3, top_k=1)
    ((best,),) = Generator(model, search).generate([[4, 3]])
    expected = torch.tensor(LOGITS).log_softmax(0)[4].item()
    assert best.log_probability == pytest.approx(expected, abs=1e-5)


def test_the_same_seed_gives_the_same_and_another_seed_another():
    model = make_transformer(position=POSITIONS["rope"])
    sources = [[4, 5, 3], [5, 3], [9, 9, 3]]

    def run(seed):
        return Generator(model, Sampling(LengthLimit(1, 8), n_best=2, seed=seed)).generate(sources)

    torch.rand(7)  # a global generator elsewhere changes nothing
    assert run(1) == run(1)
    assert run(1) != run(2)


def test_the_next_seed_draws_nothing_that_another_place_drew():
    def found(seed):
        search = Sampling(LengthLimit(0, 6), seed=seed)
        return {best.ids for (best,) in Generator(TableModel(30), search).generate([[4, 3]] * 20)}

    assert len(found(0) & found(1)) < 3


def test_equal_sources_at_different_places_draw_differently():
    found = Generator(TableModel(30), Sampling(LengthLimit(0, 6))).generate([[4, 5, 3]] * 20)
    assert len({best.ids for (best,) in found}) > 15


def test_equal_windows_of_a_source_draw_differently():
    generator = Generator(TableModel(30), Sampling(LengthLimit(0, 6), n_best=20))
    window = [4, 5, 3]
    one, several = (generator.generate_windows([[window] * count])[0] for count in (1, 30))
    assert several[0].score > one[0].score + 0.1  # of 600 draws, and not of the same 20


@pytest.mark.parametrize("temperature", [1e-40, 1e-300])
def test_next_to_no_temperature_takes_the_likeliest(temperature):
    assert drawn(temperature=temperature) == {4: DRAWS}


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("top_p", [1e-40, 1e-300])
def test_the_least_nucleus_is_the_likeliest(top_p):
    assert drawn(top_p=top_p) == {4: DRAWS}


def test_samples_of_a_source_are_distinct_sorted_and_scored_as_a_full_pass_scores_them():
    model = make_transformer(position=POSITIONS["learned"])
    search = Sampling(LengthLimit(0, 2), temperature=1.5, n_best=40, seed=5)
    (found,) = Generator(model, search).generate([[4, 5, 3]])
    assert 1 < len(found) < 40
    assert len({hypothesis.ids for hypothesis in found}) == len(found)
    scores = [hypothesis.score for hypothesis in found]
    assert scores == sorted(scores, reverse=True)
    for hypothesis in found:
        ended = [*hypothesis.ids, EOS][:2]
        with torch.inference_mode():
            logits = model(torch.tensor([[4, 5, 3]]), torch.tensor([[2, *ended[:-1]]]))[0]
        total = logits.log_softmax(-1).gather(1, torch.tensor(ended)[:, None]).sum().item()
        assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)
        assert hypothesis.score == pytest.approx(total / len(ended), abs=1e-4)


@pytest.mark.parametrize("spreads", [(9.0, 4.0), (9.0, 0.5, 4.0), (0.1, 0.2)])
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_nucleus_is_that_of_the_whole_vocabulary_sorted(spreads, share):
    logits = torch.randn(3, len(spreads), 1000, generator=torch.Generator().manual_seed(7))
    rows = (logits * torch.tensor(spreads)[:, None]).flatten(0, 1)
    probabilities = rows.softmax(dim=-1, dtype=torch.float64)  # sums whose order does not tell
    ordered, order = probabilities.sort(dim=-1, descending=True)
    kept = ordered.cumsum(dim=-1) - ordered < share
    found, tokens = _nucleus(probabilities, share)
    for row in range(len(probabilities)):
        of = found[row] > 0
        assert tokens[row][of].tolist() == order[row][kept[row]].tolist()
        assert found[row][of].tolist() == ordered[row][kept[row]].tolist()


@pytest.mark.parametrize("decimals", [None, 1])  # 1: many ties
@pytest.mark.parametrize("spread", [0.2, 3.0, 9.0])
@pytest.mark.parametrize("share", [1e-30, 0.3, 0.9, 0.999])
def test_a_nucleus_found_without_sorting_has_the_same_tokens_and_all_ties(decimals, spread, share):
    rows = spread * torch.randn(6, 1000, generator=torch.Generator().manual_seed(7))
    rows = rows if decimals is None else rows.round(decimals=decimals)
    probabilities = rows.softmax(dim=-1).double()  # sums whose order does not tell
    sorted_form, _ = _nucleus(probabilities, share)
    least = sorted_form.where(sorted_form > 0, 1.0).amin(dim=-1, keepdim=True)
    found = _nucleus_unsorted(probabilities, share)
    assert torch.equal(found, probabilities.masked_fill(probabilities < least, 0.0))


@pytest.mark.parametrize("options", [{}, {"top_k": 20}, {"top_k": 200}], ids=str)
def test_no_nucleus_waits_for_a_gpu(options):
    scores, uniform = torch.empty(5, 300, device="meta"), torch.empty(5, device="meta")
    with operations():
        _, tokens = Sampling(top_p=0.9, **options)._draw(scores, uniform)
    assert tokens.shape == (5,)


class OnGPU(torch.Tensor):
    """Numbers of a CPU that say they are a GPU's, which adds in no order of its own."""

    is_cuda = True

    def cumsum(self, dim):
        raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation")

    def cpu(self):
        return self.as_subclass(torch.Tensor)


def test_running_sums_have_one_order_where_that_is_asked_for():
    x = torch.rand(2, 5)
    assert torch.equal(running_sums(x), x.cumsum(-1))
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(running_sums(x.as_subclass(OnGPU)), x.cumsum(-1))
    finally:
        torch.use_deterministic_algorithms(False)
