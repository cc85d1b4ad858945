"""Lower bound of a Transformer's time: its matrix products at the machine's peak rate."""

from collections.abc import Sequence

import torch

from benchmarks.suite import Sample, timed
from benchmarks.transformer_models import Shape
from seqattn import ops

_SIZE, _TIMES = 1024, 12


def forward_work(
    shape: Shape, sources: Sequence[int], targets: Sequence[int], beams: int = 1
) -> float:
    """Count multiplications and additions of a forward pass over pairs, without padding.

    Includes projections, attention and the output layer; a training step takes three times as many.

    Args:
        shape: shape of the model.
        sources: length of each source.
        targets: length of each target.
        beams: hypotheses of each source in a beam search.
    """
    dim, wide = shape.dim, shape.dim * shape.ffn_dim
    square, total = dim * dim, 0.0
    for source, target in zip(sources, targets, strict=True):
        read = source * (4 * square + 2 * wide) + 2 * dim * source * source
        memory = source * 2 * square  # the source's keys and values, computed once
        said = target * (6 * square + 2 * wide) + dim * target * (target + 2 * source)
        total += shape.layers * (read + memory + beams * said)
        total += beams * target * dim * shape.vocabulary
    return 2 * total


def at_full_rate(work: float, precision: str, units: int) -> Sample:
    """Time `work` multiplications and additions in a large matrix product.

    Args:
        work: number of operations.
        precision: fp32 or bf16.
        units: units to report in the sample.
    """
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = torch.rand(2, _SIZE, _SIZE).to(kind)

    @torch.no_grad()
    def multiply() -> int:
        for _ in range(_TIMES):
            ops.linear(a, b)
        return units

    multiply()
    sample, share = timed(multiply), work / (_TIMES * 2 * _SIZE**3)
    return Sample(sample.seconds * share, sample.cpu_seconds * share, units)
