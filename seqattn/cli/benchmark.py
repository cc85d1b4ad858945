"""`benchmark`: our speed, or scores, beside those of what one would use instead."""

import os
import sys
from pathlib import Path

from omegaconf import DictConfig

from seqattn.bundle.nodes import build
from seqattn.config.check import check_keys
from seqattn.config.compose import choices_of, settle
from seqattn.errors import UserError

_NAMED = {"attentions": "attention", "positions": "position"}
"""Keys of a suite that name choices, by the group of these."""


def benchmark(config: DictConfig) -> None:
    """Runs the verb as Hydra composed it."""
    settings = settle("benchmark", config)
    check_keys("benchmark", settings)
    output = settings["output"] and Path(settings["output"]).expanduser()
    if output and not output.parent.is_dir():
        raise UserError(f"output={output}: its directory is not there; make it first")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or torch's profiler tells of every start
    from seqattn.benchmarks.suite import write_figures  # torch takes seconds to import

    node = dict(settings["suite"])
    for key in _NAMED.keys() & node.keys():
        node[key] = choices_of(_NAMED[key], node[key])
    rows = build(node, "suite").run()
    if output:
        write_figures(output, settings, rows)
        print(f"written to {output}", file=sys.stderr)
