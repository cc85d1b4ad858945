"""Model cards of the Hugging Face Hub, for bundles and their exports."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.files import CARD
from seqattn.data.languages import known_language
from seqattn.errors import UserError
from seqattn.generation.beam import BeamSearch
from seqattn.generation.sampling import GreedySearch, Sampling
from seqattn.inputs import read_bytes
from seqattn.screen import say
from seqattn.settings.nodes import build
from seqattn.storage import is_file

_LICENSES = """
afl-3.0 agpl-3.0 apache-2.0 apple-amlr apple-ascl artistic-2.0 bigcode-openrail-m
bigscience-bloom-rail-1.0 bigscience-openrail-m bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear
bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0
cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0
cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0 cdla-permissive-2.0 cdla-sharing-1.0
creativeml-openrail-m deepfloyd-if-license ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2
gemma gfdl gpl gpl-2.0 gpl-3.0 intel-research isc lgpl lgpl-2.1 lgpl-3.0 lgpl-lr llama2 llama3
llama3.1 llama3.2 llama3.3 llama4 lppl-1.3c mit mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 openmdw-1.0
openrail openrail++ osl-3.0 other pddl postgresql unknown unlicense wtfpl zlib
"""
"""Identifiers of licenses on the hub."""


def left_out(bundle: Bundle) -> list[str]:
    """Return the parts of a bundle that its export for transformers does not have."""
    config, search = bundle.config, bundle.search()
    parts = {
        "calibration of quality=true": config.get("calibration"),
        "alignment settings": config.get("alignment"),
        "splitting of texts into lines": bundle.reads_lines,
        "splitting of lines into sentences": config.get("text_options"),
        "copying of lines without a letter": bundle.copies_letterless,
        f"long_sources={bundle.loader.long_sources}": bundle.loader.long_sources != "drop",
        f"{search} (sampling instead)": type(search) not in (GreedySearch, BeamSearch, Sampling),
        "coverage_penalty": getattr(search, "coverage_penalty", 0),
        "length limit by the source, unless max_new_tokens is set": search.limit.ratio,
        "settings of training and data": True,
    }
    return [part for part, is_there in parts.items() if is_there]


def hub_card(bundle: Bundle, usage: str, missing: Sequence[str] | None, license: str | None) -> str:
    """Return a bundle's own card, as a person left it, with metadata for the hub.

    Args:
        bundle: the bundle.
        usage: how to run an export, instead of how to run the bundle.
        missing: parts of the bundle that an export does not have; None for the bundle itself.
        license: as the hub names it; None for that of the own card.
    """
    file, config, scores = bundle.path / CARD, bundle.config, bundle.scores
    text = read_bytes(file).decode(errors="replace") if is_file(file) else "---\n\n---\n"
    try:
        card: Any = ModelCard(text, ignore_metadata_errors=True)
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise UserError(f"{file} has invalid metadata; mend the YAML between its dashes") from error
    data, choices = card.data, config.get("choices", {})
    data.license = license or (None if data.license == "unknown" else data.license)
    if not data.license:
        say("the card names no license; set license=ID, such as apache-2.0")
    elif data.license not in _LICENSES.split():
        page = "https://huggingface.co/docs/hub/repositories-licenses"
        raise UserError(f"unknown license={data.license}; use one of {page}, such as mit")
    task, dataset = choices.get("task", "unknown"), choices.get("data", "unknown")
    data.library_name = "seqattn" if missing is None else "transformers"
    data.pipeline_tag = task if task in ("translation", "summarization") else data.pipeline_tag
    if not config.get("imported"):  # whose data are unknown
        with suppress(UserError, KeyError):
            source = build(config["data"], "data")
            name = getattr(getattr(source, "hub", source), "dataset", None)
            data.datasets, dataset = data.datasets or (name and [name]), name or dataset
            names = {**config["data"], **getattr(source, "suffixes", {})}
            sides = [str(names[key]) for key in names if key.startswith(("source", "target"))]
            if task == "translation" and not data.language:
                codes = [known_language(side)[1] for side in sides if known_language(side)]
                data.language = [*dict.fromkeys(codes)] or None
    data.eval_results = [
        EvalResult(
            task, dataset, dataset, name.rpartition("/")[2].lower(), round(value, 2),
            dataset_split=name.partition("/")[0], metric_args={"signature": signature},
        )
        for name, value in scores.items()
        if (signature := scores.get(f"{name} signature"))
    ] or data.eval_results  # fmt: skip
    data.model_name = data.eval_results and config.get("name", "model")
    if missing is not None:
        text = card.text.replace("in `config.yaml`", "in the bundle's `config.yaml`")
        head, begin, sections = text.partition("\n## ")
        parts = "".join(f"- {part}\n" for part in missing)
        usage += f"\n## Left out\n\nThe files lack these parts of the bundle:\n\n{parts}"
        card.text = head.partition("```")[0].rstrip() + f"\n\n{usage}{begin}{sections}"
    return str(card)
