"""Engines, which run the searches of a bundle."""

from dataclasses import dataclass
from typing import Protocol

from seqattn.bundle.bundle import Bundle


class Engine(Protocol):
    """Interface of an engine."""

    def attach(self, bundle: Bundle) -> Bundle:
        """Return the bundle with its searches run by this engine.

        Raises:
            UserError: the engine cannot run it.
        """


@dataclass(frozen=True)
class PyTorch:
    """PyTorch, for every model and search."""

    def attach(self, bundle: Bundle) -> Bundle:
        return bundle
