"""Analysis: watching a model from the side."""

from seqattn.analysis.capture import Maps, capture

__all__ = ["Maps", "capture"]
