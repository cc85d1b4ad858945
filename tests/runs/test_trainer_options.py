"""What `train` says before the first step."""

import pytest
import torch

from seqattn.runs.trainer_options import TrainerOptions


@pytest.mark.parametrize(
    ("precision", "accelerator", "native", "lines"),
    [
        ("bf16-mixed", "cpu", False, 1),
        ("bf16-mixed", "cpu", True, 0),
        ("bf16-mixed", "gpu", False, 0),
        (32, "cpu", False, 0),
    ],
)
def test_bfloat16_that_a_cpu_spells_out_is_advised_against(
    monkeypatch, precision, accelerator, native, lines
):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: native)
    said = TrainerOptions(precision=precision, accelerator=accelerator).advice()
    assert len(said) == lines
    assert all("trainer.precision=32" in line for line in said)
