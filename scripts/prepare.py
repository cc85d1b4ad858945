"""`python scripts/prepare.py name=value ...`; `--help` lists its settings."""

import sys

from seqattn.cli.main import run_subcommand

if __name__ == "__main__":
    sys.exit(run_subcommand("prepare", sys.argv[1:]))
