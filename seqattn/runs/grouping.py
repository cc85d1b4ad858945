"""A bundle's configuration with fewer key and value heads."""

from collections.abc import Sequence
from typing import Any

from seqattn.attention.heads import MultiHeadAttention
from seqattn.bundle.architecture import cross_default
from seqattn.bundle.nodes import build, describe, import_path
from seqattn.errors import UserError

Config = dict[str, Any]
SLOTS = ("encoder", "decoder", "cross")


def grouped(config: Config, heads: str, num_kv_heads: int, slots: Sequence[str]) -> Config:
    """The configuration with so many key heads in the attentions of `slots`.

    Args:
        config: a bundle's, resolved.
        heads: the name in conf/attention that the result goes by.
        num_kv_heads: key and value heads G, dividing what each attention has.
        slots: of encoder, decoder and cross.

    Raises:
        UserError: for another slot, or an attention whose key heads cannot be pooled.
    """
    unknown = [slot for slot in slots if slot not in SLOTS]
    if unknown or not slots:
        raise UserError(f"slots must be some of {', '.join(SLOTS)}, got {list(slots)}")
    own = config["attention"]
    given = [slot for slot in SLOTS if config.get(f"{slot}_attention")]
    if set(slots) == set(SLOTS) and not given:
        choices = {**config.get("choices", {}), "attention": heads}
        return {**config, "attention": _fewer(own, num_kv_heads, "self-"), "choices": choices}
    changed = dict(config)
    for slot in slots:
        node = config.get(f"{slot}_attention")
        node = node or (_cross(own) if slot == "cross" else own)
        changed[f"{slot}_attention"] = _fewer(node, num_kv_heads, f"{slot} ")
    return changed


def _cross(node: Any) -> Any:
    """The node of the cross-attention that stands beside a self-attention."""
    if isinstance(node, list):
        return [_cross(layer) for layer in node]
    return describe(cross_default(build(node, "attention")), "cross_attention")


def _fewer(node: Any, num_kv_heads: int, where: str) -> Any:
    if isinstance(node, list):
        return [_fewer(layer, num_kv_heads, where) for layer in node]
    kind = import_path(node["_target_"])
    if not isinstance(kind, type) or not issubclass(kind, MultiHeadAttention):
        raise UserError(
            f"the {where}attention is a {kind.__name__}, which has no key heads to pool; name the "
            "slots that have, such as slots=[cross]"
        )
    now = node["num_kv_heads"]
    if now % num_kv_heads:
        raise UserError(
            f"num_kv_heads must divide the {where}attention's key heads ({now}), got {num_kv_heads}"
        )
    return {**node, "num_kv_heads": num_kv_heads}
