"""Model card of a bundle, a page of Markdown."""

from collections.abc import Iterator, Mapping
from typing import Any

from seqattn import __version__
from seqattn.settings.choices import types_at
from seqattn.settings.nodes import TARGET, TYPE, Node, import_path

_SIGNATURE = " signature"


def model_card(
    document: Mapping[str, Node],
    sizes: Mapping[str, int],
    scores: Mapping[str, Any],
    cost: Mapping[str, str],
) -> str:
    """Return the card, with a license to be filled in.

    Args:
        document: the bundle's configuration as written to its file.
        sizes: counts by name, such as parameters.
        scores: its scores, with signatures.
        cost: time and steps of training, by name; empty if unknown.
    """
    chosen = dict(document.get("choices") or {})
    name, task = document.get("name", "model"), chosen.get("task", "a task")
    own = " and ".join(f"{size:,} {what}" for what, size in sizes.items())
    origin = document.get("imported")
    parts = {
        "Data": [f"`data={chosen.get('data', 'NAME')}`", *_values(document.get("data"))],
        "Scores": [*_figures(scores)] or ["Not measured."],
        "Settings": [
            *(f"- `{group}={choice}`" for group, choice in chosen.items()),
            f"- `seed={document.get('seed')}`; all other settings are in `config.yaml`",
        ],
        "Training": [f"- {what}: {spent}" for what, spent in cost.items()] or ["Not recorded."],
        "Limits": [*_limits(document)],
    }
    made = (
        f"A `{chosen.get('model', 'model')}` for `task={task}`, trained with seqattn {__version__}."
    )
    if origin:
        made = f"A `{origin}` of Hugging Face, imported by seqattn {__version__}."
        task = origin
        parts |= {
            "Data": ["Those of the original, whose card says more."],
            "Settings": ["All are in `config.yaml`; those of a training are defaults."],
            "Training": ["That of the original."],
        }
    lines = [
        "---",
        "license: unknown  # state how others may use the model; the data's license applies, too",
        f"tags: [seqattn, {task}]",
        "---",
        f"# {name}",
        f"{made} It has {own}.",
        f'```python\nimport seqattn\n\nmodel = seqattn.load("DIR")\nmodel.{_usage(document)}\n```',
        *(f"## {title}\n\n" + "\n".join(section) for title, section in parts.items()),
    ]
    return "\n".join(lines[:4]) + "\n\n" + "\n\n".join(lines[4:]) + "\n"


def _usage(document: Mapping[str, Node]) -> str:
    """Return a call of the bundle, as its task gives it."""
    node: Any = document.get("task") or {}
    known = types_at("task").get(node.get(TYPE))
    usage: str = getattr(known and import_path(known[TARGET]), "usage", 'generate("TEXT")')
    return usage


def _figures(scores: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table of scores, with a note about those of the validation split."""
    rows = {name: value for name, value in scores.items() if not name.endswith(_SIGNATURE)}
    if rows:
        yield "`val/` scores are on the validation split, which also selected the weights.\n"
        yield "| score | value | signature |\n|---|---|---|"
    for name, value in rows.items():
        shown, signature = value, scores.get(name + _SIGNATURE, "")
        if isinstance(value, dict):
            shown, signature = value.get("value"), value.get("signature", "")
        shown = f"{shown:.4g}" if isinstance(shown, float) else shown
        signature = str(signature).replace("|", "\\|")
        yield f"| {name} | {shown} | {signature} |"


def _limits(document: Mapping[str, Node]) -> Iterator[str]:
    loader = document.get("loader") or {}
    lengths = ("max_length", "max_source_length", "window", "max_question")
    read = [f"`{key}={loader[key]}`" for key in lengths if loader.get(key)]
    trained = not document.get("imported")
    if trained:
        yield "- Trained only on the data above; other topics, styles and languages are untested."
    if trained and read:
        yield f"- Trained on texts of at most {', '.join(read)} tokens."
    if not (document.get("tokenizer") or {}).get("byte_fallback"):
        yield "- Characters that are not in its vocabulary are treated as unknown."
    yield (
        "- Outputs can be wrong and can reflect biases in the data; only the scores above were "
        "measured."
    )


def _values(node: Node) -> Iterator[str]:
    for key, value in node.items() if isinstance(node, dict) else ():
        if key != TYPE and value is not None and value != "???" and key != "files":
            yield f"- `{key}`: {value}"
