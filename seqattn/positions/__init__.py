"""Position schemes: how a model knows where a token stands."""

from seqattn.positions.absolute import LearnedPosition, SinusoidalPosition
from seqattn.positions.base import Position, Stack
from seqattn.positions.rotary import RotaryPosition

__all__ = ["LearnedPosition", "Position", "RotaryPosition", "SinusoidalPosition", "Stack"]
