"""Pages of `--help`, read from the YAML of each subcommand."""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill

from seqattn.errors import UserError
from seqattn.installation import CONF, commands

_CORE = ("train", "generate", "evaluate")


def subcommands(arguments: Sequence[str] = ()) -> dict[str, str]:
    """Return the first line of each subcommand's page by its name, those of the core first.

    Args:
        arguments: command-line arguments; those of a `--config-dir` come last.
    """
    shipped = sorted(file.stem for file in CONF.glob("*.yaml") if file.stem not in _CORE)
    files = {name: CONF / f"{name}.yaml" for name in (*_CORE, *shipped)}
    for folder in config_folders(arguments):
        for file in sorted(folder.glob("*.yaml")):  # others are for --config-name
            if re.search(r"^_target_:", _text(file), re.MULTILINE):
                files.setdefault(file.stem, file)
    return {name: _header(file).partition("\n")[0] for name, file in files.items()}


def folder_of(name: str, arguments: Sequence[str]) -> Path:
    """Return the folder that has the YAML of a subcommand, the shipped one or a `--config-dir`.

    Raises:
        UserError: if there is no such subcommand.
    """
    if re.fullmatch(r"\w+", name):
        if (CONF / f"{name}.yaml").is_file():
            return CONF
        for folder in config_folders(arguments):
            if not folder.is_dir():
                raise UserError(f"--config-dir {folder} is not a directory")
            if (folder / f"{name}.yaml").is_file():
                return folder
    raise UserError(f"unknown subcommand {name}; choose from {', '.join(subcommands(arguments))}")


def help_page(subcommand: str, arguments: Sequence[str], conf: Path = CONF) -> str:
    """Return a subcommand's page: what it does, examples, choices of groups, keys with comments.

    Args:
        subcommand: name of its YAML in `conf`.
        arguments: command-line arguments; with `attention=gqa`, the page ends with gqa's keys.
        conf: folder of its YAML; missing groups are read from `CONF`.
    """
    folders = [*config_folders(arguments), conf, CONF]
    groups = [*_groups(subcommand, conf)]
    listed = {group for group, _, _ in groups}
    choices = []
    for group, default, note in groups:
        folder, _, key = group.partition("@")
        names = _names(group, folders) or note
        key, names = (key, note) if key and folder not in listed else (group, names)
        choices.append(fill(f"{key}={default}: {names}", 100, subsequent_indent="    "))
    script = sys.argv[0].endswith(".py") and not sys.argv[0].endswith("__main__.py")
    about, _, examples = _header(conf / f"{subcommand}.yaml").partition("\n\n")
    parts = [
        f"usage: {f'python {sys.argv[0]}' if script else f'seqattn {subcommand}'} [key=value ...]",
        about,
        examples,
        "\n".join(("Config groups, with default and choices:", *choices)) if choices else "",
        f"Keys and default values:\n{_keys(conf / f'{subcommand}.yaml')}",
    ]
    keys = {group.partition("@")[2]: group for group, _, _ in groups}
    for group, name in (word.split("=", 1) for word in arguments if "=" in word):
        files = _files(keys.get(group, group), folders)
        file = next((file for file in files if file.stem == name), None)
        if file is not None:
            parts.append(f"{group}={name}:\n{_without_classes(_text(file)).strip()}")
    parts.append(
        "--help GROUP=CHOICE shows the keys of a choice, --cfg job all keys with their values,\n"
        "--hydra-help the other options. -m runs all combinations of comma-separated values."
    )
    return commands("\n\n".join(part for part in parts if part))


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _header(file: Path) -> str:
    """Return the comment at the beginning of a file."""
    lines = re.match(r"(?:#.*\n)*", _text(file))
    return re.sub(r"^# ?", "", lines[0] if lines else "", flags=re.MULTILINE).strip()


def _keys(file: Path) -> str:
    """Return a file without header, classes, Hydra's keys and the groups that a bundle fills."""
    text = _without_classes(re.sub(r"\A(?:#.*\n)*", "", _text(file)))
    return re.sub(
        r"^(?:defaults|hydra|_from_bundle_|_text_):.*\n(?: .*\n|\n)*", "", text, flags=re.MULTILINE
    ).strip()


def _without_classes(text: str) -> str:
    """Return a choice without classes, the place of its keys, and keys of which nothing remains."""
    text = re.sub(r"^(?: *_(?:target|partial)_:|# @package ).*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"^( *)\w+:\n(?!\1[ -])", "", text, flags=re.MULTILINE)


def _groups(subcommand: str, conf: Path) -> Iterator[tuple[str, str, str]]:
    """Yield groups with their choices and comments, those of included subcommands first."""
    block = re.search(r"^defaults:\n((?: .*\n)*)", _text(conf / f"{subcommand}.yaml"), re.MULTILINE)
    for line in block[1].splitlines() if block else ():
        group, colon, choice = line.strip(" -").partition(": ")
        if colon and not group.startswith("override "):
            default, _, note = choice.partition("  # ")
            yield group.removeprefix("optional "), default, note
        elif not colon and group != "_self_":
            yield from _groups(group, conf if (conf / f"{group}.yaml").is_file() else CONF)


def config_folders(arguments: Sequence[str]) -> list[Path]:
    """Return the folders of `--config-dir DIR` or `--config-dir=DIR`."""
    following = [*arguments[1:], ""]
    pairs = zip((word.partition("=") for word in arguments), following, strict=False)
    return [
        Path(directory if equals else value).expanduser()
        for (option, equals, directory), value in pairs
        if option in ("--config-dir", "-cd")
    ]


def _files(group: str, folders: Sequence[Path]) -> list[Path]:
    """Return the files of a group's choices; for equal names, that of the first folder."""
    folder = group.partition("@")[0]
    files = {
        file.stem: file for root in reversed(folders) for file in (root / folder).glob("*.yaml")
    }
    return [files[name] for name in sorted(files) if not name.startswith("_")]


def _names(group: str, folders: Sequence[Path]) -> str:
    if "@" in group:
        return f"same as {group.partition('@')[0]}"
    return ", ".join(file.stem for file in _files(group, folders))
