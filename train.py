"""`python train.py attention=gqa`; `--help` says what it takes."""

import sys

from seqattn.cli.main import run_subcommand

if __name__ == "__main__":
    sys.exit(run_subcommand("train", sys.argv[1:]))
