"""Training in several processes, started here or by torchrun or SLURM."""

import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import get_args_parser
from torch.distributed.run import run as start_ranks

from seqattn.errors import Stopped, UserError
from seqattn.processes import HANGUP, write_utf8
from seqattn.screen import log_to, say
from seqattn.settings.nodes import build_subcommand
from seqattn.storage import temporary_directory
from seqattn.training.rank_messages import rank_messages
from seqattn.training.ranks import rank
from seqattn.training.result import TrainingResult
from seqattn.training.resume import LOG
from seqattn.training.settings import TrainingSettings

_SETTINGS, _ENDED = "settings.yaml", "ended.yaml"
_PROCESS, _SUBCOMMAND = "seqattn.training.launched", "seqattn.training.train.Training"


def launch(run: TrainingSettings) -> TrainingResult:
    """Start a process for each device of this machine, and return the result.

    If one dies, all are restarted from the last checkpoint.

    Raises:
        UserError: if a rank raised it, or ranks died more often than `trainer.restarts` allows.
        Stopped: if a signal has ended the training.
    """
    for name in logging.root.manager.loggerDict:  # one line here replaces its reports
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    with _restored_process(), temporary_directory() as folder:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # the user's packages
        threads = max(1, (os.cpu_count() or 1) // run.trainer.ranks)
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
        if signal.getsignal(HANGUP) == signal.SIG_IGN:  # under nohup
            os.environ.setdefault("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGQUIT")
        settings = {**run.settings, "resume": run.resume or "auto"}  # resolved by now
        (folder / _SETTINGS).write_text(yaml.safe_dump(settings), encoding="utf-8")
        ranks = ["--standalone", f"--nproc-per-node={run.trainer.ranks}", "--monitor-interval=0.1"]
        options = [f"--log-dir={folder}", "-m", _PROCESS]  # or a folder of logs would remain
        own = [str(os.getpid()), run.run_dir, str(folder)]
        arguments = get_args_parser().parse_args([*ranks, *options, *own])
        left = run.trainer.restarts
        try:
            while not _started(arguments, folder, left, Path(run.run_dir) / LOG):
                left -= 1
        except SignalException as error:
            _raise_error(folder)
            raise Stopped(int(error.sigval)) from error
    return TrainingResult.load(Path(run.run_dir))


@contextmanager
def _restored_process() -> Iterator[None]:
    """Restore the environment and signal handlers, which PyTorch sets, after the block.

    This process may continue, for example with another job of a multirun.
    """
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


def _started(arguments: Any, folder: Path, left: int, log: Path) -> bool:
    """Run all ranks; return False if they must be restarted, which is allowed `left` times."""
    try:
        start_ranks(arguments)
        return True
    except ChildFailedError as error:
        _raise_error(folder)
        number, failure = error.get_first_failure()
        how = failure.signal_name() if failure.exitcode < 0 else f"exit code {failure.exitcode}"
        if log.parent.is_dir():
            log_to(log)  # the first rank's; for this line, or the last one of `Training.run`
        if left == 0:
            raise UserError(f"rank {number} died ({how}; message above)") from error
        again = f"restarting all ranks from the last checkpoint (trainer.restarts: {left} left)"
        say(f"rank {number} died ({how}); {again}")
        log_to(None)
        return False


def _raise_error(folder: Path) -> None:
    """Raise the exception that a rank has written, if any."""
    file = folder / _ENDED
    if file.is_file():
        ended = yaml.safe_load(file.read_text(encoding="utf-8"))
        raise Stopped(*ended) if isinstance(ended, list) else UserError(ended)


def run_rank(folder: Path) -> int:
    """Train as one of several processes; return its exit code."""
    write_utf8()
    settings = yaml.safe_load((folder / _SETTINGS).read_text(encoding="utf-8"))
    try:
        build_subcommand(_SUBCOMMAND, settings).run()
    except UserError as error:
        if rank_messages.fail(str(error)):
            (folder / _ENDED).write_text(yaml.safe_dump(str(error)), encoding="utf-8")
        return 2
    except Stopped as stop:
        if rank() == 0:
            (folder / _ENDED).write_text(yaml.safe_dump([stop.signal, stop.step]), encoding="utf-8")
        return stop.code
    except RuntimeError as error:
        if not re.search("gloo.*Connection (closed|reset) by peer", str(error)):
            raise
        print(f"rank {rank()} lost its connection to another rank", file=sys.stderr)
        return 1
    return 0
