"""Analysis of models: attention weights, alignments, figures."""

from seqattn.analysis.capture import Maps, capture
from seqattn.analysis.intervene import intervene

__all__ = ["Maps", "capture", "intervene"]
