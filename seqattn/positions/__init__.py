"""Position schemes."""

from seqattn.positions.absolute import LearnedPosition, SinusoidalPosition
from seqattn.positions.base import Position, Stack
from seqattn.positions.disentangled import DeBERTaPosition, DisentangledPosition
from seqattn.positions.relative import ALiBiPosition, ShawPosition, T5Position
from seqattn.positions.rotary import RotaryPosition

__all__ = [
    "ALiBiPosition",
    "DeBERTaPosition",
    "DisentangledPosition",
    "LearnedPosition",
    "Position",
    "RotaryPosition",
    "ShawPosition",
    "SinusoidalPosition",
    "Stack",
    "T5Position",
]
