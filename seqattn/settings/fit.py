"""Shipped choices that fit a model, an attention or a position, for messages."""

from collections.abc import Iterable, Mapping
from typing import Any

from seqattn.attention.base import AttentionFactory, Mixer
from seqattn.positions.base import Stack
from seqattn.settings.choices import choices
from seqattn.settings.meta_device import on_meta_device
from seqattn.settings.nodes import TARGET, build, import_path

_PROBED = 48  # a width that most numbers of heads divide


def fitting_attentions(kind: type, attentions: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the attentions that a model accepts, with the slots that each fits.

    Args:
        kind: base class of its attentions.
        attentions: number of attentions in each of its slots.
    """
    built = {name: build(node) for name, node in choices("attention").items()}
    with on_meta_device():
        modules = {
            name: attention(query_dim=_PROBED, memory_dim=_PROBED)
            for name, attention in built.items()
            if is_of_kind(attention, kind)
        }
    slots = {name: fitting_slots(module, attentions) for name, module in modules.items()}
    return {name: fitting for name, fitting in slots.items() if fitting}


def fitting_models(kind: type | None, output: str) -> list[str]:
    """Return the models with this output that take a class of attention; none of no class."""
    models: dict[str, Any] = {
        name: import_path(node[TARGET]) for name, node in choices("model").items() if kind
    }
    return [
        name
        for name, model in models.items()
        if model.output == output and kind and issubclass(kind, model.attention_type)
    ]


def fitting_positions(mixer: Mixer) -> list[str]:
    """Return the positions that a mixer supports."""
    hooks = mixer.abilities.hooks | {"embed"}
    with on_meta_device():
        schemes = {
            name: build(node)(Stack(_PROBED, 1)) for name, node in choices("position").items()
        }
    return [name for name, scheme in schemes.items() if scheme.hooks <= hooks]


def fitting_slots(attention: Any, slots: Iterable[str]) -> list[str]:
    """Return the slots that an attention fits; an alignment fits all."""
    abilities = getattr(attention, "abilities", None)
    return [slot for slot in slots if abilities is None or abilities.fits(slot)]


def is_of_kind(attention: AttentionFactory, kind: type) -> bool:
    """Return False if a class is known, before it is called, to be of the wrong kind."""
    target = target_of(attention)
    return not isinstance(target, type) or issubclass(target, kind)


def target_of(factory: object) -> object:
    """Return the class or function that a factory calls."""
    return getattr(factory, "func", factory)


def choice_of(mixer: Mixer) -> str:
    """Return the choice with a mixer's class and kernel, or the mixer's name."""
    kinds = [type(mixer), type(getattr(mixer, "kernel", None))]
    paths = [f"{kind.__module__}.{kind.__qualname__}" for kind in kinds]
    for name, node in choices("attention").items():
        kernel = node.get("kernel") or {TARGET: "builtins.NoneType"}
        if [node[TARGET], kernel[TARGET]] == paths:
            return f"attention={name}"
    return mixer.name
