"""Whether the chosen attention and position fit the chosen model, asked before any work."""

from collections.abc import Mapping
from typing import Any

import yaml
from hydra.utils import get_class

from seqattn.cli.config import CONF, SLOTS, groups
from seqattn.errors import UserError

Config = Mapping[str, Any]


def is_recurrent(config: Config) -> bool:
    """Whether the model of a resolved configuration is recurrent."""
    from seqattn.models.recurrent import RecurrentConfig

    return issubclass(get_class(config["model"]["_target_"]), RecurrentConfig)


def check_fit(config: Config) -> None:
    """Refuses an attention or position that the chosen model has no use for.

    Raises:
        UserError: naming what fits.
    """
    recurrent = is_recurrent(config)
    choices = config.get("choices", {})
    model = choices.get("model", "rnn" if recurrent else "transformer")
    for slot in SLOTS:
        nodes = config.get(slot)
        if nodes is None:
            continue
        key = slot if slot == "attention" else f"attention@{slot}"
        if recurrent and (slot != "attention" or isinstance(nodes, list)):
            raise UserError(
                f"model={model} has one attention, from the decoder to the source; choose it as "
                f"attention=NAME, of {', '.join(fitting(recurrent))}"
            )
        for node in nodes if isinstance(nodes, list) else [nodes]:
            if not _fits(node["_target_"], recurrent):
                raise UserError(
                    f"model={model} cannot use {key}={choices.get(key, 'NAME')}; it takes "
                    f"{', '.join(fitting(recurrent))}"
                )
    if recurrent and config["position"]["_target_"] != "seqattn.positions.Position":
        raise UserError(
            f"model={model} knows positions by its recurrence and cannot use "
            f"position={choices.get('position', 'NAME')}; leave it out, or set position=none"
        )


def fitting(recurrent: bool) -> list[str]:
    """The names in conf/attention that fit a recurrent model, or those that fit a Transformer."""
    found = []
    for name in groups()["attention"]:
        node = yaml.safe_load((CONF / "attention" / f"{name}.yaml").read_text(encoding="utf-8"))
        if _fits(node["_target_"], recurrent):
            found.append(name)
    return found


def _fits(target: str, recurrent: bool) -> bool:
    from seqattn.attention.alignment import Alignment
    from seqattn.attention.base import Attention

    return issubclass(get_class(target), Alignment if recurrent else Attention)
