"""How the scores of an evaluation are written and shown."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqattn.metrics.text import TextScore

Config = dict[str, Any]


def output_directory(settled: Mapping[str, Any]) -> Path:
    """Where an evaluation goes, made if absent."""
    default = Path(settled["bundle"]).parent / "evaluation" / settled["split"]
    output = Path(settled["output"] or default).expanduser()
    output.mkdir(parents=True, exist_ok=True)
    return output


def write_json(path: Path, content: Any) -> None:
    """Writes JSON that a person can read."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def plain_scores(scores: Sequence[TextScore]) -> Config:
    """Values and signatures by name."""
    rows: Config = {}
    for score in scores:
        rows[score.name] = {"value": score.value, "signature": score.signature}
        if score.interval is not None:
            rows[score.name]["interval"] = list(score.interval)
    return rows


def score_rows(scores: Sequence[TextScore]) -> dict[str, str]:
    """Scores as rows of a table."""
    rows = {}
    for score in scores:
        within = score.interval
        spread = f" ({within[0]:.2f} to {within[1]:.2f})" if within else ""
        rows[score.name] = f"{score.value:.2f}{spread}   {score.signature}"
    return rows
