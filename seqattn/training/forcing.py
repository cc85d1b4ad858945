"""Teacher forcing and scheduled sampling."""

import math
from dataclasses import dataclass
from typing import Literal

from seqattn.checking import Count, Share
from seqattn.errors import UserError


@dataclass(frozen=True)
class TeacherForcing:
    """Share of target tokens that a decoder reads in training, by optimizer step.

    Scheduled sampling (Bengio et al. 2015, arXiv 1506.03099, section 2.4): for each token, the
    decoder reads at random either the target token or its own most probable one.

    Args:
        schedule: constant (`start`), linear (from `start` down to `floor` in `steps`), or
            inverse_sigmoid (k / (k + exp(i / k)) of the descent is left at step i, k = `steps`:
            half of it at k ln k).
        start: initial share, 0 to 1.
        floor: final share, 0 to `start`.
        steps: optimizer steps, see `schedule`, at least 1.

    Raises:
        UserError: if the share would increase.
    """

    schedule: Literal["constant", "linear", "inverse_sigmoid"] = "constant"
    start: Share = 1.0
    floor: Share = 0.0
    steps: Count = 1000

    def __post_init__(self) -> None:
        if self.floor > self.start and self.schedule != "constant":
            raise UserError(
                "task.teacher_forcing needs 0 <= floor <= start <= 1, got "
                f"floor={self.floor} start={self.start}"
            )

    @property
    def whole(self) -> bool:
        """True if the decoder reads only target tokens, at every step."""
        return self.start == 1 and (self.schedule == "constant" or self.floor == 1)

    def __call__(self, step: int) -> float:
        """Return the share at an optimizer step, counted from 0."""
        if self.schedule == "constant":
            return self.start
        if self.schedule == "linear":
            left = max(0.0, 1 - step / self.steps)
        else:
            # exp(-i/k) * k / (exp(-i/k) * k + 1) cannot overflow
            scaled = self.steps * math.exp(-step / self.steps)
            left = scaled / (scaled + 1)
        return self.floor + (self.start - self.floor) * left
