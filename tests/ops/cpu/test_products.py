"""Products of batches of matrices where oneDNN is the quicker one, against PyTorch's own."""

import pytest
import torch

from seqattn.ops import product
from tests.ops.cpu.onednn_products import Products

pytestmark = pytest.mark.usefixtures("where_mkl_lags")


def made(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


LEFT = {
    "rows": made(2, 3, 15, 17),
    "transposed": made(2, 3, 17, 15).mT,
    "heads apart": made(2, 15, 3, 17).transpose(1, 2),
    "columns of a wider one": made(2, 3, 15, 19)[..., 1:18],
}
RIGHT = {
    "rows": made(2, 3, 17, 14),
    "transposed": made(2, 3, 14, 17).mT,
    "heads apart": made(2, 17, 3, 14).transpose(1, 2),
    "heads apart, transposed": made(2, 14, 3, 17).transpose(1, 2).mT,
    "expanded": made(17, 14).expand(2, 3, 17, 14),
}


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("right", RIGHT)
def test_values_and_gradients_are_those_of_pytorch(left, right):
    leaves = [LEFT[left].detach().requires_grad_(), RIGHT[right].detach().requires_grad_()]
    upstream = made(2, 3, 15, 14)
    with Products() as products:
        out = product(*leaves)
        found = torch.autograd.grad(out, leaves, upstream)
    assert products.quick == [True] * 3
    plain = leaves[0] @ leaves[1]
    torch.testing.assert_close(out, plain)
    torch.testing.assert_close(found, torch.autograd.grad(plain, leaves, upstream))


def test_one_constant_matrix_may_stand_on_the_left():
    matrix, batch = made(15, 17), made(2, 3, 17, 14).requires_grad_()
    out, plain = product(matrix, batch), matrix @ batch
    torch.testing.assert_close(out, plain)
    upstream = made(2, 3, 15, 14)
    (found,) = torch.autograd.grad(out, batch, upstream)
    torch.testing.assert_close(found, torch.autograd.grad(plain, batch, upstream)[0])


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("right", RIGHT)
def test_gradients_have_gradients(left, right):
    leaves = [LEFT[left].detach().requires_grad_(), RIGHT[right].detach().requires_grad_()]

    def twice(multiply):
        once = torch.autograd.grad(multiply(*leaves).sin().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(x.sin().sum() for x in once), leaves)

    for ours, theirs in zip(twice(product), twice(torch.matmul)):
        assert (ours - theirs).norm() < 1e-4 * theirs.norm()


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_other_numbers_are_pytorchs(kind):
    x, y = made(2, 15, 17).to(kind), made(2, 17, 14).to(kind)
    with Products() as products:
        assert torch.equal(product(x, y), x @ y)
    assert not any(products.quick)


def test_autocast_decides_what_it_multiplies():
    x, y = made(2, 15, 17).requires_grad_(), made(2, 17, 14)
    with torch.autocast("cpu", torch.bfloat16):
        out = product(x, y)
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert x.grad.dtype == torch.float32
