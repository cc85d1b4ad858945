"""The check on a GPU, tried without one."""

import subprocess
import sys
from functools import partial

import pytest
import torch

from benchmarks.gpu_machine import Machine
from tests.pages import ROOT


def run(*words):
    command = [sys.executable, "-m", "benchmarks.gpu", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_it_passes_on_a_cpu_in_a_tiny_form():
    done = run("--cpu", "--only", "graphs,waits,resume,compile,shapes,train,search")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "all passed"
    assert "resume, deterministic equal: rerun True, resumed True" in done.stdout


@pytest.mark.exhaustive
def test_every_mechanism_passes_on_a_cpu():
    assert run("--cpu", "--only", "parity,decode,captured").returncode == 0


def test_what_it_does_not_know_or_cannot_do_is_said_in_one_line():
    assert "--only must be from parity,decode,graphs," in run("--cpu", "--only", "speed").stderr
    if not torch.cuda.is_available():
        assert "no GPU available; use --cpu to test the program" in run().stderr


def test_a_failed_check_and_one_that_raises_are_remembered(capsys):
    machine = Machine(tiny=True)
    machine.guarded("raises", partial(int, "x"))
    machine.guarded("fails", partial(machine.say, False, "fails"))
    machine.guarded("passes", partial(machine.say, True, "passes"))
    assert machine.failed == ["raises", "fails"]
    assert [line[:4] for line in capsys.readouterr().out.splitlines()] == ["FAIL", "FAIL", "ok  "]
