"""Whether what was chosen fits together, asked before any work."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from hydra.utils import get_class

from seqattn.cli.config import CONF, SLOTS, groups
from seqattn.errors import UserError

Config = Mapping[str, Any]
LEARNS = {
    "pairs": ("transformer", "rnn"),
    "answers": ("transformer", "rnn"),
    "spans": ("span_rnn", "span_transformer"),
}
"""What a task learns from (pairs of texts, questions with answers in words or by spans), and the
models that do."""
_ASKING = ("rnn", "span_rnn")
"""Models with one attention, from one sequence to another, that know positions by recurrence."""


def learns(config: Config) -> str:
    """What the task of a resolved configuration learns from, one of `LEARNS`."""
    task = config.get("task") or {}  # a benchmark has none, and older bundles do not say
    found = str(task.get("learns", "pairs"))
    if found not in LEARNS:
        raise UserError(f"task.learns must be one of {', '.join(LEARNS)}, got {found}")
    return found


def family(config: Config) -> str:
    """The model of a resolved configuration, by its name in conf/model."""
    from seqattn.models.recurrent import RecurrentConfig
    from seqattn.models.span_recurrent import SpanRecurrentConfig
    from seqattn.models.span_transformer import SpanTransformerConfig
    from seqattn.models.transformer import TransformerConfig

    shapes = {
        "transformer": TransformerConfig,
        "rnn": RecurrentConfig,
        "span_rnn": SpanRecurrentConfig,
        "span_transformer": SpanTransformerConfig,
    }
    shape = get_class(config["model"]["_target_"])
    return next(name for name, kind in shapes.items() if issubclass(shape, kind))


def check_fit(config: Config) -> None:
    """Refuses a combination of choices that cannot be.

    Raises:
        UserError: naming what fits.
    """
    _check_task(config)
    _check_slots(config)
    model = family(config)
    if model in _ASKING and config["position"]["_target_"] != "seqattn.positions.Position":
        raise UserError(
            f"model={model} knows positions by its recurrence and cannot use "
            f"position={_chosen(config, 'position')}; leave it out, or set position=none"
        )


def _check_task(config: Config) -> None:
    """Refuses a model, data, batches or a search that a task has no use for."""
    kind, task = learns(config), _chosen(config, "task")
    if family(config) not in LEARNS[kind]:
        raise UserError(
            f"task={task} takes model={' or '.join(LEARNS[kind])}, got "
            f"model={_chosen(config, 'model')}"
        )
    asks = kind != "pairs"
    fits = {
        "data": _is_question_source(config["data"]["_target_"]) == asks,
        "loader": config["loader"]["_target_"].endswith("SpanOptions") == (kind == "spans"),
        "generation": config["generation"]["_target_"].endswith("SpanSearch") == (kind == "spans"),
    }
    for group, fitting_so in fits.items():
        if not fitting_so:
            names = [name for name in groups()[group] if _suits(group, name, kind)]
            raise UserError(
                f"task={task} cannot use {group}={_chosen(config, group)}; it takes "
                f"{', '.join(names)}"
            )


def _suits(group: str, name: str, kind: str) -> bool:
    target = _node(group, name).get("_target_", "")
    if group == "data":
        return _is_question_source(target) == (kind != "pairs")
    return target.endswith(("SpanOptions", "SpanSearch")) == (kind == "spans")


def _is_question_source(target: str) -> bool:
    from seqattn.data.squad import Squad

    return issubclass(get_class(target), Squad)


def _chosen(config: Config, group: str) -> str:
    return str(config.get("choices", {}).get(group, "NAME"))


def _check_slots(config: Config) -> None:
    """Refuses an attention that the model has no place for."""
    model, choices = family(config), config.get("choices", {})
    for slot in SLOTS:
        nodes = config.get(slot)
        if nodes is None:
            continue
        key = slot if slot == "attention" else f"attention@{slot}"
        if model in _ASKING and (slot != "attention" or isinstance(nodes, list)):
            way = "decoder to the source" if model == "rnn" else "context to the question"
            raise UserError(
                f"model={model} has one attention, from the {way}; choose it as "
                f"attention=NAME, of {', '.join(fitting(model))}"
            )
        if model == "span_transformer" and slot == "decoder_attention":
            raise UserError(
                f"model={model} has no decoder; choose attention=NAME, or "
                "attention@encoder_attention=NAME and attention@cross_attention=NAME"
            )
        chosen = choices.get(key, "NAME")
        for node in nodes if isinstance(nodes, list) else [nodes]:
            fits = _fits(node["_target_"], model)
            if not fits or (model == "span_rnn" and not _crosses(chosen)):
                raise UserError(
                    f"model={model} cannot use {key}={chosen}; it takes {', '.join(fitting(model))}"
                )


def fitting(model: str) -> Sequence[str]:
    """The names in conf/attention that fit a model."""
    names = groups()["attention"]
    names = [name for name in names if _fits(_node("attention", name)["_target_"], model)]
    return [name for name in names if _crosses(name)] if model == "span_rnn" else names


def _crosses(name: str) -> bool:
    """Whether one sequence can ask another by it; of a name that is not known, yes."""
    from seqattn.cli.support import attention_of

    attention = attention_of(name) if name in groups()["attention"] else None
    return attention is None or attention.abilities.fits("cross")


def _node(group: str, name: str) -> dict[str, Any]:
    node = yaml.safe_load((CONF / group / f"{name}.yaml").read_text(encoding="utf-8"))
    assert isinstance(node, dict)
    return node


def _fits(target: str, model: str) -> bool:
    from seqattn.attention.alignment import Alignment
    from seqattn.attention.base import Attention

    return issubclass(get_class(target), Alignment if model == "rnn" else Attention)
