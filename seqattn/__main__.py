"""`seqattn SUBCOMMAND ...` or `python -m seqattn ...`; help imports neither Hydra nor torch."""

import sys
from collections.abc import Sequence

from seqattn import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run `seqattn SUBCOMMAND [key=value ...]` and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        from seqattn.cli.help_page import verbs

        lines = "\n".join(f"  {name:<13} {about}" for name, about in verbs().items())
        print(f"usage: seqattn SUBCOMMAND [key=value ...]\n\n{lines}\n")
        print("Run seqattn SUBCOMMAND --help for details, seqattn --version for the version.")
        return 0
    if arguments == ["--version"]:
        print(f"seqattn {__version__}")
        return 0
    from seqattn.cli.main import run_verb  # Hydra takes a quarter of a second to import

    return run_verb(arguments[0], arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
