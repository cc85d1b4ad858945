"""Model folders of Hugging Face: configuration and weights, read without running code."""

import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from seqattn.bundle.weights import is_finite
from seqattn.errors import UserError
from seqattn.inputs import read_json
from seqattn.settings.documents import HUB
from seqattn.storage import is_file, user_path

CONFIG, WEIGHTS = "config.json", "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
"""File that lists the parts of weights in several files."""
_READ = (".json", ".safetensors", ".spm", ".model", ".txt")
_GENERATION = "generation_config.json"
_DOWNLOADED = ["*.json", "*.safetensors", "*.spm", "*.model", "merges.txt", "config.yaml"]
_OUTPUT = "lm_head.weight"
_LONGEST_REASON = 300


def one_line(error: Exception) -> str:
    """Return the message of another package in one line, truncated if long."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= _LONGEST_REASON else f"{words[:_LONGEST_REASON]}..."


def local_folder(source: str) -> Path:
    """Return the folder of a model; one that does not exist is downloaded from the hub.

    Raises:
        UserError: if the hub cannot be reached, or has no such model.
    """
    path, name = user_path(source), source.removeprefix(HUB)
    if path.exists() or not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        return path
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_DOWNLOADED))
    except (OSError, ValueError) as error:  # of the network, and of the name
        raise UserError(
            f"source={source} is no folder, and cannot be downloaded ({one_line(error)})"
        ) from error


class HFFolder:
    """A model folder.

    Args:
        path: the folder.

    Attributes:
        config: content of config.json.
        generation: content of generation_config.json, empty without one.
        shapes: shapes of the weights, by name.

    Raises:
        UserError: if files are missing or damaged, or the weights are pickled.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir():
            raise UserError(f"source={path} does not exist; give a folder with {CONFIG}")
        if not is_file(path / CONFIG):
            raise UserError(f"source={path} is not a Hugging Face model: {CONFIG} is missing")
        self.config = self._object(CONFIG)
        has_generation = is_file(path / _GENERATION)
        self.generation = self._object(_GENERATION) if has_generation else {}
        self._files: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for file in self._weight_files():
            self._read(file)

    @property
    def files(self) -> list[Path]:
        """Files that may be read: configuration, weights and tokenizer."""
        return sorted(one for one in self.path.iterdir() if one.suffix in _READ and is_file(one))

    def tensor(self, name: str) -> Tensor:
        """Return a weight by its name.

        Raises:
            UserError: if it is missing or has values that are not finite numbers.
        """
        if name not in self._files:
            raise UserError(f"source={self.path} lacks the weight {name}; download it again")
        # one mapping for all would count the whole file as memory in use
        with safe_open(str(self._files[name]), framework="pt") as tensors:
            tensor: Tensor = tensors.get_tensor(name)
        if not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise UserError(
                f"source={self.path}: {name} is {kind}; give weights that are not quantized"
            )
        if not is_finite(tensor):
            raise UserError(f"source={self.path}: {name} has values that are not finite numbers")
        return tensor

    def stored(self, name: str) -> Tensor | None:
        """Return a weight, or None if the file lacks it."""
        return self.tensor(name) if name in self._files else None

    def table(self, *names: str) -> str:
        """Return the first of several names of an embedding table that the file has.

        A file holds only one of several names of tied weights, which may be that of the output.
        """
        return next((name for name in (*names, _OUTPUT) if name in self._files), names[0])

    def output_table(self, tied: str) -> str:
        """Return the name of the output matrix: `tied`, unless it differs from that table.

        Raises:
            UserError: if it is apart by the configuration, and missing.
        """
        if _OUTPUT not in self._files or tied not in self._files:
            if tied in self._files and self.config.get("tie_word_embeddings") is False:
                raise UserError(
                    f"source={self.path} lacks the weight {_OUTPUT}, as tie_word_embeddings is "
                    f"false in {CONFIG}; download it again"
                )
            return tied
        return tied if torch.equal(self.tensor(_OUTPUT), self.tensor(tied)) else _OUTPUT

    def _object(self, name: str) -> dict[str, Any]:
        path = self.path / name
        content = read_json(path, f"a {name} of Hugging Face")
        if not isinstance(content, dict):
            raise UserError(f"{path} must hold an object")
        return content

    def _weight_files(self) -> list[Path]:
        if is_file(self.path / WEIGHTS):
            return [self.path / WEIGHTS]
        if is_file(self.path / INDEX):
            names = self._object(INDEX).get("weight_map")
            values = {str(name) for name in names.values()} if isinstance(names, dict) else {""}
            if not all(Path(name).name == name != "" for name in values):
                raise UserError(f"{self.path / INDEX} must map weights to files of its folder")
            return [self.path / name for name in sorted(values)]
        if any(self.path.glob("*.bin")):
            raise UserError(
                f"source={self.path} has only pickled weights (*.bin), which can run code and are "
                "not read; load it with transformers in a place that you trust, and save it by "
                "save_pretrained"
            )
        raise UserError(f"source={self.path} has no {WEIGHTS}; download it completely")

    def _read(self, file: Path) -> None:
        if not is_file(file):
            raise UserError(f"{file} is missing; download it again")
        try:
            with safe_open(str(file), framework="pt") as tensors:
                names: list[str] = list(tensors.keys())
                for name in names:
                    self._files[name] = file
                    self.shapes[name] = tuple(tensors.get_slice(name).get_shape())
        except (SafetensorError, OSError) as error:
            raise UserError(f"cannot read {file} ({one_line(error)}); download it again") from error
