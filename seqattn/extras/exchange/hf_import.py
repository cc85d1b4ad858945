"""Import of encoder-decoders of Hugging Face as bundles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqattn.bundle.architecture import Architecture, Vocabularies
from seqattn.bundle.choices import choices
from seqattn.bundle.documents import WEIGHTS
from seqattn.bundle.files import write_bundle
from seqattn.bundle.nodes import Node, changed
from seqattn.errors import UserError
from seqattn.extras.exchange.families import Family, family
from seqattn.extras.exchange.hf_folder import HFFolder, local_folder
from seqattn.extras.exchange.hf_tokenizers import ImportedTokenizer, read_tokenizer
from seqattn.extras.exchange.parity import Comparison, compared
from seqattn.models.transformer import Transformer
from seqattn.screen import print_table, say
from seqattn.storage import default_cache, is_file, user_path
from seqattn.training.run_directory import room_for_files
from seqattn.verbs.provenance import Provenance, digests

FORBIDDEN = -1e4
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
        output = user_path(self.output).resolve()
        with HFFolder(local_folder(self.source)) as folder:
            record = self._record(folder)
            if record.is_finished(output, WEIGHTS):
                return output
            with room_for_files(output.parent):
                imported = read_model(folder, self.source_begin, self.target_begin)
                written = write(imported, folder, self.settings, output, record)
        rows = {**_sizes(imported), "checked": str(written)}
        notes = [f"written to {self.output}; try: seqattn generate bundle={self.output}"]
        print_table(f"{self.source} imported", rows, notes=notes)
        return output

    def _record(self, folder: HFFolder) -> Provenance:
        own = ("source_begin", "target_begin", "task", "data", "loader")
        settings = {name: self.settings.get(name) for name in own}
        files = [*folder.files, *sorted(folder.path.glob("*token*"))]
        contents = {"source": digests(file for file in files if file.is_file())}
        return Provenance(settings={"verb": "import", **settings}, contents=contents)


def imported_bundle(source: str) -> Path:
    """Import a folder into the cache, unless it is there, and return the bundle.

    It has the settings of a translation by default, which those of a training replace.
    """
    with HFFolder(path := local_folder(source)) as folder:
        stats = [(one.name, one.stat().st_size, one.stat().st_mtime) for one in folder.files]
        key = sha256(repr((path.resolve(), stats)).encode()).hexdigest()[:16]
        output = default_cache() / "imported" / f"{path.resolve().name}-{key}"
        if is_file(output / WEIGHTS):
            return output
        imported = read_model(folder)
        chosen = {part: choices(part)[name] for part, name in _PARTS.items()}
        written = write(imported, folder, chosen, output)
    sizes = ", ".join(f"{value} {name}" for name, value in _sizes(imported).items())
    say(f"imported {path} ({folder.config['model_type']}, {sizes}; checked {written}) to {output}")
    return output


def write(
    imported: Imported,
    folder: HFFolder,
    settings: Mapping[str, Node],
    output: Path,
    record: Provenance | None = None,
) -> Comparison:
    """Write a bundle once it reproduces the log-probabilities of `transformers`, if installed.

    Args:
        imported: the model.
        folder: its folder.
        settings: nodes of the parts that no model brings, by name.
        output: directory of the bundle.
        record: written with it; None for none.
    """
    comparison = compared(folder.path, imported.model, imported.tokenizer)
    parts, tokenizer = {name: settings[name] for name in _PARTS}, imported.tokenizer.tokenizer
    size = {"vocab_size": tokenizer.target_size, "joint": tokenizer.joint}
    parts["tokenizer"] = {**parts["tokenizer"], **size}
    parts["generation"] = _searched(parts["generation"], folder)
    config = {"name": folder.path.resolve().name, **parts, **imported.nodes}
    beside = record.write if record else lambda directory: None
    write_bundle(output, config, imported.model, tokenizer, {}, beside=beside)
    return comparison


def _sizes(imported: Imported) -> dict[str, str]:
    return {
        "parameters": f"{sum(one.numel() for one in imported.model.parameters()):,}",
        "pieces": f"{imported.tokenizer.tokenizer.target_size:,}",
    }


def read_model(
    folder: HFFolder,
    source_begin: Sequence[str] | None = None,
    target_begin: Sequence[str] | None = None,
) -> Imported:
    """Read a folder's model and tokenizer. Args and errors: as `Import`."""
    described = family(folder)
    tokenizer = read_tokenizer(folder.path, folder.config, source_begin, target_begin)
    try:
        model = Architecture.of(described.nodes).build(Vocabularies.of(tokenizer.tokenizer))
    except UserError as error:
        raise UserError(f"{folder.path / 'config.json'}: {error}") from error
    assert isinstance(model, Transformer)
    fill(model, described, folder, tokenizer)
    return Imported({**described.nodes}, model.eval(), tokenizer)


@torch.no_grad()
def fill(
    model: Transformer, described: Family, folder: HFFolder, tokenizer: ImportedTokenizer
) -> None:
    """Copy the weights of a folder into a model.

    Raises:
        UserError: if weights are missing, have other shapes, or are left over; they are named.
    """
    known = {name for weight in described.weights for name in weight.theirs}
    known |= {*described.unused, described.output_bias or ""}
    extra = sorted(folder.shapes.keys() - known)
    if extra:
        more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
        raise UserError(
            f"source={folder.path} has a weight that is not supported: {extra[0]}{more}"
        )
    state = model.state_dict()
    unfilled = {tensor.data_ptr() for tensor in state.values()}  # shared ones have several names
    rows = {"source": tokenizer.rows, "target": tokenizer.target_rows}
    for weight in described.weights:
        new = weight.from_hf([folder.tensor(name) for name in weight.theirs])
        if weight.side is not None:
            new = _selected(new, rows[weight.side], weight.theirs[0], folder)
        ours = state[weight.ours]
        if new.shape != ours.shape:
            raise UserError(
                f"source={folder.path}: {weight.theirs[0]} gives {tuple(new.shape)}, but the model "
                f"needs {tuple(ours.shape)}"
            )
        ours.copy_(new)
        unfilled.discard(ours.data_ptr())
    bias = state["head.linear.bias"].zero_()
    if described.output_bias in folder.shapes:
        theirs = folder.tensor(described.output_bias).flatten().float()
        bias.copy_(_selected(theirs, tokenizer.target_rows, described.output_bias, folder))
    bias[list(tokenizer.lacking)] = FORBIDDEN
    assert unfilled <= {bias.data_ptr()}


def _selected(tensor: Tensor, rows: Sequence[int], name: str, folder: HFFolder) -> Tensor:
    if max(rows) >= len(tensor):
        raise UserError(
            f"source={folder.path}: {name} has {len(tensor):,} rows, and the tokenizer needs "
            f"{max(rows) + 1:,}; it belongs to another model"
        )
    return tensor[list(rows)]


def _searched(node: Mapping[str, Node], folder: HFFolder) -> dict[str, Node]:
    """Return the node of a search with the settings that a folder recommends."""
    given = {**folder.config, **folder.generation}
    own: dict[str, Node] = {"beam_size": given.get("num_beams") or 1}
    own["length_penalty"] = given.get("length_penalty") or 1.0
    if given.get("min_length"):
        own["limit"] = {"minimum": given["min_length"]}
    if given.get("no_repeat_ngram_size"):
        [[name, part]] = choices("processor")["no_repeat_ngram"].items()
        own["processors"] = {name: {**part, "size": given["no_repeat_ngram_size"]}}
    return changed(node, own)
