"""Import of encoder-decoders of Hugging Face as bundles."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from seqattn import __version__
from seqattn.bundle.files import write_bundle
from seqattn.errors import UserError
from seqattn.extras.exchange.families import Family, family
from seqattn.extras.exchange.hf_folder import CONFIG, HFFolder, local_folder
from seqattn.extras.exchange.hf_generation import recommended_search
from seqattn.extras.exchange.hf_tokenizers import FAMILIES, ImportedTokenizer, read_tokenizer
from seqattn.extras.exchange.parity import (
    Comparison,
    check_imported_ids,
    compared,
    expected,
    has_transformers,
)
from seqattn.models.transformer import Transformer
from seqattn.screen import print_table, say
from seqattn.settings.assembly import Architecture, Vocabularies
from seqattn.settings.choices import choices
from seqattn.settings.documents import CONFIG as BUNDLE_CONFIG
from seqattn.settings.documents import WEIGHTS
from seqattn.settings.meta_device import on_meta_device
from seqattn.settings.nodes import Node
from seqattn.storage import default_cache, is_file, real_path
from seqattn.subcommands.provenance import Provenance, digests
from seqattn.training.run_directory import room_for_files

FORBIDDEN = -1e3
"""Output bias of a token without a logit: its probability is 0 in float32, and losses finite."""


_PARTS = {
    "task": "translation",
    "data": "demo_translation",
    "loader": "pairs",
    "tokenizer": "unigram",
    "generation": "beam",
    "optimizer": "adamw",
    "schedule": "inverse_sqrt",
    "trainer": "auto",
}
"""Parts of a bundle that no model brings, and their default choices."""


class Imported(NamedTuple):
    """A model of Hugging Face as ours."""

    nodes: dict[str, Node]
    """Nodes of its architecture."""
    model: Transformer
    tokenizer: ImportedTokenizer
    comparison: Comparison


@dataclass(frozen=True, kw_only=True)
class Import:
    """Import an encoder-decoder of Hugging Face as a bundle.

    Args:
        source: its folder, with safetensors, or its name on the hub.
        output: directory of the bundle.
        source_begin, target_begin: pieces, or codes of languages, that begin every source and
            target; None for what the folder says.
        task, data, loader, tokenizer, generation, optimizer, schedule, trainer: parts of the bundle
            that no model brings; the size of the vocabulary and the beam are the folder's.
        settings: the plain settings that it was built from.
    """

    source: str
    output: str
    source_begin: list[str] | None = None
    target_begin: list[str] | None = None
    task: Any
    data: Any
    loader: Any
    tokenizer: Any
    generation: Any
    optimizer: Any
    schedule: Any
    trainer: Any
    settings: Mapping[str, Node] = field(default_factory=dict, repr=False)

    def run(self) -> Path:
        """Write the bundle once it reproduces the model's log-probabilities, and return it.

        Raises:
            UserError: if the folder cannot be read, holds what is not supported, or disagrees.
        """
        output = real_path(self.output)
        folder = HFFolder(local_folder(self.source))
        record = self._record(folder)
        if record.is_finished(output, WEIGHTS):
            return output
        with room_for_files(output.parent):
            imported = read_model(folder, self.source_begin, self.target_begin)
            lacking = write(imported, folder, self.settings, output, record)
        rows = {**_sizes(imported), "checked": str(imported.comparison)}
        notes = [lacking] if lacking else []
        notes += [f"written to {self.output}; try: seqattn generate bundle={self.output}"]
        print_table(f"{self.source} imported", rows, notes=notes)
        return output

    def _record(self, folder: HFFolder) -> Provenance:
        keys = ("source_begin", "target_begin", "task", "data", "loader")
        settings = {name: self.settings.get(name) for name in keys}
        contents = {"source": digests(folder.files)}
        return Provenance(settings={"subcommand": "import", **settings}, contents=contents)


def imported_bundle(source: str) -> Path:
    """Import a folder into the cache, unless it is there, and return the bundle.

    It has the settings of a translation by default, which those of a training replace. A bundle on
    the hub is only downloaded.
    """
    downloaded = local_folder(source)
    if is_file(downloaded / BUNDLE_CONFIG) and not is_file(downloaded / CONFIG):
        return downloaded
    folder = HFFolder(downloaded)
    stats = [(file.name, file.stat().st_size, file.stat().st_mtime) for file in folder.files]
    path = folder.path.resolve()
    key = sha256(repr((__version__, path, stats)).encode()).hexdigest()[:16]
    output = default_cache() / "imported" / f"{path.name}-{key}"
    if is_file(output / WEIGHTS):
        return output
    imported = read_model(folder)
    parts = {part: choices(part)[name] for part, name in _PARTS.items()}
    lacking = write(imported, folder, parts, output)
    sizes = ", ".join(f"{value} {name}" for name, value in _sizes(imported).items())
    sizes += f"; {lacking}" if lacking else ""
    checked = f"{folder.config['model_type']}, {sizes}; checked {imported.comparison}"
    say(f"imported {source} ({checked}) to {output}")
    return output


def write(
    imported: Imported,
    folder: HFFolder,
    settings: Mapping[str, Node],
    output: Path,
    record: Provenance | None = None,
) -> str:
    """Write the bundle of an imported model; return what its search lacks, "" for nothing.

    Args:
        imported: the model.
        folder: its folder.
        settings: nodes of the parts that no model brings, by name.
        output: directory of the bundle.
        record: written with it; None for none.
    """
    rows = imported.tokenizer.target_rows
    search = recommended_search(settings["generation"], folder, rows)
    parts, tokenizer = {name: settings[name] for name in _PARTS}, imported.tokenizer.tokenizer
    size = {"vocab_size": tokenizer.target_size, "joint": tokenizer.joint}
    parts["tokenizer"] = {**parts["tokenizer"], **size}
    parts["generation"] = search.node
    name = re.sub(r"[^\w.-]", "_", folder.path.resolve().name)
    origin = folder.config["model_type"]
    config = {"name": name, **parts, **imported.nodes, "imported": origin}
    beside = record.write if record else lambda directory: None
    write_bundle(output, config, imported.model, tokenizer, {}, beside=beside)
    return str(search)


def _sizes(imported: Imported) -> dict[str, str]:
    return {
        "parameters": f"{sum(parameter.numel() for parameter in imported.model.parameters()):,}",
        "pieces": f"{imported.tokenizer.tokenizer.target_size:,}",
    }


def read_model(
    folder: HFFolder,
    source_begin: Sequence[str] | None = None,
    target_begin: Sequence[str] | None = None,
) -> Imported:
    """Read a folder's model and tokenizer, and compare the model with `transformers`, if installed.

    Args and errors: as `Import`.
    """
    described = family(folder, FAMILIES)
    tokenizer = read_tokenizer(folder.path, folder.config, source_begin, target_begin)
    architecture = Architecture.of(described.nodes)
    sizes = Vocabularies.of(tokenizer.tokenizer)
    try:
        with on_meta_device():
            check_weights(architecture.build(sizes), described, folder, tokenizer)
    except UserError as error:
        raise UserError(f"{folder.path / 'config.json'}: {error}") from error
    unknown = ""
    if has_transformers():
        unknown = check_imported_ids(folder.path, tokenizer, source_begin is not None)
    pairs = expected(folder, tokenizer)  # first, so that one model is in memory at a time
    model = cast(Transformer, architecture.build(sizes).eval())
    fill(model, described, folder, tokenizer)
    try:
        comparison = compared(pairs, model, tokenizer)
    except UserError as error:
        raise UserError(f"source={folder.path}: {error}") from error
    comparison = replace(comparison, unknown=unknown)
    return Imported({**described.nodes}, model, tokenizer, comparison)


def check_weights(
    model: nn.Module, described: Family, folder: HFFolder, tokenizer: ImportedTokenizer
) -> None:
    """Raise UserError for weights that are missing, left over, or not of a model's shapes."""
    names = {name for weight in described.weights for name in weight.foreign_names}
    extra = sorted(folder.shapes.keys() - names - {*described.unused, described.output_bias})
    if extra:
        more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
        raise UserError(f"the weight {extra[0]}{more} is not supported")
    ours = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    for weight in described.weights:
        for name in weight.foreign_names:
            if name not in folder.shapes:
                raise UserError(f"the weight {name} is missing; download the folder again")
        shapes = [folder.shapes[name] or (0,) for name in weight.foreign_names]
        length = sum(shape[0] for shape in shapes) - weight.skipped
        if weight.side is not None:
            largest = max(tokenizer.rows if weight.side == "source" else tokenizer.target_rows)
            if largest >= length:
                raise UserError(
                    f"{weight.foreign_names[0]} has {length:,} rows, and the tokenizer needs "
                    f"{largest + 1:,}; it belongs to another model"
                )
            length = ours[weight.name][0]
        if (length, *shapes[0][1:]) != ours[weight.name]:
            raise UserError(
                f"{weight.foreign_names[0]} is {shapes[0]}, but the model needs {ours[weight.name]}"
            )
    bias, least = folder.shapes.get(described.output_bias or ""), max(tokenizer.target_rows) + 1
    if bias is not None and not (len(bias) == 2 and bias[0] == 1 and bias[1] >= least):
        raise UserError(f"{described.output_bias} is {bias}, but the pieces need (1, {least})")


@torch.no_grad()
def fill(
    model: Transformer, described: Family, folder: HFFolder, tokenizer: ImportedTokenizer
) -> None:
    """Copy the weights of a folder into a model, after `check_weights`."""
    state = model.state_dict()
    unfilled = {tensor.data_ptr() for tensor in state.values()}  # shared ones have several names
    rows = {"source": tokenizer.rows, "target": tokenizer.target_rows}
    for weight in described.weights:
        new, tensor = weight.from_hf(*map(folder.tensor, weight.foreign_names)), state[weight.name]
        if weight.side is None:
            tensor.copy_(new)
        else:
            torch.index_select(new, 0, torch.tensor(rows[weight.side]), out=tensor)
        unfilled.discard(tensor.data_ptr())
    bias = state["head.linear.bias"].zero_()
    if described.output_bias in folder.shapes:
        foreign_bias = folder.tensor(described.output_bias).flatten().float()
        bias.copy_(foreign_bias[tokenizer.target_rows])
    bias[list(tokenizer.lacking)] = FORBIDDEN
    assert unfilled <= {bias.data_ptr()}
