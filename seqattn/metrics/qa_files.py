"""Predictions in the files that SQuAD's official scorers read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqattn.errors import UserError
from seqattn.storage import read_json, write_whole


def write_predictions(path: Path, predictions: Mapping[str, str] | Mapping[str, float]) -> None:
    """Writes `{id: text}`, or `{id: probability of no answer}`, as one JSON object.

    The official scripts take the first as their prediction file and, of SQuAD 2.0, the second
    after `--na-prob-file`.

    Args:
        path: the file, whole or not there at all; its folder must be there.
        predictions: by question id.

    Raises:
        UserError: it cannot be written.
    """
    text = json.dumps(dict(predictions), ensure_ascii=False, indent=1)
    write_whole(path, f"{text}\n".encode())


def read_predictions(path: Path) -> dict[str, str]:
    """Reads `{id: text}`.

    Raises:
        UserError: the file is not there or is something else.
    """
    found = _read(path, "{id: text}")
    for name, text in found.items():
        if not isinstance(text, str):
            raise UserError(f"{path} must be {{id: text}}, {name!r} has {text!r}")
    return found


def read_no_answer(path: Path) -> dict[str, float]:
    """Reads `{id: probability of no answer}`.

    Raises:
        UserError: the file is not there or is something else.
    """
    found = _read(path, "{id: probability}")
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"{path} must be {{id: probability}}, {name!r} has {value!r}")
    return {name: float(value) for name, value in found.items()}


def _read(path: Path, form: str) -> dict[str, Any]:
    found = read_json(path, "a file of predictions")
    if not isinstance(found, dict):
        raise UserError(f"{path} must be one JSON object {form}, it is a {type(found).__name__}")
    return found
