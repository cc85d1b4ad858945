"""Bundles of format 1, which named Python paths: read as what those paths stood for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqattn.bundle.choices import types_at
from seqattn.checking import shown
from seqattn.errors import UserError

FORMAT_1 = "seqattn bundle 1"
_RENAMED: Mapping[str, str] = {}
"""Types that have another name since."""
_TASKS = {
    "pairs": "TextGeneration",
    "answers": "GenerativeAnswering",
    "spans": "ExtractiveAnswering",
}
"""Types of tasks by what they learnt from."""
_TRAINER = ("precision", "gradient_clip_val", "accumulate_grad_batches")
"""What further training takes over from the trainer, which was Lightning's own."""
_WEIGHTS = {"output.": "head.linear.", "copying.gate.": "head.gate."}


def upgraded(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document of format 1 in the words of format 2; no path in it is imported."""
    found = {name: _named(node, name) for name, node in document.items() if name != "trainer"}
    trainer = document.get("trainer")
    if isinstance(trainer, dict):
        kept = {name: trainer[name] for name in _TRAINER if name in trainer}
        found["trainer"] = _typed(kept, "TrainerOptions", "trainer")
    generation = found.get("generation")
    if isinstance(generation, dict) and "no_repeat_ngram" in generation:
        size = generation.pop("no_repeat_ngram")
        if size:
            ban = {"_type_": "NoRepeatNgram", "size": size}
            generation["processors"] = {"no_repeat_ngram": ban}
    if isinstance(found.get("choices"), dict):  # null and lists name no choice
        chosen = found["choices"].items()
        found["choices"] = {group: name for group, name in chosen if isinstance(name, str)}
    task = found.get("task")
    if isinstance(task, dict) and "_type_" not in task:
        learns = _TASKS.get(str(task.pop("learns", "pairs")), "")
        found["task"] = task = _typed(task, learns, "task")
        task["validation"] = _typed(task.get("validation"), "ValidationOptions", "task.validation")
    return found


def weight_name(name: str) -> str:
    """The name of a tensor of format 1 today."""
    for old, new in _WEIGHTS.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def _typed(node: Any, name: str, place: str) -> Any:
    """A node that had no type with the one that it has today, if it has one."""
    return {"_type_": name, **node} if isinstance(node, dict) and name in types_at(place) else node


def _named(node: Any, place: str) -> Any:
    if isinstance(node, list):
        return [_named(part, place) for part in node]
    if not isinstance(node, dict):
        return node
    values = {
        key: _named(value, f"{place}.{key}")
        for key, value in node.items()
        if key not in ("_target_", "_partial_")
    }
    if "_target_" not in node:
        return values
    path = node["_target_"]
    if not isinstance(path, str) or not path.startswith("seqattn."):
        raise UserError(
            f"{place} names {shown(path)}, which is not of seqattn: this bundle is foreign or of "
            "another version"
        )
    name = path.rpartition(".")[2]
    return {"_type_": _RENAMED.get(name, name), **values}
