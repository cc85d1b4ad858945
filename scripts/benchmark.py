"""`python scripts/benchmark.py suite=training data.root=DIR`; `--help` says what it takes."""

import sys

from seqattn.cli.main import run_verb

if __name__ == "__main__":
    sys.exit(run_verb("benchmark", sys.argv[1:]))
