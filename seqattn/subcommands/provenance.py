"""Record of an output's settings and inputs, to recognize a repeated command."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from seqattn.errors import UserError
from seqattn.inputs import read_json
from seqattn.roles import Role
from seqattn.settings.nodes import TARGET
from seqattn.storage import digest_of, file_faults, is_file, user_path, write_json

RECORD = "made_from.json"
"""File of the record in an output."""
_SHOWN = 4  # maximum number of differences in a message
_BESIDE = ("README.md", "scores.json", RECORD)
"""Files of a bundle that do not affect its outputs."""


class Provenance(BaseModel):
    """Settings and inputs that determine an output, independent of the location of files.

    `settings` are plain values without paths, `contents` sizes and digests of inputs, by the key
    that names them.
    """

    settings: dict[str, Any]
    contents: dict[str, list[str]]

    def write(self, directory: Path) -> None:
        """Write the record into an output."""
        write_json(directory / RECORD, self.model_dump())

    @classmethod
    def read(cls, directory: Path) -> "Provenance":
        """Read the record of an output.

        Raises:
            UserError: if it cannot be read.
        """
        file = directory / RECORD
        try:
            record = cls.model_validate(read_json(file, "a record of settings and inputs"))
        except ValidationError as error:
            raise UserError(f"cannot read {file}; choose another directory") from error
        if "verb" in record.settings:  # the key in outputs of earlier versions
            record.settings["subcommand"] = record.settings.pop("verb")
        return record

    def is_finished(self, directory: Path, last: str) -> bool:
        """Return True, after printing a line, if a directory holds the complete output.

        Args:
            directory: the output, which may be absent.
            last: name of the file that is written last.

        Raises:
            UserError: if another command made it, or it holds other files.
        """
        with file_faults("read", directory):
            if directory.exists() and not directory.is_dir():
                raise UserError(f"output={directory} is a file; choose a directory")
            names = {one.name for one in directory.iterdir()} if directory.exists() else set()
        if names <= {".lock"}:
            return False
        if RECORD not in names:
            raise UserError(f"output={directory} is not empty; choose another directory")
        self.check(directory, self.read(directory))
        finished = is_file(directory / last)
        if finished:
            say_finished(directory)
        return finished

    def check(self, directory: Path, before: "Provenance") -> None:
        """Raise UserError if a directory was made from other settings or inputs."""
        differing = before.differing(self)
        if differing:
            more = [f"{len(differing) - _SHOWN} more"] if len(differing) > _SHOWN else []
            raise UserError(
                f"output={directory} was made with {', '.join(differing[:_SHOWN] + more)}; use the "
                "same settings, choose another directory, or remove it"
            )

    def differing(self, other: "Provenance") -> list[str]:
        """Return differences from this record that change outputs, as overrides where possible."""
        if self == other:
            return []
        from seqattn.training.setting_roles import leaves  # torch takes seconds to import

        here, there = (
            {
                x.key: x.value
                for name, node in one.settings.items()
                for x in leaves(node, name)
                if x.role is not Role.NOTE
            }
            for one in (self, other)
        )
        changed = [key for key in sorted(here | there) if here.get(key) != there.get(key)]
        # other keys follow from the class
        classes = tuple(key.removesuffix(TARGET) for key in changed if key.endswith(f".{TARGET}"))
        words = [
            f"{key.removesuffix(f'.{TARGET}')}={_typed(here.get(key))}"
            for key in changed
            if key.endswith(f".{TARGET}") or not (classes and key.startswith(classes))
        ]
        changed = [
            name
            for name in sorted(self.contents.keys() | other.contents.keys())
            if self.contents.get(name) != other.contents.get(name)
        ]
        return words + ([f"different contents of {' and '.join(changed)}"] if changed else [])


def say_finished(directory: Path) -> None:
    """Print that there is nothing to do."""
    print(f"output={directory} is complete, nothing to do", file=sys.stderr)


def _typed(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return "null" if value is None else str(value)


def digests(paths: Iterable[Path]) -> list[str]:
    """Return size and SHA-256 of files, in order."""
    return [_digest(path) for path in paths]


def _digest(path: Path) -> str:
    with file_faults("read", path):
        size = path.stat().st_size
    return f"{size} {digest_of(path)}"


def bundle_contents(*paths: str | Path) -> list[str]:
    """Return digests of all that affects outputs: weights, configuration and vocabulary."""
    return [line for path in paths for line in _of_bundle(user_path(path))]


def _of_bundle(path: Path) -> Iterator[str]:
    with file_faults("read", path):
        files = sorted(one for one in path.iterdir() if one.is_file())
    for file in files:
        if file.name not in _BESIDE and not file.name.startswith("."):
            yield f"{file.name} {_digest(file)}"


def data_contents(source: Any, splits: Sequence[str]) -> dict[str, list[str]]:
    """Return digests of the files of a source's splits, if they are known and exist.

    Args:
        source: a `Source`; one on the hub has no files, and is identified by its settings.
        splits: names of the splits.
    """
    files: Callable[[str], list[Path]] = getattr(source, "files", lambda split: [])
    contents = {}
    for split in splits:
        try:
            contents[f"data.{split}"] = digests(files(split))
        except UserError:  # there is no such split
            continue
    return contents


def contents_now(bundle: str | Path, files: Iterable[Path]) -> dict[str, list[str]]:
    """Return digests of a bundle, and of existing files by path."""
    each = {str(path.absolute()): digests([path]) for path in files if is_file(path)}
    return {"bundle": bundle_contents(bundle), **each}
