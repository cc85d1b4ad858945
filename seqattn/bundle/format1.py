"""Bundles of format 1, which named Python paths: read as what those paths stood for."""

from typing import Any

from seqattn.bundle.nodes import TARGET, TYPE, Node, remarked
from seqattn.checking import shown
from seqattn.errors import UserError

FORMAT_1 = "seqattn bundle 1"
_TASKS = {
    "pairs": "TextGeneration",
    "answers": "GenerativeAnswering",
    "spans": "ExtractiveAnswering",
}
"""Types of tasks by what they learnt from."""
_TRAINER = ("precision", "gradient_clip_val", "accumulate_grad_batches")
"""What further training takes over from the trainer, which was Lightning's own."""
_WEIGHTS = {"output.": "head.linear.", "copying.gate.": "head.gate."}


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """A document of format 1 in the words of format 2; no path in it is imported."""
    trainer = document.pop("trainer", None)
    found = {name: remarked(node, name, _typed) for name, node in document.items()}
    generation, task, choices = (found.get(name) for name in ("generation", "task", "choices"))
    if isinstance(trainer, dict):
        kept = {name: trainer[name] for name in _TRAINER if name in trainer}
        found["trainer"] = {TYPE: "TrainerOptions", **kept}
    if isinstance(generation, dict):
        size = generation.pop("no_repeat_ngram", 0)
        if size:
            ban = {TYPE: "NoRepeatNgram", "size": size}
            generation["processors"] = {"no_repeat_ngram": ban}
    if isinstance(choices, dict):  # null and lists name no choice
        found["choices"] = {key: name for key, name in choices.items() if isinstance(name, str)}
    if isinstance(task, dict):
        learns = str(task.pop("learns", "pairs"))
        found["task"] = {TYPE: _TASKS.get(learns), **task}
        if isinstance(task.get("validation"), dict):
            found["task"]["validation"] = {TYPE: "ValidationOptions", **task["validation"]}
    return found


def weight_name(name: str) -> str:
    """The name of a tensor of format 1 today."""
    for old, new in _WEIGHTS.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def _typed(node: Node, place: str) -> dict[str, Node]:
    if not isinstance(node, dict) or TARGET not in node:
        return {}
    path = node[TARGET]
    if isinstance(path, str) and path.startswith("seqattn."):
        return {TYPE: path.rpartition(".")[2]}
    raise UserError(
        f"{place} names {shown(path)}, which is not of seqattn: this bundle is foreign or of "
        "another version"
    )
