"""A user's own choices, which come before shipped ones of the same name."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from seqattn.config.saved_overrides import texts_of
from seqattn.installation import CONF
from seqattn.training.ranks import rank

_MAX_NAMES = 4  # maximum number of choices in a message


class FoldersFirst(SearchPathPlugin):
    """Plugin of Hydra that puts a user's folders before the shipped one."""

    directories: ClassVar[list[str]] = []

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Prepend the folders; Hydra calls it."""
        for path in reversed(self.directories):
            search_path.prepend("own", path)


@contextmanager
def folders_first(overrides: Sequence[str], folders: Iterable[str] = ()) -> Iterator[None]:
    """Prefer choices of `--config-dir` and `hydra.searchpath` within the block.

    Prints which shipped choices they replace.

    Args:
        overrides: of a command.
        folders: the arguments of `--config-dir`.
    """
    Plugins.instance().register(FoldersFirst)
    search_path = texts_of(overrides, "hydra.searchpath")
    for path in (*folders, *search_path):
        if rank() == 0 and "pkg://" not in path:
            _announce(Path(path.removeprefix("file://")))
    FoldersFirst.directories = [
        *(f"file://{Path(folder).absolute()}" for folder in folders),
        *search_path,
    ]
    try:
        yield
    finally:
        FoldersFirst.directories = []


def _announce(folder: Path) -> None:
    """Print which shipped choices the files of a folder replace."""
    replaced = [
        f"{name.parent}={name.stem}" if name.parent.name else str(name)
        for file in sorted([*folder.glob("*/*.yaml"), *folder.glob("*.yaml")])
        if file.is_file()
        and (shipped := CONF / (name := file.relative_to(folder))).is_file()
        and shipped.read_bytes() != file.read_bytes()
    ]
    if replaced:
        more = [f"{len(replaced) - _MAX_NAMES} more"] if len(replaced) > _MAX_NAMES else []
        names = ", ".join(replaced[:_MAX_NAMES] + more)
        print(f"{folder} replaces the shipped {names}", file=sys.stderr, flush=True)
