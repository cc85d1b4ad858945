"""Sequence-to-sequence models with any attention: train them, decode them, look inside."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqattn.cli.bundle import Bundle

__version__ = "0.1.0"


def load(path: str, device: str = "cpu") -> "Bundle":
    """Loads a bundle that training wrote.

    Args:
        path: the bundle's directory, `RUN/model`.
        device: where the model goes, such as `cpu` or `cuda`.

    Returns:
        A bundle; `load(path).generate(["A dog runs."])` gives one text per text.

    Raises:
        UserError: where the directory is absent, truncated or no bundle.
    """
    from seqattn.cli.bundle import load_bundle  # Hydra is needed from here on, and not before

    return load_bundle(path, device)


__all__ = ["__version__", "load"]


def __dir__() -> list[Any]:
    return list(__all__)
