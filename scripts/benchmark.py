"""`python scripts/benchmark.py suite=training data.root=DIR`; `--help` lists its settings."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from benchmarks.command import main

    sys.exit(main(sys.argv[1:]))
