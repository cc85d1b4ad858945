"""Observing a model from outside: attention weights, alignments, figures."""

from seqattn.analysis.capture import Maps, capture

__all__ = ["Maps", "capture"]
