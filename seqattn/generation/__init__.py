"""Generation: from sources to scored hypotheses, through the model interface."""

from seqattn.generation.base import Hypothesis, LengthLimit
from seqattn.generation.beam import BeamSearch
from seqattn.generation.generator import Generator
from seqattn.generation.minimum_bayes_risk import MinimumBayesRisk
from seqattn.generation.sampling import GreedySearch, Sampling

__all__ = [
    "BeamSearch",
    "Generator",
    "GreedySearch",
    "Hypothesis",
    "LengthLimit",
    "MinimumBayesRisk",
    "Sampling",
]
