"""Outputs and gradients of every kind of model against those that were written down once.

`python -m tests.golden.test_golden` writes them down again, where a change of theirs is meant.
"""

import json
from pathlib import Path

import pytest
import torch

from tests.golden.models import cases, make, outputs, parameters

KEPT = Path(__file__).parent / "outputs.json"
CASES = cases()
WRITTEN = json.loads(KEPT.read_text()) if KEPT.is_file() else {}


def test_every_kind_of_model_has_its_outputs_written_down():
    assert set(WRITTEN) == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_are_what_was_written_down(case):
    model = make(CASES[case])
    names = "\n".join(parameters(model))
    expected = torch.tensor(WRITTEN[case], dtype=torch.float64)
    for dtype, close in ((torch.float32, 1e-4), (torch.float64, 1e-6)):
        got = torch.tensor(outputs(model, dtype), dtype=torch.float64)
        torch.testing.assert_close(
            got, expected, atol=close, rtol=close, msg=lambda text: f"{text}\nparameters:\n{names}"
        )


if __name__ == "__main__":
    rows = {name: outputs(make(case), torch.float64) for name, case in CASES.items()}
    lines = [
        f"{json.dumps(name)}: [{', '.join(f'{x:.9g}' for x in row)}]" for name, row in rows.items()
    ]
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
