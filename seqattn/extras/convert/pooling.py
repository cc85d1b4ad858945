"""Pooling of key and value heads to their means."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from seqattn.attention.heads import MultiHeadAttention, pool_key_heads
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.bundle.architecture import Architecture, Vocabularies
from seqattn.bundle.bundle import Bundle
from seqattn.bundle.choices import SLOTS
from seqattn.bundle.nodes import import_path
from seqattn.bundle.text_bundle import TextBundle
from seqattn.errors import UserError
from seqattn.extras.explain.pruning import cross_node
from seqattn.models.transformer import Transformer


def pooled(bundle: Bundle, name: str, num_kv_heads: int, slots: Sequence[str]) -> TextBundle:
    """Return a bundle whose key and value heads are means of the current ones
    (Ainslie et al. 2023, arXiv 2305.13245), on the same device.

    Args:
        name: new choice of softmax attention, gqa or mqa.
        num_kv_heads: new number G of key and value heads; divides the current number.
        slots: slots whose heads are pooled, from encoder, decoder and cross.

    Raises:
        UserError: if the attentions cannot have that many key heads.
    """
    bundle = bundle.texts("pooling")
    if not isinstance(bundle.model, Transformer):
        raise UserError(
            f"{bundle.path} holds a {type(bundle.model).__name__}, which has no key heads to "
            "pool; use a Transformer"
        )
    config = _grouped(bundle.config, name, num_kv_heads, slots)
    model: Any = Architecture.of(config).build(Vocabularies.of(bundle.tokenizer))
    pool_key_heads(bundle.model, model)
    device = next(bundle.model.parameters()).device
    return replace(bundle, model=model.to(device).eval(), config=config, scores={})


def _grouped(config: dict[str, Any], name: str, count: int, slots: Sequence[str]) -> dict[str, Any]:
    """Return the configuration with `count` key heads in the attentions of the slots."""
    shared = config["attention"]
    own = {slot: config.get(f"{slot}_attention") for slot in SLOTS}
    if set(slots) == set(SLOTS) and not any(own.values()):
        nodes = {"attention": _fewer(shared, count, "self-")}
    else:
        usual = {"encoder": shared, "decoder": shared, "cross": cross_node(shared)}
        nodes = {
            f"{slot}_attention": _fewer(own[slot] or usual[slot], count, f"{slot} ")
            for slot in slots
        }
    choices = {
        key if key == "attention" else f"attention@{key}": name
        for key, node in nodes.items()
        if _is_softmax(node)  # another kernel keeps its name
    }
    return {**config, **nodes, "choices": {**(config.get("choices") or {}), **choices}}


def _fewer(node: Any, num_kv_heads: int, where: str) -> Any:
    """Return a node with `num_kv_heads` key heads, which must divide the current number."""
    if isinstance(node, list):
        return [_fewer(layer, num_kv_heads, where) for layer in node]
    kind = import_path(node["_target_"])
    if not isinstance(kind, type) or not issubclass(kind, MultiHeadAttention):
        raise UserError(
            f"the {where}attention is a {kind.__name__}, which has no key heads to pool; choose "
            "slots with key heads, such as slots=[cross]"
        )
    if node.get("kept_heads"):
        raise UserError(f"the {where}attention is pruned; pool before pruning")
    now = node["num_kv_heads"]
    if now % num_kv_heads:
        raise UserError(
            f"num_kv_heads must divide the {where}attention's key heads ({now}), got {num_kv_heads}"
        )
    return {**node, "num_kv_heads": num_kv_heads}


def _is_softmax(node: Any) -> bool:
    """Return True if the node is `attention=gqa` or `attention=mqa` except for its sizes."""
    nodes = node if isinstance(node, list) else [node]
    return all(import_path(one["kernel"]["_target_"]) is SoftmaxKernel for one in nodes)
