"""Linear layers as on a CPU where oneDNN is the quicker one, against PyTorch's own."""

import pytest
import torch
import torch.nn.functional as F

from seqattn import ops
from seqattn.ops import add_linear, linear
from seqattn.ops.cpu import onednn
from tests.ops.cpu.onednn_products import SETTINGS, Products
from tests.tolerance import close

pytestmark = pytest.mark.usefixtures("where_mkl_lags")


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
    "one output": made(1, 24),
}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=list(WEIGHTS))
@pytest.mark.parametrize("x", INPUTS.values(), ids=list(INPUTS))
def test_values_and_gradients_are_those_of_pytorch(x, weight, bias):
    added = made(weight.shape[0]) if bias else None
    ours, theirs = (
        [part if part is None else part.detach().requires_grad_() for part in (x, weight, added)]
        for _ in range(2)
    )
    with Products() as products:
        out = linear(*ours)
        out.backward(made(*out.shape))
    wanted = F.linear(*theirs)
    wanted.backward(made(*out.shape))
    close(out, wanted)
    for one, other in zip(ours, theirs, strict=True):
        if one is not None:
            close(one.grad, other.grad)
    assert products.quick == [True] * 3  # forward, and both gradients
    assert SETTINGS.fp32_precision != "bf16"


def test_second_derivatives_are_those_of_pytorch():
    def penalty(multiply):
        x, weight = made(7, 24).requires_grad_(), made(6, 24).requires_grad_()
        (slope,) = torch.autograd.grad(multiply(x, weight).sin().sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), (x, weight))

    for ours, theirs in zip(penalty(linear), penalty(F.linear), strict=True):
        close(ours, theirs, bound=1e-4)


def test_a_gradient_that_nobody_wants_is_not_made():
    with Products() as products:
        linear(made(7, 24), made(6, 24).requires_grad_()).sum().backward()
    assert len(products.quick) == 2


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_other_numbers_are_left_to_pytorch(kind):
    x, weight = made(7, 24).to(kind), made(6, 24).to(kind)
    with Products() as products:
        assert torch.equal(linear(x, weight), F.linear(x, weight))
    assert not any(products.quick)


def test_autocast_multiplies_in_its_own_type():
    with Products() as products, torch.autocast("cpu", torch.bfloat16):
        assert linear(made(7, 24), made(6, 24)).dtype == torch.bfloat16
    assert products.quick == [False]


def test_small_products_are_left_to_pytorch(monkeypatch):
    monkeypatch.setattr(ops, "LEAST", 7 * 24 * 6 + 1)
    with Products() as products:
        linear(made(7, 24), made(6, 24))
        linear(made(8, 24), made(6, 24))
    assert products.quick == [False, True]


def test_the_setting_is_given_back_after_an_error():
    def failing():
        with onednn.quick_products():
            assert SETTINGS.fp32_precision == "bf16"
            raise ValueError("here")

    with pytest.raises(ValueError, match="here"):
        failing()
    assert SETTINGS.fp32_precision != "bf16"


def test_blocks_of_threads_may_end_in_any_order():
    first, second = onednn.quick_products(), onednn.quick_products()
    for block in (first, second):
        block.__enter__()
    first.__exit__(None, None, None)
    assert SETTINGS.fp32_precision == "bf16"
    second.__exit__(None, None, None)
    assert SETTINGS.fp32_precision != "bf16"


def test_products_that_would_be_rounded_are_not_taken(monkeypatch):
    onednn.onednn_is_exact.cache_clear()
    multiply = torch.Tensor.__matmul__

    def rounded(x, y):
        if x.dtype == torch.float64:
            return multiply(x, y)
        return multiply(x.bfloat16(), y.bfloat16()).to(x.dtype)

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "__matmul__", rounded)
        assert not onednn.onednn_is_exact()
    onednn.onednn_is_exact.cache_clear()


def test_what_is_asked_first_of_all_changes_no_answer():
    """As a training in half precision asks it."""
    torch.set_default_dtype(torch.float64)
    try:
        for enabled in (True, False):
            onednn.onednn_is_exact.cache_clear()
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                assert onednn.onednn_is_exact()
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("either_cpu")
def test_a_step_adds_its_product():
    base, x, weight = made(7, 6), made(7, 24), made(6, 31)[:, 2:26]
    close(add_linear(base, x, weight), base + F.linear(x, weight))
