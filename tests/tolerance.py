"""Comparisons that hold on any CPU."""

import torch


def close(got, expected, bound=1e-5, **options):
    """Asserts that numbers in float32 agree, however their sums were ordered.

    What rounding adds to a sum is as large as the largest of its parts, not as the sum, so the
    tolerance of every number is `bound` times the largest expected one, and at least `bound`.
    """
    largest = expected.detach().abs().max().item() if expected.numel() else 0.0
    torch.testing.assert_close(got, expected, rtol=bound, atol=bound * max(1, largest), **options)
