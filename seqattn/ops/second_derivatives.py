"""Second derivatives of functions whose gradients are made by hand."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def wanted() -> bool:
    """Whether this backward pass will be differentiated itself (`create_graph=True`).

    A compiled one never is, and looks as if it were.
    """
    return torch.is_grad_enabled() and not torch.compiler.is_compiling()


def refuse(message: str) -> None:
    """Raises in a backward pass that will be differentiated, whose result would be wrong.

    `once_differentiable` does not: its error stands where `autograd.grad` need not pass.

    Raises:
        RuntimeError: with `message`.
    """
    if wanted():
        raise RuntimeError(message)


def gradients(
    function: Callable[..., Tensor], inputs: Sequence[Tensor | None], upstream: Tensor
) -> list[Tensor | None]:
    """The gradients of function(*inputs), None for inputs without; they have gradients themselves.

    Args:
        function: made of PyTorch's own operations.
        inputs: connected with the graph, such as the saved inputs of a function.
        upstream: the gradient of what it gives.
    """
    with torch.enable_grad():
        # views stand apart where one is made of another
        views = [None if x is None else x.view_as(x) for x in inputs]
        learning = [x for x in views if x is not None and x.requires_grad]
        found = torch.autograd.grad(function(*views), learning, upstream, create_graph=True)
    made = iter(found)
    return [None if x is None or not x.requires_grad else next(made) for x in views]
