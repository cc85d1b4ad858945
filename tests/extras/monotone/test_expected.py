"""Monotonic attention against plain loops; the laws of recurrent attention are in tests/models."""

from copy import deepcopy

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from seqattn.bundle.weights import load_model
from seqattn.extras.monotone import expected as kernels
from seqattn.extras.monotone.expected import MoChA, Monotonic, in_chunks, reached
from seqattn.settings.assembly import Architecture, Vocabularies
from seqattn.settings.choices import choices
from seqattn.training.checkpoint_files import read
from seqattn.training.optim import adamw
from seqattn.training.parameter_groups import regrouped
from tests.builders import padded, randomised
from tests.models.recurrents import attended, make_recurrent, queries_and_memory

B, T, S, Q, M = 2, 5, 6, 6, 3
REAL = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0]], dtype=torch.bool)
KINDS = {"monotonic": (Monotonic, {}), "mocha": (MoChA, {"chunk": 3})}


def make(name, **options):
    kind, more = KINDS[name]
    torch.manual_seed(0)
    alignment = kind(Q, M, dim=4, noise=0.0, **{**more, **options}).double()
    return randomised(alignment, scale=0.9)


def deciding(name):
    """In eval mode, with energies on both sides of 0."""
    alignment = make(name).eval()
    with torch.no_grad():
        alignment.energy.gain.fill_(2.0)
        alignment.energy.offset.zero_()
    return alignment


def energy(score, h, s, offset=True):
    v = score.v.weight[0]
    inside = torch.tanh(score.key.weight @ h + score.query.weight @ s + getattr(score, "bias", 0))
    return score.gain * v @ inside / v.norm() + score.offset if offset else v @ inside


def chunks(alignment, row, places, query, memory, alpha):
    """The chunks that end at each place, by single numbers; alpha itself without chunks."""
    if not hasattr(alignment, "chunk"):
        return alpha
    u = [energy(alignment.chunk_energy, memory[row, i], query, offset=False).exp() for i in places]
    beta = [torch.zeros(()).double() for _ in places]
    for k in range(len(places)):
        inside = range(max(0, k - alignment.chunk + 1), k + 1)
        for j in inside:
            beta[j] = beta[j] + alpha[k] * u[j] / sum(u[i] for i in inside)
    return beta


def expected_loops(alignment, query, memory):
    """Expected weights by the double sum over where a step was and what it passes."""
    rows = torch.zeros(B, T, S, dtype=torch.float64)
    for row in range(B):
        places = [i for i in range(S) if REAL[row, i]]
        alpha = [1.0, *[0.0] * (len(places) - 1)]
        for t in range(T):
            p = [energy(alignment.energy, memory[row, i], query[row, t]).sigmoid() for i in places]
            new = []
            for j in range(len(places)):
                total = torch.zeros(()).double()
                for k in range(j + 1):
                    passed = alpha[k]
                    for i in range(k, j):
                        passed = passed * (1 - p[i])
                    total = total + passed
                new.append(p[j] * total)
            alpha = new
            beta = chunks(alignment, row, places, query[row, t], memory, alpha)
            for place, number in zip(places, beta):
                rows[row, t, place] = number
    return rows


@pytest.mark.parametrize("name", KINDS)
def test_training_weights_and_gradients_equal_the_sums_written_out(name):
    alignment, (query, memory) = make(name).train(), queries_and_memory(T, S, Q, M)
    pair = attended(alignment, query, memory, REAL)[0], expected_loops(alignment, query, memory)
    upstream, leaves = torch.randn(B, T, S).double(), [query, memory, *alignment.parameters()]
    found = [(one, *torch.autograd.grad((one * upstream).sum(), leaves)) for one in pair]
    for one, other in zip(*found, strict=True):
        assert other.abs().max() > 0
        torch.testing.assert_close(one, other)
    assert (found[0][0].sum(dim=2) <= 1 + 1e-9).all()


@pytest.mark.parametrize("name", KINDS)
def test_in_eval_mode_it_stops_where_a_search_from_the_last_stop_does(name):
    alignment, (query, memory) = deciding(name), queries_and_memory(T, S, Q, M)
    weights, _, pasts = attended(alignment, query, memory, REAL)
    stops = torch.stack([past[0] for past in pasts], dim=1)
    seen = set()
    for row in range(B):
        places = [i for i in range(S) if REAL[row, i]]
        last = 0
        for t in range(T):
            alpha = [torch.zeros(()).double() for _ in places]
            for j in range(last, len(places)):
                if energy(alignment.energy, memory[row, places[j]], query[row, t]) > 0:
                    alpha[j] = torch.ones(()).double()
                    break
            last = next((j for j, one in enumerate(alpha) if one), len(places))
            seen.add(last)
            expected = torch.zeros(S, dtype=torch.float64)
            expected[places] = torch.stack(
                list(chunks(alignment, row, places, query[row, t], memory, alpha))
            )
            torch.testing.assert_close(weights[row, t], expected)
            assert set(stops[row, t].tolist()) <= {0.0, 1.0}
    assert len(seen) > 1


@pytest.mark.parametrize("name", KINDS)
def test_training_equals_the_hard_choice_where_every_probability_is_0_or_1(name):
    alignment, (query, memory) = make(name), queries_and_memory(T, S, Q, M)
    with torch.no_grad():
        alignment.energy.gain.mul_(1e4)
    trained, hard = (attended(alignment.train(on), query, memory, REAL)[0] for on in (True, False))
    torch.testing.assert_close(trained, hard)


def test_a_chunk_of_one_is_monotonic_attention():
    query, memory = queries_and_memory(T, S, Q, M)
    wide, narrow = make("mocha", chunk=1).train(), make("monotonic").train()
    narrow.load_state_dict(
        {k: v for k, v in wide.state_dict().items() if not k.startswith("chunk")}
    )
    torch.testing.assert_close(*(attended(one, query, memory, REAL)[0] for one in (wide, narrow)))


@pytest.mark.parametrize("name", KINDS)
def test_in_eval_mode_it_never_goes_back_and_past_the_end_it_stays_there(name):
    alignment, rows = deciding(name), 60
    real = REAL[:1].expand(rows, S)
    query, memory = torch.randn(rows, T, Q).double(), torch.randn(rows, S, M).double()
    pasts = attended(alignment, query, memory, real)[2]
    stops = torch.stack([past[0] for past in pasts], dim=1)  # (rows, T, S)
    place = torch.where(stops.sum(dim=2) == 0, S, stops.argmax(dim=2))
    moves = place[:, 1:] - place[:, :-1]
    assert (moves >= 0).all()
    assert {0, 1, 2} <= set(moves.flatten().tolist())
    assert (place[:, -1] == S).any()


@pytest.mark.parametrize("size", [30.0, 1e4])
def test_it_is_precise_and_finite_where_probabilities_are_near_0_and_1(size):
    torch.manual_seed(0)
    length = 300
    energies = (torch.randn(2, length).double() * size).requires_grad_()
    past = torch.softmax(torch.randn(2, length), dim=-1).double()
    stop = energies.sigmoid()
    expected = [past[:, 0]]
    for j in range(1, length):
        expected.append((1 - stop[:, j - 1]) * expected[-1] + past[:, j])
    narrow = energies.detach().float().requires_grad_()
    found = reached(past.float(), 1 - narrow.sigmoid())
    torch.testing.assert_close(found.double(), torch.stack(expected, dim=1), atol=1e-6, rtol=1e-4)
    (found * narrow.sigmoid()).sum().backward()
    assert narrow.grad.isfinite().all()


def test_chunks_are_finite_and_sum_to_their_choice_at_any_energy():
    energies = torch.tensor([[-1e4, 1e4, -1e4, 0.0, 3e4, -3e4]], requires_grad=True)
    chosen = torch.tensor([[0.1, 0.2, 0.3, 0.1, 0.1, 0.0]])
    real = torch.tensor([[True] * 5 + [False]])
    for width in (1, 3, 100):
        weights = in_chunks(chosen, energies, real, width)
        torch.testing.assert_close(weights.sum(), chosen.sum())
        weights.square().sum().backward()
        assert energies.grad.isfinite().all()


def test_noise_moves_training_alone():
    alignment, (query, memory) = make("monotonic"), queries_and_memory(T, S, Q, M)
    alignment.noise = 1.0
    for training in (True, False):
        alignment.train(training)
        one, other = (attended(alignment, query, memory, REAL)[0] for _ in range(2))
        assert torch.equal(one, other) != training


def test_more_padding_on_either_side_moves_no_expected_weight():
    alignment, (query, memory) = make("mocha").train(), queries_and_memory(T, S, Q, M)
    blank, none = torch.randn(B, 3, M).double(), torch.zeros(B, 3, dtype=torch.bool)
    wider = torch.cat((blank, memory, blank), dim=1), torch.cat((none, REAL, none), dim=1)
    weights = attended(alignment, query, *wider)[0]
    torch.testing.assert_close(weights[..., 3:-3], attended(alignment, query, memory, REAL)[0])
    assert (weights[..., :3] == 0).all()


def test_training_through_a_model_step_by_step_equals_a_complete_target():
    model = make_recurrent("mocha").train()
    model.decoder.cross_attention.noise = 0.0
    source, target = padded([[4, 5, 6, 3], [9, 3]]), torch.randint(4, 11, (2, 5))
    expected = model(source, target)
    state = model.start(model.encode(source))
    steps = [model.decode(token, state) for token in target.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), expected, atol=1e-5, rtol=1e-5)


class ScalarEnergy(kernels.Energy):
    """As it was, and as a kernel of a person's own may be."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.gain = nn.Parameter(self.gain.detach()[0])
        self.offset = nn.Parameter(self.offset.detach()[0])


@pytest.mark.parametrize("later", [kernels.Energy, ScalarEnergy])
def test_scalars_of_a_bundle_are_read(tmp_path, monkeypatch, later):
    names = {"model": "rnn", "attention": "monotonic"}
    architecture = Architecture.of({group: choices(group)[name] for group, name in names.items()})
    sizes = Vocabularies(9, 9, True)
    monkeypatch.setattr(kernels, "Energy", ScalarEnergy)
    earlier = architecture.build(sizes).state_dict()
    save_file({name: weight.clone() for name, weight in earlier.items()}, tmp_path / "model")
    monkeypatch.setattr(kernels, "Energy", later)
    again = load_model(tmp_path / "model", architecture, sizes).state_dict()
    gains = [weight for name, weight in again.items() if name.endswith("energy.gain")]
    assert [weight.dim() for weight in gains] == [int(later is not ScalarEnergy)]
    for name, weight in earlier.items():
        assert torch.equal(again[name].reshape(weight.shape), weight), name


def test_scalars_of_a_run_and_their_moments_are_resumed(tmp_path):
    energy, earlier = kernels.Energy(4, 3, 5), ScalarEnergy(4, 3, 5)
    optimizer = adamw(earlier, 0.1)
    sum(weight.sum() for weight in earlier.parameters()).backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.save({"state_dict": earlier.state_dict()}, tmp_path / "run.ckpt")
    energy.load_state_dict(read(tmp_path / "run.ckpt")["state_dict"])
    again = adamw(energy, 0.1)
    again.load_state_dict(regrouped(deepcopy(optimizer.state_dict()), energy, again))
    for one, model in ((optimizer, earlier), (again, energy)):
        sum(weight.square().sum() for weight in model.parameters()).backward()
        one.step()
    for new, old in zip(energy.parameters(), earlier.parameters(), strict=True):
        assert torch.equal(new.reshape(old.shape), old)
