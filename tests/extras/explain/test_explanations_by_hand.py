"""Explanations that follow attention, each against its equations written out."""

from contextlib import ExitStack

import networkx
import pytest
import torch

from seqattn.analysis import capture, intervene
from seqattn.extras.explain.explanations import explain
from seqattn.extras.explain.explanations.flow import flows_of
from seqattn.extras.explain.explanations.passes import run_recurrent
from seqattn.extras.explain.explanations.predictions import decoder_input
from seqattn.extras.explain.explanations.relevance import relevances
from seqattn.extras.explain.explanations.rollout import DecoderMixing, Mixing
from tests.builders import heads, make_transformer, random_ids
from tests.models.recurrents import make_recurrent

S, T = 4, 3
SOURCE, TARGET = random_ids(1, S), random_ids(1, T, seed=5)
NAMES = [
    "encoder.layers.0.self_attention",
    "decoder.layers.0.self_attention",
    "decoder.layers.0.cross_attention",
]
CLOSE = {"atol": 1e-10, "rtol": 1e-8}
OF_WHOLE_NUMBERS = {"atol": 1e-8, "rtol": 0}  # capacities in 2^-30


def model_of(num_heads=1, layers=(1, 1), **config):
    attention = heads(num_heads, num_heads)
    return make_transformer(attention, layers=layers, cross=attention, **config).double()


def run(model):
    return model(SOURCE, decoder_input(TARGET))


@torch.no_grad()
def weights_of(model):
    """The weights (H, T, S) by name, of the one sentence."""
    with capture(model) as maps:
        run(model)
    return {name: calls[0][0] for name, calls in maps.items()}


def over_sum(row):
    return [x / sum(row) for x in row]


def explained(model, method):
    return tuple(part[0] for part in explain(model, SOURCE, TARGET, method))


def test_attention_is_the_mean_over_heads_and_layers():
    model = model_of(4, (1, 2))
    weights = weights_of(model)
    expected = sum(weights[f"decoder.layers.{n}.cross_attention"].mean(dim=0) for n in (0, 1)) / 2
    torch.testing.assert_close(explained(model, "attention")[0], expected, **CLOSE)


@torch.no_grad()
def test_value_norm_is_the_length_of_what_attention_to_one_key_alone_gives():
    model, name = model_of(4), NAMES[2]
    attention, lengths = model.get_submodule(name), []
    for key in range(S):

        def alone(weights, visible, key=key):
            return weights * (torch.arange(S) == key)

        given = []
        keep = attention.register_forward_hook(lambda *call, given=given: given.append(call[2][0]))
        with keep, intervene(model, {name: alone}):
            run(model)
        lengths.append((given[0][0] - attention.output.bias).norm(dim=1))
    rows = [over_sum(row) for row in torch.stack(lengths, dim=1).tolist()]
    expected = torch.tensor(rows, dtype=torch.float64)
    torch.testing.assert_close(explained(model, "value_norm")[0], expected, **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bahdanau", "luong_general"])
def test_value_norm_of_an_alignment_is_the_length_of_what_one_annotation_moves_the_read_out(name):
    model = make_recurrent(name)
    aligned, readout = run_recurrent(model, SOURCE, TARGET), model.decoder.readout
    state, word = torch.randn(14), torch.randn(10)
    found = explained(model, "value_norm")[0]
    for t in range(T):
        contexts = aligned.weights[0, t][:, None] * aligned.annotations[0]
        lengths = []
        for context in contexts:
            both = [
                readout.merge(readout.merge_input(state, x, word)) for x in (context, 0 * context)
            ]
            lengths.append(float((both[0] - both[1]).norm()))
        torch.testing.assert_close(found[t], torch.tensor(over_sum(lengths)))


def test_the_decoder_reads_the_begin_and_then_all_but_the_last():
    assert decoder_input(torch.tensor([[5, 6, 3], [7, 3, 0]])).tolist() == [[2, 5, 6], [2, 7, 3]]


def walks(model):
    """The probabilities (T, S) and (T, T) of where a walk down two layers a side ends.

    At each attention half of the walks stay with the residual connection.
    """
    weights = {name: part.mean(dim=0).tolist() for name, part in weights_of(model).items()}
    source, prefix = torch.zeros(T, S).double(), torch.zeros(T, T).double()

    def step(stack, layer, row, share, start):
        if layer < 0:
            (source if stack == "encoder" else prefix)[start, row] += share
            return
        name = f"{stack}.layers.{layer}"
        branches = [(row, share / 2)]
        if stack == "decoder":
            for key, weight in enumerate(weights[f"{name}.cross_attention"][row]):
                step("encoder", 1, key, share / 2 * weight, start)
        else:
            branches = [(row, share)]
        for place, part in branches:
            step(stack, layer - 1, place, part / 2, start)
            for key, weight in enumerate(weights[f"{name}.self_attention"][place]):
                step(stack, layer - 1, key, part / 2 * weight, start)

    for t in range(T):
        step("decoder", 1, t, 1.0, t)
    return source, prefix


def test_rollout_is_where_random_walks_down_the_layers_end():
    model = model_of(2, (2, 2))
    source, prefix, rest = explained(model, "rollout")
    expected = walks(model)
    torch.testing.assert_close(source, expected[0], **CLOSE)
    torch.testing.assert_close(prefix, expected[1], **CLOSE)
    torch.testing.assert_close(source.sum(1) + prefix.sum(1), torch.ones(T).double(), **CLOSE)
    assert (rest < 1e-12).all()


def sparse_rows(*shape):
    rows = torch.rand(*shape, dtype=torch.float64) * (torch.rand(*shape) < 0.5)
    return rows / rows.sum(dim=-1, keepdim=True).clamp(min=1e-9)


def random_mixing(layers):
    encoder = [(sparse_rows(S, S) + torch.eye(S)) / 2 for _ in range(layers[0])]
    kept = torch.full((T,), 0.5).double()
    decoder = [
        DecoderMixing((sparse_rows(T, T).tril() + torch.eye(T)) / 2, sparse_rows(T, S) / 2, kept)
        for _ in range(layers[1])
    ]
    return Mixing(encoder, decoder)


def network(mixing):
    graph, top = networkx.DiGraph(), len(mixing.encoder)

    def join(above, below, matrix):
        for (i, j), capacity in zip(
            torch.cartesian_prod(*map(torch.arange, matrix.shape)).tolist(),
            matrix.flatten().tolist(),
        ):
            graph.add_edge((*above, i), (*below, j), capacity=capacity)

    for n, matrix in enumerate(mixing.encoder):
        join(("source", n + 1), ("source", n), matrix)
    for n, (own, cross, kept) in enumerate(mixing.decoder):
        join(("between", n), ("target", n), own)
        join(("target", n + 1), ("between", n), kept.diag())
        join(("target", n + 1), ("source", top), cross)
    return graph


@pytest.mark.parametrize("layers", [(0, 1), (1, 1), (2, 3), (3, 2)])
def test_flow_is_the_maximum_flow_of_networkx(layers):
    torch.manual_seed(sum(layers))
    for _ in range(3):
        mixing = random_mixing(layers)
        graph, found = network(mixing), flows_of(mixing)
        for t in range(T):
            start = ("target", layers[1], t)
            ends = [("source", 0, s) for s in range(S)] + [("target", 0, j) for j in range(t + 1)]
            flows = [networkx.maximum_flow_value(graph, start, end) for end in ends]
            expected = torch.tensor([*flows, *[0.0] * (T - t - 1)], dtype=torch.float64)
            torch.testing.assert_close(found[t], expected, **OF_WHOLE_NUMBERS)


def test_flow_gives_the_flows_of_a_model_as_shares():
    model = model_of(2, (2, 2))
    weights = {name: part.mean(dim=0) for name, part in weights_of(model).items()}

    def half(name):
        matrix = weights[name]
        return (matrix + torch.eye(len(matrix))) / 2

    decoder = [
        DecoderMixing(
            half(f"decoder.layers.{n}.self_attention"),
            weights[f"decoder.layers.{n}.cross_attention"] / 2,
            torch.full((T,), 0.5).double(),
        )
        for n in (0, 1)
    ]
    graph = network(Mixing([half(f"encoder.layers.{n}.self_attention") for n in (0, 1)], decoder))
    source, prefix, _ = explained(model, "flow")
    for t in range(T):
        ends = [("source", 0, s) for s in range(S)] + [("target", 0, j) for j in range(T)]
        flows = [networkx.maximum_flow_value(graph, ("target", 2, t), end) for end in ends]
        expected = torch.tensor(over_sum(flows), dtype=torch.float64)
        torch.testing.assert_close(torch.cat((source[t], prefix[t])), expected, **OF_WHOLE_NUMBERS)


@torch.no_grad()
def gradients_by_differences(model, name, shape, nudge=1e-5):
    """The gradient (T, *shape) of each target token's logit at the one head's weights."""
    found = torch.zeros(T, *shape).double()
    for i in range(shape[0]):
        for j in range(shape[1]):
            scores = []
            for sign in (1, -1):

                def nudged(weights, visible, i=i, j=j, sign=sign):
                    weights = weights.clone()
                    weights[0, 0, i, j] += sign * nudge
                    return weights

                with intervene(model, {name: nudged}):
                    scores.append(run(model)[0].gather(1, TARGET[0][:, None])[:, 0])
            found[:, i, j] = (scores[0] - scores[1]) / (2 * nudge)
    return found


def test_relevance_of_one_head_and_layer_is_the_published_rules_over_finite_differences():
    model = model_of()
    source, prefix, _ = explained(model, "relevance")
    weights = weights_of(model)
    shapes = [(S, S), (T, T), (T, S)]
    gradients = [gradients_by_differences(model, *pair) for pair in zip(NAMES, shapes)]
    for t in range(T):
        encoder, own, cross = (
            (weights[name][0] * gradient[t]).clamp(min=0)
            for name, gradient in zip(NAMES, gradients)
        )
        rule = torch.zeros(S).double()
        for k in range(T):  # eq. 10, of the row t of the transposed matrix
            onto = (k == t) + (own[k, t] / own[k].sum() if own[k].sum() else 0)
            for i in range(S):
                for s in range(S):
                    through = (i == s) + (
                        encoder[i, s] / encoder[i].sum() if encoder[i].sum() else 0
                    )
                    rule[s] += onto * cross[k, i] * through
        expected = torch.tensor(over_sum([*rule.tolist(), *own[t].tolist()]), dtype=torch.float64)
        got = torch.cat((source[t], prefix[t]))
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(
    "make",
    [
        lambda: model_of(2, (1, 2)),
        lambda: model_of(2, (1, 2), copy=True),
        lambda: make_recurrent("bahdanau").double(),
        lambda: make_recurrent("luong_general", order="after", input_feeding=True).double(),
    ],
)
def test_attention_x_gradient_is_the_weight_times_what_nudging_it_changes(make):
    """Of every weight of cross-attention by itself, in the log-probability of every token."""
    model, nudge = make(), 1e-6
    with capture(model) as maps:
        run(model)
    expected = torch.zeros(T, S).double()
    for name, calls in maps.items():
        weights = torch.cat(calls, dim=2)[0] if name.endswith("cross_attention") else torch.empty(0)
        for head, row, key in weights.nonzero().tolist():
            scores = []
            for sign in (1, -1):
                seen = 0

                def nudged(part, visible, at=(head, row, key), sign=sign):
                    nonlocal seen
                    begin, seen = seen, seen + part.shape[2]  # a recurrent decoder calls each step
                    part = part.clone()
                    if begin <= at[1] < seen:
                        part[0, at[0], at[1] - begin, at[2]] += sign * nudge
                    return part

                with intervene(model, {name: nudged}):
                    said = run(model)[0].log_softmax(dim=1)
                scores.append(said.gather(1, TARGET[0][:, None])[:, 0])
            slope = (scores[0] - scores[1]) / (2 * nudge)
            expected[:, key] += float(weights[head, row, key]) * slope.abs()
    expected = torch.stack([row / row.sum() for row in expected])
    source, prefix, rest = explained(model, "attention_x_gradient")
    torch.testing.assert_close(source, expected, atol=1e-6, rtol=1e-5)
    assert not prefix.any()
    assert (rest < 1e-12).all()


def test_relevances_of_two_layers_follow_the_rules_entry_by_entry():
    torch.manual_seed(0)
    encoder = [torch.rand(1, S, S) for _ in range(2)]
    decoder = [torch.rand(1, T, n) for n in (T, S, T, S)]
    memory, prefix, source = torch.eye(S), torch.eye(T), torch.zeros(T, S)
    for (one,) in encoder:
        memory = memory + torch.einsum("ij,js->is", one, memory)

    def hat(matrix):
        rows = (matrix - torch.eye(len(matrix))).tolist()
        return torch.tensor([over_sum(r) if any(r) else r for r in rows]) + torch.eye(len(matrix))

    for (own,), (cross,) in zip(decoder[::2], decoder[1::2]):
        source = source + torch.einsum("tk,ks->ts", own, source)
        prefix = prefix + torch.einsum("tk,kj->tj", own, prefix)
        source = source + torch.einsum("kt,ki,is->ts", hat(prefix), cross, hat(memory))
    found = relevances(encoder, decoder)
    torch.testing.assert_close(found[0][0], source)
    torch.testing.assert_close(found[1][0], prefix - torch.eye(T))


class Recorded:
    """What the one layer a side of a model read: the residual stream before each attention."""

    def __init__(self, model):
        self.inputs = {}
        with ExitStack() as hooks, torch.no_grad(), capture(model) as maps:
            for name, part in model.named_modules():
                stack = name.partition(".")[0]
                if name == f"{stack}.layers.0":
                    hooks.enter_context(part.register_forward_pre_hook(self.keep(f"{stack}.x")))
                if name.endswith("attention"):
                    key = f"{stack}.{name.rpartition('.')[2]}"
                    hooks.enter_context(part.register_forward_hook(self.output(key)))
            run(model)
        self.maps = {name: calls[0][0, 0] for name, calls in maps.items()}

    def keep(self, name):
        return lambda module, args: self.inputs.update({name: args[0][0]})

    def output(self, name):
        return lambda module, args, output: self.inputs.update({name: output[0][0]})


def normed(norm, u, part):
    """What a norm makes of a part of its input u, written out."""
    if hasattr(norm, "bias"):
        spread = ((u - u.mean()) ** 2).mean().add(norm.eps).sqrt()
        return norm.weight * (part - part.mean()) / spread
    return norm.weight * part / (u**2).mean().add(norm.eps).sqrt()


def interaction(residual, attention, weights, read, x, given, own):
    """Shares of one head's keys, and of the residual: apart, or with key i where `own`."""
    rows = []
    values = read @ attention.value.weight.T + attention.value.bias
    moved = values @ attention.output.weight.T
    for i, row in enumerate(weights):
        vectors = [weight * moved[j] for j, weight in enumerate(row)]
        if own:
            vectors[i] = vectors[i] + x[i]
        else:
            vectors.append(x[i])
        y = x[i] + given[i]
        if not residual.pre_norm:
            vectors, y = [normed(residual.norm, y, v) for v in vectors], residual.norm(y)
        parts = [max(0.0, float(y.abs().sum() - (y - v).abs().sum())) for v in vectors]
        rows.append(over_sum(parts))
    return torch.tensor(rows, dtype=torch.float64)


@torch.no_grad()
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("pre_norm", [True, False])
def test_alti_of_one_head_and_layer_is_its_equations_token_by_token(pre_norm, norm):
    model = model_of(pre_norm=pre_norm, norm=norm)
    seen = Recorded(model)
    encoder, decoder = model.encoder.layers[0], model.decoder.layers[0]
    matrices = {}
    for stack, layer in (("encoder", encoder), ("decoder", decoder)):
        x, given = seen.inputs[f"{stack}.x"], seen.inputs[f"{stack}.self_attention"]
        read = layer.attend.norm(x) if pre_norm else x
        weights = seen.maps[f"{stack}.layers.0.self_attention"]
        matrices[stack] = interaction(
            layer.attend, layer.self_attention, weights, read, x, given, own=True
        )
    x = seen.inputs["decoder.x"] + seen.inputs["decoder.self_attention"]
    x = x if pre_norm else decoder.attend.norm(x)
    memory = model.encode(SOURCE).outputs[0]
    across = interaction(
        decoder.cross, decoder.cross_attention, seen.maps[NAMES[2]], memory, x,
        seen.inputs["decoder.cross_attention"], own=False,
    )  # fmt: skip
    source, prefix, _ = explained(model, "alti")
    torch.testing.assert_close(source, across[:, :S] @ matrices["encoder"], **CLOSE)
    torch.testing.assert_close(prefix, across[:, S:] * matrices["decoder"], **CLOSE)
