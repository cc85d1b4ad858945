"""Arrays as 16-bit numbers in base64."""

import base64

import numpy as np
from torch import Tensor

from seqattn.extras.report.document_types import ArrayDocument

LEVELS = 65_535


def packed(values: Tensor) -> ArrayDocument:
    """Quantize numbers to 65,536 equally spaced levels between their minimum and maximum.

    The range includes 0. The error is at most half a step, so below 0.000008 for a weight; 0 stays
    0 if no number is negative.

    Args:
        values: finite numbers of any shape.
    """
    numbers = values.detach().double().cpu().numpy()
    low, high = min(0.0, numbers.min(initial=0.0)), max(0.0, numbers.max(initial=0.0))
    step = (high - low) / LEVELS or 1.0
    steps = np.rint((numbers - low) / step).astype("<u2")
    data = base64.b64encode(steps.tobytes()).decode("ascii")
    return {"shape": list(numbers.shape), "low": float(low), "step": float(step), "data": data}
