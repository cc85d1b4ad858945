"""Linear layers by oneDNN, as on a CPU where it is the quicker one, against PyTorch's own."""

import pytest
import torch
import torch.nn.functional as F

from seqattn.ops import linear as module
from seqattn.ops.linear import Linear, dense, linear, packed

pytestmark = pytest.mark.usefixtures("where_mkl_lags")


@pytest.fixture
def products(monkeypatch):
    """The weights that oneDNN was given."""
    given, product = [], module._product
    monkeypatch.setattr(
        module, "_product", lambda x, w, bias: given.append(dense(w)) or product(x, w, bias)
    )
    return given


def made(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


INPUTS = {
    "rows": made(7, 24),
    "batches": made(2, 5, 24),
    "one row": made(24),
    "no batch next to each other": made(5, 2, 24).transpose(0, 1),
    "columns of a wider one": made(7, 30)[:, 3:27],
    "expanded": made(1, 24).expand(7, 24),
}
WEIGHTS = {
    "rows": made(6, 24),
    "transposed": made(24, 6).T,
    "columns of a wider one": made(6, 31)[:, 2:26],
    "transposed columns": made(24, 9)[:, 1:7].T,
    "one output": made(1, 24),
}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=list(WEIGHTS))
@pytest.mark.parametrize("x", INPUTS.values(), ids=list(INPUTS))
def test_values_and_gradients_are_those_of_pytorch(products, x, weight, bias):
    added = made(weight.shape[0]) if bias else None
    ours, theirs = (
        [part if part is None else part.detach().requires_grad_() for part in (x, weight, added)]
        for _ in range(2)
    )
    out, wanted = linear(*ours), F.linear(*theirs)
    torch.testing.assert_close(out, wanted)
    for result in (out, wanted):
        result.backward(made(*wanted.shape))
    for one, other in zip(ours, theirs, strict=True):
        if one is not None:
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-5)
    assert len(products) == 3  # forward, and both gradients
    # a matrix with gaps is thousands of times slower
    assert all(w.is_contiguous() or w.T.is_contiguous() for w in products)


def test_second_derivatives_are_those_of_pytorch():
    def penalty(multiply):
        x, weight = made(7, 24).requires_grad_(), made(6, 24).requires_grad_()
        (slope,) = torch.autograd.grad(multiply(x, weight).sin().sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), (x, weight))

    for ours, theirs in zip(penalty(linear), penalty(F.linear), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_a_gradient_that_nobody_wants_is_not_made(products):
    linear(made(7, 24), made(6, 24).requires_grad_()).sum().backward()
    assert len(products) == 2
    assert len(products[0]) == 6  # the weight
    assert len(products[1]) == 24  # the inputs, transposed


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_other_numbers_are_left_to_pytorch(products, kind):
    x, weight = made(7, 24).to(kind), made(6, 24).to(kind)
    assert torch.equal(linear(x, weight), F.linear(x, weight))
    assert not products


def test_autocast_multiplies_in_its_own_type(products):
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(made(7, 24), made(6, 24)).dtype == torch.bfloat16
    assert not products


def test_small_products_are_left_to_pytorch(products, monkeypatch):
    monkeypatch.setattr(module, "_LEAST", 7 * 24 * 6 + 1)
    linear(made(7, 24), made(6, 24))
    assert not products
    linear(made(8, 24), made(6, 24))
    assert len(products) == 1


@pytest.mark.parametrize("quicker", [True, False], ids=["quicker", "as quick"])
def test_packed_weights_give_the_same_product_and_leave_the_layer_as_it_was(
    products, monkeypatch, quicker
):
    monkeypatch.setattr(module, "mkl_lags", lambda: quicker)
    monkeypatch.setattr(module, "_LARGE", 1)
    layer, x = Linear(24, 700), made(5, 3, 24)
    with torch.inference_mode():
        expected = F.linear(x, layer.weight, layer.bias)
        with packed(torch.nn.Sequential(layer)):
            torch.testing.assert_close(layer(x), expected)
            assert products.pop().layout is not torch.strided
            half = layer.weight.bfloat16(), layer.bias.bfloat16()
            with torch.autocast("cpu", torch.bfloat16):
                rough = layer(x)
        torch.testing.assert_close(rough, F.linear(x.bfloat16(), *half))
        layer.weight.zero_()
        assert torch.equal(layer(x), layer.bias.expand(5, 3, 700))


def test_only_large_weights_are_packed_where_pytorch_is_as_quick(monkeypatch):
    monkeypatch.setattr(module, "mkl_lags", lambda: False)
    monkeypatch.setattr(module, "_LARGE", 24 * 700)
    model = torch.nn.ModuleList([Linear(24, 700), Linear(24, 699)])
    with packed(model):
        assert [layer.ordered is not None for layer in model] == [True, False]


def test_blocks_may_overlap_as_those_of_threads_do():
    layer, x = Linear(24, 700), made(5, 24)
    expected, first, second = layer(x), packed(layer), packed(layer)
    for block in (first, second):
        block.__enter__()
    for block in (first, second):
        block.__exit__(None, None, None)
        torch.testing.assert_close(layer(x), expected)
    assert layer.ordered is None
