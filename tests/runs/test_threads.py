"""How many threads a training gets."""

import pytest
import torch

from seqattn.runs import threads
from seqattn.runs.threads import on_quickest_threads, threads_of
from seqattn.runs.trainer_options import TrainerOptions


@pytest.fixture
def _four():
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("_four")
@pytest.mark.parametrize(
    ("asked", "before", "quickest", "given"),
    [(3, 2, 1, 3), (None, 2, 1, 2), (None, 8, 1, 4), (None, None, 1, 1), (None, None, 4, 4)],
)
def test_those_asked_for_then_those_of_before_then_the_quickest(
    capsys, monkeypatch, asked, before, quickest, given
):
    monkeypatch.setattr(threads, "_quickest", lambda most: quickest)
    with threads_of(TrainerOptions(accelerator="cpu", threads=asked), before):
        assert torch.get_num_threads() == given
    assert torch.get_num_threads() == 4
    told = capsys.readouterr().err
    assert ("trainer.threads=4 for all" in told) == (asked is None and given < 4)


@pytest.mark.usefixtures("_four")
def test_the_quickest_number_is_looked_for_among_halves(monkeypatch):
    seen = []
    monkeypatch.setattr(threads, "_SECONDS", 1e-4)
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    assert threads._quickest(4) in (4, 2, 1)
    assert set(seen) == {4, 2, 1}
    assert threads._quickest(1) == 1


@pytest.mark.usefixtures("_four")
@pytest.mark.parametrize(("device", "given"), [("cpu", 2), ("cuda", 4)])
def test_what_looks_into_a_model_has_the_quickest_number(capsys, monkeypatch, device, given):
    class Looking:
        device = "cpu"

        @on_quickest_threads
        def run(self):
            return torch.get_num_threads()

    monkeypatch.setattr(threads, "_quickest", lambda most: 2)
    looking = Looking()
    looking.device = device
    assert looking.run() == given
    assert torch.get_num_threads() == 4
    assert ("working on 2 of 4 threads" in capsys.readouterr().err) == (given < 4)
