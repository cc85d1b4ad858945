"""The pages that a person reads, and what stands in their code blocks."""

import importlib.util
import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {"README.md": (ROOT / "README.md").read_text(encoding="utf-8")} | {
    path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
}
"""Those that are written by hand; the site also has pages made of `conf/`."""


def blocks(page, language):
    """The code blocks of a page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGES[page], re.DOTALL)


def commands(beginning, *pages):
    """The commands of some pages that begin so, comments left out, each once."""
    lines = [
        line for page in pages for block in blocks(page, "bash") for line in block.splitlines()
    ]
    bare = dict.fromkeys(line.partition("  #")[0].strip() for line in lines)
    return [line for line in bare if line.startswith(beginning)]


def examples(beginning):
    """The commands at the top of the files of `conf/`, which `--help` and the site show."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "conf").glob("*.yaml"))]
    lines = [line.removeprefix("#   ") for text in texts for line in text.splitlines()]
    return [line for line in lines if line.startswith(beginning)]


def subcommand_and_words(command):
    """Return NAME of `python scripts/NAME.py ...` or `seqattn NAME ...`, and its arguments."""
    program, name, *words = shlex.split(command)
    return (name if program == "seqattn" else Path(name).stem), words


def files(page):
    """The files that a page shows: text by the path in a comment on one of the first two lines."""
    found = {}
    for language in ("python", "yaml"):
        for block in blocks(page, language):
            name = re.match(r"(?:# @package .*\n)?# (\S+\.(?:py|yaml))\n", block)
            if name:
                found[name[1]] = block
    return found


def program(name):
    """A program of docs/ as a module, such as course/annotated.py."""
    path = ROOT / "docs" / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
