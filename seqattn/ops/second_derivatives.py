"""Second derivatives of functions with hand-written gradients."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def creates_graph() -> bool:
    """Return True if this backward pass will itself be differentiated (`create_graph=True`).

    False for compiled code, which appears to be differentiated but never is.
    """
    return torch.is_grad_enabled() and not torch.compiler.is_compiling()


def forbid_second_derivatives(message: str) -> None:
    """Raise in a backward pass that will be differentiated, as the result would be wrong.

    `once_differentiable` is not enough: `autograd.grad` may not reach the node that raises.

    Raises:
        RuntimeError: with `message`.
    """
    if creates_graph():
        raise RuntimeError(message)


def gradients(
    function: Callable[..., Tensor], inputs: Sequence[Tensor | None], upstream: Tensor
) -> list[Tensor | None]:
    """Return differentiable gradients of function(*inputs), None for inputs without gradient.

    Args:
        function: composed of PyTorch's own operations.
        inputs: connected to the graph, such as the saved inputs of a function.
        upstream: gradient of the function's output.
    """
    with torch.enable_grad():
        # views, so that an input computed from another one is separate from it
        views = [None if x is None else x.view_as(x) for x in inputs]
        learning = [x for x in views if x is not None and x.requires_grad]
        outputs = function(*views)
        grads = iter(torch.autograd.grad(outputs, learning, upstream, create_graph=True))
    return [None if x is None or not x.requires_grad else next(grads) for x in views]
