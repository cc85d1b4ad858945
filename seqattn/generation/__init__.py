"""Generation: from sources to scored hypotheses, knowing a model only by its contract."""

from seqattn.generation.base import Generator, Hypothesis, LengthLimit
from seqattn.generation.beam import BeamSearch
from seqattn.generation.sampling import GreedySearch, Sampling

__all__ = ["BeamSearch", "Generator", "GreedySearch", "Hypothesis", "LengthLimit", "Sampling"]
