"""From multi-head to grouped-query attention: key and value heads pooled, the rest copied."""

from torch import Tensor, nn

from seqattn.attention.heads import MultiHeadAttention
from seqattn.errors import UserError


def pool_key_heads(source: nn.Module, target: nn.Module) -> None:
    """Copies the weights of `source` into `target`, which may have fewer key and value heads.

    Each key head of `target` is the mean of the heads it stands for, and so is each value head
    (Ainslie et al. 2023, arXiv 2305.13245, section 2.1). With as many heads it is a plain copy.

    Args:
        source: any module that holds multi-head attentions.
        target: the same, but for `num_kv_heads`, which divides that of `source` everywhere.

    Raises:
        UserError: where something else than key and value projections differs in shape.
    """
    state = source.state_dict()
    for name, attention in target.named_modules():
        if isinstance(attention, MultiHeadAttention):
            for projection in ("key", "value"):
                for part in ("weight", "bias"):
                    full = f"{name}.{projection}.{part}".removeprefix(".")
                    if full in state:
                        state[full] = _pooled(state[full], source, name, attention.num_kv_heads)
    own = target.state_dict()
    wrong = [name for name in own if name not in state or state[name].shape != own[name].shape]
    if wrong:
        raise UserError(f"{wrong[0]} has a size for every key head, which cannot be pooled")
    target.load_state_dict(state)


def _pooled(weight: Tensor, source: nn.Module, name: str, num_kv_heads: int) -> Tensor:
    """(G*Dh, ...) -> (G'*Dh, ...)."""
    attention = source.get_submodule(name)
    assert isinstance(attention, MultiHeadAttention)
    merged = attention.num_kv_heads // num_kv_heads
    heads = weight.unflatten(0, (num_kv_heads, merged, -1))  # (G', G/G', Dh, ...)
    return heads.mean(dim=1).flatten(0, 1)
