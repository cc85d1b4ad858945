"""`seqattn SUBCOMMAND ...` or `python -m seqattn ...`; help imports neither Hydra nor torch."""

import sys
from collections.abc import Sequence

from seqattn import __version__
from seqattn.processes import end_quietly


def main(argv: Sequence[str] | None = None) -> int:
    """Run `seqattn SUBCOMMAND [key=value ...]` and return the exit code."""
    first, *arguments = list(sys.argv[1:] if argv is None else argv) or ["help"]
    folder = arguments[:1] and arguments[0].startswith(("--config-dir", "-cd"))
    if first in ("-h", "--help", "help") and (folder or not arguments):
        from seqattn.cli.help_page import subcommands

        lines = "\n".join(f"  {name:<13} {about}" for name, about in subcommands(arguments).items())
        page = (
            f"usage: seqattn SUBCOMMAND [key=value ...]\n\n{lines}\n\n"
            "Run seqattn SUBCOMMAND --help for details, seqattn --version for the version."
        )
    elif not arguments and first in ("-V", "--version", "version"):
        page = f"seqattn {__version__}"
    else:
        from seqattn.cli.main import run_subcommand  # Hydra takes a quarter of a second to import

        if first in ("-h", "--help", "help"):
            first, *arguments = *arguments, "--help"
        return run_subcommand(first, arguments)
    try:
        print(page, flush=True)
    except BrokenPipeError:
        return end_quietly()
    return 0


if __name__ == "__main__":
    sys.exit(main())
