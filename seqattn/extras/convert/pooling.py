"""Pooling of key and value heads to their means."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from seqattn.attention.heads import MultiHeadAttention, pool_key_heads
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.bundle.bundle import Bundle
from seqattn.errors import UserError
from seqattn.extras.explain.pruning import cross_node
from seqattn.models.transformer import Transformer
from seqattn.settings.assembly import Architecture, Vocabularies
from seqattn.settings.choices import SLOTS
from seqattn.settings.nodes import import_path


def pooled(bundle: Bundle, name: str, num_kv_heads: int, slots: Sequence[str]) -> Bundle:
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
    shared, names = config["attention"], config.get("choices") or {}
    by_slot = {slot: config.get(f"{slot}_attention") for slot in SLOTS}
    mixed = isinstance(shared, list) and not all(map(_has_key_heads, shared))
    if set(slots) == set(SLOTS) and not (mixed or any(by_slot.values())):
        nodes = {"attention": _fewer(shared, count, "self-", names.get("attention"), ["cross"])}
    else:
        usual = {"encoder": shared, "decoder": shared, "cross": cross_node(shared)}
        chosen = {slot: by_slot[slot] or usual[slot] for slot in SLOTS}
        able = [slot for slot in SLOTS if any(map(_has_key_heads, _layers(chosen[slot])))]
        nodes = {}
        for slot in slots:
            choice = names.get(f"attention@{slot}_attention", names.get("attention"))
            nodes[f"{slot}_attention"] = _fewer(chosen[slot], count, f"{slot} ", choice, able)
    choices = {
        key if key == "attention" else f"attention@{key}": name
        for key, node in nodes.items()
        if _is_softmax(node)  # another kernel keeps its name
    }
    return {**config, **nodes, "choices": {**names, **choices}}


def _layers(node: Any) -> list[Any]:
    return node if isinstance(node, list) else [node]


def _has_key_heads(node: Any) -> bool:
    kind = import_path(node["_target_"])
    return isinstance(kind, type) and issubclass(kind, MultiHeadAttention)


def _fewer(node: Any, count: int, where: str, choice: str | None, able: Sequence[str]) -> Any:
    """Return a node with `count` key heads, which must divide the current number.

    In a list, layers without key heads stay as they are.

    Args:
        node: attention of a slot, or a list for its layers.
        count: number of key heads.
        where: name of the slot, for messages.
        choice: name of the choice, for messages.
        able: slots with key heads, for messages.
    """
    if not any(map(_has_key_heads, _layers(node))):
        hint = f"; choose slots with key heads: slots=[{','.join(able)}]" if able else ""
        raise UserError(
            f"the {where}attention (attention={choice or 'NAME'}) has no key heads to pool{hint}"
        )
    if isinstance(node, list):
        return [
            _fewer(layer, count, where, choice, able) if _has_key_heads(layer) else layer
            for layer in node
        ]
    if node.get("kept_heads"):
        raise UserError(f"the {where}attention is pruned; pool before pruning")
    now = node["num_kv_heads"]
    if now % count:
        raise UserError(
            f"num_kv_heads must divide the {where}attention's key heads ({now}), got {count}"
        )
    return {**node, "num_kv_heads": count}


def _is_softmax(node: Any) -> bool:
    """Return True if the node is `attention=gqa` or `attention=mqa` except for its sizes."""
    return all(
        _has_key_heads(layer) and import_path(layer["kernel"]["_target_"]) is SoftmaxKernel
        for layer in _layers(node)
    )
