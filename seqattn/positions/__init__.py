"""Position schemes: how a model knows where a token stands."""

from seqattn.positions.absolute import LearnedPosition, SinusoidalPosition
from seqattn.positions.alibi import ALiBiPosition
from seqattn.positions.base import Position, Stack
from seqattn.positions.disentangled import DeBERTaPosition, DisentangledPosition
from seqattn.positions.rotary import RotaryPosition
from seqattn.positions.shaw import ShawPosition
from seqattn.positions.t5 import T5Position

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
