"""Several processes that train together: started here, or by torchrun or SLURM."""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import get_args_parser
from torch.distributed.run import run as start_ranks

from seqattn.bundle.nodes import build_verb
from seqattn.errors import Stopped, UserError
from seqattn.processes import write_utf8
from seqattn.training.finish import TrainingResult
from seqattn.training.options import TrainingOptions
from seqattn.training.rendezvous import rendezvous
from seqattn.training.run_directory import rank, world_size
from seqattn.training.trainer_options import TrainerOptions

_SETTINGS, _ENDED = "settings.yaml", "ended.yaml"
_RANK, _VERB = "seqattn.training.rank", "seqattn.training.train.Training"


def as_started(trainer: TrainerOptions) -> dict[str, Any]:
    """Return the settings of the devices and machines that torchrun or SLURM has started ranks on.

    Empty where this is the only process.

    Raises:
        UserError: where the options ask for others.
    """
    if world_size() == 1:
        return {}
    names = ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE")
    found = next((int(os.environ[name]) for name in names if os.environ.get(name)), None)
    nodes = int(os.environ.get("SLURM_NNODES") or trainer.num_nodes)
    here = found or world_size() // nodes
    nodes = world_size() // here
    asked = trainer.devices == "auto" or trainer.ranks in (1, here)
    if not asked or trainer.num_nodes not in (1, nodes) or here * nodes != world_size():
        raise UserError(
            f"{world_size()} ranks were started, {here} on a machine; trainer.devices must be "
            f"{here} and trainer.num_nodes {nodes}: leave both out"
        )
    devices = trainer.devices if trainer.ranks == here else here
    return {"devices": devices, "num_nodes": nodes}


def launch(run: TrainingOptions) -> TrainingResult:
    """Starts a process for each device of this machine, and waits for the result.

    Where one dies, all are started again from the last checkpoint.

    Raises:
        UserError: as a rank's, or where one died more often than `trainer.restarts` allows.
        Stopped: where a signal has ended the training.
    """
    for name in logging.root.manager.loggerDict:  # what it says of an end is said here in a line
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    with _as_it_was(), TemporaryDirectory(prefix="seqattn-") as room:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # user's own packages
        threads = max(1, (os.cpu_count() or 1) // run.trainer.ranks)
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
        given = {**run.settings, "resume": run.resume or "auto"}  # which has been decided by now
        (Path(room) / _SETTINGS).write_text(yaml.safe_dump(given), encoding="utf-8")
        ranks = ["--standalone", f"--nproc-per-node={run.trainer.ranks}", "--monitor-interval=0.1"]
        kept = [f"--log-dir={room}", "-m", _RANK]  # or a folder for logs would stay
        arguments = get_args_parser().parse_args([*ranks, *kept, str(os.getpid()), room])
        left = run.trainer.restarts
        try:
            while not _started(arguments, Path(room), left):
                left -= 1
        except SignalException as error:
            _raise_told(Path(room))
            raise Stopped(int(error.sigval)) from error
    return TrainingResult.kept(Path(run.run_dir))


@contextmanager
def _as_it_was() -> Iterator[None]:
    """A block that leaves the environment and the handlers of signals, which PyTorch sets, to what
    this process does next, such as another job of a multirun."""
    environment = dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        yield
    finally:
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        for number, handler in handlers.items():
            if handler is not None and signal.getsignal(number) != handler:
                signal.signal(number, handler)


def _started(arguments: Any, room: Path, left: int) -> bool:
    """Runs all ranks; False where they must start again, which they may so many times."""
    try:
        start_ranks(arguments)
        return True
    except ChildFailedError as error:
        _raise_told(room)
        number, failure = error.get_first_failure()
        how = failure.signal_name() if failure.exitcode < 0 else f"exit code {failure.exitcode}"
        if left == 0:
            raise UserError(f"rank {number} died ({how}), see above") from error
        again = f"all start again from the last checkpoint (trainer.restarts, {left} left)"
        print(f"rank {number} died ({how}); {again}", file=sys.stderr)
        return False


def _raise_told(room: Path) -> None:
    """Raises what a rank has written of its end, if one has."""
    told = room / _ENDED
    if told.is_file():
        found = yaml.safe_load(told.read_text(encoding="utf-8"))
        raise Stopped(*found) if isinstance(found, list) else UserError(found)


def run_rank(room: Path) -> int:
    """Trains as one of several processes; returns its exit code."""
    write_utf8()
    settings = yaml.safe_load((room / _SETTINGS).read_text(encoding="utf-8"))
    try:
        build_verb(_VERB, settings).run()
    except UserError as error:
        if rendezvous.refuse(str(error)):
            (room / _ENDED).write_text(yaml.safe_dump(str(error)), encoding="utf-8")
        return 2
    except Stopped as stop:
        if rank() == 0:
            (room / _ENDED).write_text(yaml.safe_dump([stop.signal, stop.step]), encoding="utf-8")
        return stop.code
    return 0
