"""Plain settings of objects, as a test would type them."""

from dataclasses import fields, is_dataclass, replace
from functools import partial
from inspect import signature

from seqattn.checking import check
from seqattn.settings.nodes import build


def node(value):
    """The node from which a dataclass, a list, a mapping or a factory is built again."""
    if isinstance(value, list | tuple):
        return [node(part) for part in value]
    if isinstance(value, dict):
        return {name: node(part) for name, part in value.items()}
    if isinstance(value, partial):
        return {**_target(value.func), "_partial_": True, **node(value.keywords)}
    if isinstance(value, type):
        return {**_target(value), "_partial_": True}
    if not is_dataclass(value):
        return value
    names = [field.name for field in fields(value) if field.init and field.name != "settings"]
    return {**_target(type(value)), **{name: node(getattr(value, name)) for name in names}}


def node_of(cls, *args, **options):
    """The node of an object of a class with these arguments."""
    return {**_target(cls), **signature(cls).bind(*args, **options).arguments}


def with_settings(subcommand):
    """A subcommand with the plain settings that it would be built from."""
    settings = node(subcommand)
    del settings["_target_"]
    return replace(subcommand, settings=settings)


def made(cls, /, **values):
    """An object of a class, whose values are checked as those of settings are."""
    check(cls, values)
    return cls(**values)


def made_of_settings(factory):
    """A factory as its node gives it again, whose values are checked."""
    return build(node(factory))


def _target(made):
    return {"_target_": f"{made.__module__}.{made.__qualname__}"}
