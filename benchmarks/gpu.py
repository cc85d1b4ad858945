"""Check training and decoding on one GPU, in a few minutes.

    python -m benchmarks.gpu [--cpu] [--only parity,decode,graphs,waits,...]

Results are compared with the CPU's, synchronizations with the GPU are counted, a training run is
stopped and resumed, and speeds are printed. `--cpu` tests the program itself with tiny sizes. Exits
with 1 if a check failed.
"""

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read before the first product

import torch

import seqattn
from benchmarks.gpu_machine import Machine
from benchmarks.gpu_models import (
    CHOOSING,
    DECODERS,
    LONG,
    MODELS,
    Make,
    batch,
    loss_of,
    transformer,
)
from benchmarks.gpu_speed import (
    captured_passes,
    compiled,
    decoding_speed,
    graphs,
    new_shapes,
    training_speed,
    waits,
)
from benchmarks.gpu_training import resumed
from seqattn.generation import GreedySearch, LengthLimit
from seqattn.generation.base import Search
from seqattn.generation.beam import BeamSearch
from seqattn.generation.generator import Generator
from seqattn.models.base import Seq2SeqModel
from seqattn.positions import RotaryPosition

Kind = torch.dtype | None
"""Precision of autocast; None for float32."""
_MOST: dict[Kind, float] = {None: 2e-3, torch.bfloat16: 0.25, torch.float16: 0.05}
"""Tolerance of a gradient's distance from the CPU's, relative to its norm."""


def gradient(
    model: Seq2SeqModel, machine: Machine, kind: Kind, device: torch.device, longest: int
) -> tuple[float, torch.Tensor]:
    """Return the loss of a batch and the gradients of all weights, on the host in float64."""
    pairs = batch(3, longest).to(device)
    model = model.to(device).train()
    with torch.autocast(device.type, dtype=kind or torch.bfloat16, enabled=kind is not None):
        loss = loss_of(model, pairs)
    scale = 1024 if kind == torch.float16 else 1
    (scale * loss).backward()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    return float(loss.detach()), torch.cat([x.flatten().double().cpu() / scale for x in gradients])


def check_parity(machine: Machine) -> None:
    """Check that losses and gradients of every mechanism match the CPU's."""
    for name, make in MODELS.items():
        machine.guarded(f"parity {name}", partial(_parity, machine, name, make))


def _parity(machine: Machine, name: str, make: Make) -> None:
    longest = 20 if machine.tiny else 1200 if name == LONG else 90
    wanted_loss, wanted = gradient(make(), machine, None, torch.device("cpu"), longest)
    good, said = True, []
    for kind, most in _MOST.items():
        if machine.tiny and kind and "recurrent" in name:
            continue  # not on a CPU in half precision
        loss, gradients = gradient(make(), machine, kind, machine.device, longest)
        off = float((gradients - wanted).norm() / wanted.norm())
        near = off < most or (kind is not None and name in CHOOSING)
        good &= near and abs(loss - wanted_loss) < (0.05 if kind else 2e-4)
        good &= bool(gradients.isfinite().all())
        said.append(f"{str(kind or torch.float32)[6:]} {off:.1e}")
    machine.say(good, f"parity {name}", ", ".join(said))


def check_decoding(machine: Machine) -> None:
    """Check that searches match the CPU's; nearly equal scores may change an output."""
    ids = batch(8, 8 if machine.tiny else 24, seed=3).source.tolist()
    sources = [[token for token in row if token] for row in ids]
    limit = LengthLimit(1.0, 4)
    searches: list[Search] = [
        GreedySearch(limit, workers=1), BeamSearch(limit, beam_size=3, workers=1)
    ]  # fmt: skip
    for name in DECODERS:
        for search in searches:
            machine.guarded(f"decode {name}", partial(_decoding, machine, name, search, sources))


def _decoding(machine: Machine, name: str, search: Search, sources: list[list[int]]) -> None:
    model = transformer(decoder=DECODERS[name], position=RotaryPosition).eval()
    ours, theirs = (
        Generator(model.to(device), search).generate(sources)
        for device in (torch.device("cpu"), machine.device)
    )
    firsts = [(one[0], other[0]) for one, other in zip(ours, theirs, strict=True)]
    gaps = [abs(x.log_probability - y.log_probability) for x, y in firsts if x.ids == y.ids]
    good = len(gaps) >= 7 and max(gaps) < 1e-2
    text = f"{len(gaps)} of {len(firsts)} identical, scores {max(gaps, default=9):.0e} apart"
    machine.say(good, f"decode {name} {type(search).__name__}", text)


def check_resuming(machine: Machine) -> None:
    """Check that a resumed run equals the uninterrupted one, bitwise if deterministic."""
    for strict in (False, True):
        uninterrupted, again, stopped = resumed(machine, strict)
        same = torch.equal(uninterrupted, again), torch.equal(uninterrupted, stopped)
        name = "resume, deterministic" if strict else "resume"
        gap = float((uninterrupted - stopped).abs().max())
        good = all(same) if strict else gap < 1e-2
        machine.say(good, name, f"equal: rerun {same[0]}, resumed {same[1]}; gap {gap:.1e}")


CHECKS: dict[str, Callable[[Machine], Any]] = {
    "parity": check_parity,
    "decode": check_decoding,
    "graphs": graphs,
    "captured": captured_passes,
    "waits": waits,
    "resume": check_resuming,
    "compile": compiled,
    "shapes": new_shapes,
    "train": training_speed,
    "search": decoding_speed,
}


def main() -> int:
    """Run the requested checks and return the exit code."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--cpu", action="store_true", help="run with tiny sizes on the CPU")
    arguments.add_argument("--only", default=",".join(CHECKS), help="checks to run, as a,b")
    options = arguments.parse_args()
    unknown = set(options.only.split(",")) - CHECKS.keys()
    if unknown:
        arguments.error(f"--only must be from {','.join(CHECKS)}, got {','.join(sorted(unknown))}")
    if not options.cpu and not torch.cuda.is_available():
        arguments.error("no GPU available; use --cpu to test the program")
    machine = Machine(options.cpu)
    torch.backends.cudnn.allow_tf32 = False  # its default for RNNs would hide errors
    print(f"seqattn {seqattn.__version__}, torch {torch.__version__}, {machine.name}")
    for name in options.only.split(","):
        machine.guarded(name, partial(CHECKS[name], machine))
    print(f"{len(machine.failed)} failed: {machine.failed}" if machine.failed else "all passed")
    return bool(machine.failed)


if __name__ == "__main__":
    sys.exit(main())
