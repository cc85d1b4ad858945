"""`seqattn VERB ...`: the verbs, and how each ends."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from seqattn.errors import UserError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `seqattn VERB [name=value ...]`; gives the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        from seqattn.cli.help import overview

        print(overview())
        return 0
    return run_verb(arguments[0], arguments[1:])


def run_verb(verb: str, arguments: Sequence[str]) -> int:
    """Runs a verb: 0 when it is done, 2 with one line where the user must mend something."""
    try:
        _dispatch(verb, list(arguments))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError) as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 0


def _dispatch(verb: str, arguments: list[str]) -> None:
    from seqattn.cli import help as help_page

    verbs = _verbs()
    if verb not in verbs:
        raise UserError(f"there is no verb {verb}; the verbs are: {', '.join(verbs)}")
    if "-h" in arguments or "--help" in arguments:
        print(help_page.page(verb))
        return
    for flag in ("-m", "--multirun"):
        if flag in arguments:
            _multirun(verb, [argument for argument in arguments if argument != flag])
            return
    if "--cfg" in arguments:
        from omegaconf import OmegaConf

        from seqattn.cli.config import compose_config

        rest = [argument for argument in arguments if argument not in ("--cfg", "job")]
        print(OmegaConf.to_yaml(compose_config(verb, rest)), end="")
        return
    wrong = [argument for argument in arguments if argument.startswith("-")]
    if wrong:
        raise UserError(f"there is no option {wrong[0]}; the options are --help, --cfg job, -m")
    verbs[verb]()(arguments)


def _verbs() -> dict[str, Callable[[], Callable[[Sequence[str]], None]]]:
    """Each verb's function, imported when it is needed."""

    def _train() -> Callable[[Sequence[str]], None]:
        from seqattn.cli.train import train

        return train

    def _generate() -> Callable[[Sequence[str]], None]:
        from seqattn.cli.generate import generate

        return generate

    def _evaluate() -> Callable[[Sequence[str]], None]:
        from seqattn.cli.evaluate import evaluate

        return evaluate

    def _compare() -> Callable[[Sequence[str]], None]:
        from seqattn.cli.compare import compare

        return compare

    def _analyze() -> Callable[[Sequence[str]], None]:
        from seqattn.cli.analyze import analyze

        return analyze

    def _benchmark() -> Callable[[Sequence[str]], None]:
        from seqattn.cli.benchmark import benchmark

        return benchmark

    def _convert() -> Callable[[Sequence[str]], None]:
        from seqattn.cli.convert import convert

        return convert

    return {
        "train": _train,
        "generate": _generate,
        "evaluate": _evaluate,
        "compare": _compare,
        "analyze": _analyze,
        "benchmark": _benchmark,
        "convert": _convert,
    }


def _multirun(verb: str, overrides: list[str]) -> None:
    """Runs every combination of comma-separated values, each as a process of its own."""
    from seqattn.cli.config import compose_config, sweep

    jobs = sweep(overrides)
    for job in jobs:
        compose_config(verb, job)  # a typo is refused before any work
    base = next((o.partition("=")[2] for o in overrides if o.startswith("run_dir=")), None)
    failed = []
    for number, job in enumerate(jobs):
        if base and len(jobs) > 1:
            job = [o for o in job if not o.startswith("run_dir=")]
            job.append(f"run_dir={Path(base) / str(number)}")
        print(f"job {number + 1} of {len(jobs)}: {' '.join(job)}", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "seqattn.cli.main", verb, *job]
        if subprocess.run(command, check=False).returncode:
            failed.append(number + 1)
    if failed:
        raise UserError(f"jobs {', '.join(map(str, failed))} of {len(jobs)} failed, see above")


if __name__ == "__main__":
    sys.exit(main())
