"""HTTP server of a bundle: the subcommand serve, and its application for servers of your own."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqattn.extras.serve.app import make_app
    from seqattn.extras.serve.limits import Limits
    from seqattn.extras.serve.service import Service

__all__ = ["NEEDS", "Limits", "Service", "make_app"]

NEEDS: tuple[str, ...] = ("explain", "report")
"""Extras that it imports."""
_HOMES = {"Limits": "limits", "Service": "service", "make_app": "app"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, since FastAPI may not be installed."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
