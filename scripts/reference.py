"""Pages of the site that are read from other files when it is built: a hook of MkDocs.

`conf/` becomes a page per command and per config group, with the type and bounds of each key from
the class that takes it; a notebook becomes a page with its kept outputs, and is not run; a
formula becomes a picture, so that no page needs a script or a font for it.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from html import escape, unescape
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin
from xml.etree import ElementTree

import yaml
import ziafont
from griffe import Attribute, Docstring, DocstringSectionKind, Extension
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from ziamath import Latex

ziafont.config.svg2 = False  # no symbols, whose ids would meet on a page
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from seqattn.checking import in_words, parameters  # noqa: E402
from seqattn.cli.help_page import subcommands  # noqa: E402
from seqattn.inputs import LOADER  # noqa: E402
from seqattn.installation import CONF  # noqa: E402
from seqattn.settings.choices import types_at  # noqa: E402
from seqattn.settings.nodes import TARGET, import_path  # noqa: E402

FROM_ROOT = ("CHANGELOG.md", "CONTRIBUTING.md")
"""Pages beside docs/ that are part of the site."""
_LETTER, _PADDING, _COLUMN, _TELEPHONE = 7, 32, 100, 368
"""Pixels of a letter in a table, beside a cell's text, of the least column and the least page."""
ANSWER = '<details markdown="1"><summary>Answer</summary>'
HYDRA = ("defaults", "hydra")
"""Keys that are instructions to Hydra."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and list them where the navigation has a pattern such as `a/*`."""
    pages = dict(written_pages())
    pages |= {name.lower(): from_root(ROOT / name) for name in FROM_ROOT if (ROOT / name).exists()}
    for notebook in sorted(Path(config.docs_dir).glob("course/*.ipynb")):
        pages[f"course/{notebook.stem}.md"] = from_notebook(notebook)
    for program in ("course/annotated", "arithmetic"):
        pages[f"{program}.md"] = from_program(Path(config.docs_dir) / f"{program}.py")
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    everything = sorted(file.src_uri for file in files.documentation_pages())
    config.nav = [*expanded(config.nav or [], everything)]
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to the course to its pages, and remove the backslash of bars in tables' code."""
    markdown = re.sub(r"(\]\([\w/]+)\.(?:ipynb|py)\b", r"\1.md", markdown)
    code = re.compile(r"`[^`\n]*`")
    return re.sub(
        r"(?m)^\|.*", lambda row: code.sub(lambda c: c[0].replace(r"\|", "|"), row[0]), markdown
    )


def on_page_content(html: str, **_: Any) -> str:
    """Draw the formulas that Arithmatex marks, in the font's size and color; label cells."""
    marked = r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>'
    html = re.sub(marked, lambda found: drawn(unescape(found[2]), found[1] == "span"), html)
    return re.sub(r"(?s)<table>.*?</table>", lambda found: labeled(found[0]), html)


def labeled(table: str) -> str:
    """Mark a table that is too wide for a telephone, and give each cell its column's title.

    The style then stacks the cells of a row.
    """
    head, _, body = table.partition("<tbody>")
    titles = re.findall(r"(?s)<th\b.*?>(.*?)</th>", head)
    rows = [re.findall(r"(?s)<td\b.*?>(.*?)</td>", row) for row in body.split("</tr>")]
    columns = zip_longest(titles, *(row for row in rows if row), fillvalue="")
    texts = [[unescape(re.sub("<.*?>", "", cell)) for cell in column] for column in columns]
    longest = [
        max((len(word) for text in column for word in text.split()), default=0) for column in texts
    ]
    if sum(max(_LETTER * letters + _PADDING, _COLUMN) for letters in longest) < _TELEPHONE:
        return table
    for row in rows:
        for title, _ in zip(texts, row):
            place = f'<td data-title="{escape(title[0])}"'
            body = re.sub(r"<td(?! data-title)", place.replace("\\", r"\\"), body, count=1)
    return f"{head.replace('<table>', '<table data-stacked>', 1)}<tbody>{body}"


def drawn(latex: str, inline: bool) -> str:
    """Return a formula as SVG, its baseline on that of the text."""
    svg = Latex(latex, size=10, inline=inline, color="currentColor").svgxml()
    _, top, width, height = map(float, svg.attrib["viewBox"].split())
    style = f"height: {height / 10:.3f}em; vertical-align: {-(top + height) / 10:.3f}em"
    svg.attrib |= {"role": "img", "aria-label": latex, "width": f"{width / 10:.3f}em"}
    svg.attrib |= {"class": "formula" if inline else "formula display", "style": style}
    del svg.attrib["height"]
    return ElementTree.tostring(svg, encoding="unicode")


def expanded(nav: Sequence[Any], pages: Sequence[str]) -> Iterator[Any]:
    """Yield the entries of a navigation, patterns replaced by the pages that match."""
    for entry in nav:
        if isinstance(entry, Mapping):
            [(title, value)] = entry.items()
            yield {title: [*expanded(value, pages)] if isinstance(value, list) else value}
        elif "*" in entry:
            yield from (page for page in pages if fnmatch(page, entry) and page not in nav)
        else:
            yield entry


def from_root(path: Path) -> str:
    """Return a page of the repository's root, with links only to what the site has."""

    def led(link: re.Match[str]) -> str:
        text, target = link.groups()
        if target.partition("#")[0] in FROM_ROOT:
            return f"[{text}]({target.lower()})"
        elsewhere = re.match(r"#|\w+://|docs/", target)
        return f"[{text}]({target.removeprefix('docs/')})" if elsewhere else text

    return re.sub(r"\[([^]]+)\]\(([^)]+)\)", led, path.read_text(encoding="utf-8"))


def from_notebook(path: Path) -> str:
    """Return a notebook as a page: texts, code, and outputs that `scripts/course.py` has kept."""
    kept = json.loads((path.parent / "outputs" / f"{path.stem}.json").read_text(encoding="utf-8"))
    outputs, parts, check = kept["cells"], [], ""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source, tags = "".join(cell["source"]), cell["metadata"].get("tags", [])
        if cell["cell_type"] != "code":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        shown = [of_output(part) for part in outputs.get(cell["id"], ())]
        if "answer" in tags:  # a check's outputs are those after the answer
            shown += [of_output(part) for part in outputs.get(check, ())]
            folded = "\n\n".join([parts.pop(), *shown])
            parts.append(
                f'<details markdown="1"><summary>Answer</summary>\n\n{folded}\n\n</details>'
            )
        elif not tags:
            parts += shown
        check = cell["id"]
    title, _, rest = "\n\n".join(parts).partition("\n")
    return f'{title}\n\n<a href="{path.name}" download>Download this notebook</a>\n{rest}'


def from_program(path: Path) -> str:
    """Return a program as a page: its sections under headings, with their first comment as text."""
    _, docstring, rest = path.read_text(encoding="utf-8").split('"""', 2)
    title, _, about = docstring.partition("\n")
    parts = [f"# {title.rstrip('.')}", f'<a href="{path.name}" download>Download this program</a>']
    parts.append(about.strip())
    first, *sections = re.split(r"^# -+ \d+\. (.*?) -+\n", rest, flags=re.MULTILINE)
    parts.append(f"```python\n{first.strip()}\n```")
    for heading, section in zip(sections[::2], sections[1::2]):
        comment = re.match(r"(?:#.*\n)*", section)
        assert comment is not None
        text = re.sub(r"^# ?", "", comment[0], flags=re.MULTILINE)
        text = re.sub(r"\bIn seqattn: (.*)", lambda m: f"\nIn `seqattn`: {_named(m[1])}", text)
        code = section[comment.end() :].strip()
        parts += [f"## {heading}", text.strip(), f"```python\n{code}\n```"]
    return "\n\n".join(parts)


def _named(files: str) -> str:
    return ", ".join(f"`seqattn/{file}`" for file in files.split(", ")) + "."


def of_output(part: Mapping[str, str]) -> str:
    """Return the Markdown of a cell's text or picture."""
    if "image" in part:
        return f"![Output](outputs/{part['image']}){{ .output }}"
    return f"```{{ .text .output .no-copy }}\n{part['text']}\n```"


class TrailingComments(Extension):  # type: ignore[misc, unused-ignore]
    """Document a field of a class by the comment at the end of its line."""

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        line = attr.lines[-1] if attr.lines else ""
        if attr.docstring is None and "  # " in line:
            attr.docstring = Docstring(line.partition("  # ")[2].strip(), parent=attr)


def written_pages() -> Iterator[tuple[str, str]]:
    """Yield the path and text of each page of the configuration reference."""
    groups = sorted(folder.name for folder in CONF.iterdir() if folder.is_dir())
    about = {group: sorted(file.stem for file in group_files(group)) for group in groups}
    listed = (f"| [`{name}`]({name}.md) | {text} |" for name, text in subcommands().items())
    yield "reference/commands/index.md", "\n".join((COMMANDS, *listed))
    listed = (f"| [`{g}`]({g}.md) | `{'` `'.join(names)}` |" for g, names in about.items())
    yield "reference/configuration/index.md", "\n".join((GROUPS, *listed))
    for subcommand in subcommands():
        yield f"reference/commands/{subcommand}.md", of_subcommand(subcommand)
    for group in groups:
        yield f"reference/configuration/{group}.md", of_group(group)


COMMANDS = """# Commands

`seqattn NAME key=value ...`; each page has examples and every key, as `seqattn NAME --help` does.

| command | what it does |
|---|---|"""
GROUPS = """# Config groups

`GROUP=CHOICE` selects a choice, and `KEY=VALUE` sets one of its keys, for each command that has the
group. Each page lists keys as you type them, with the values they take, the default and a meaning.

| group | choices |
|---|---|"""


@dataclass
class Key:
    """A key of a YAML file. Args: default: as written there; parts: the keys of a mapping."""

    default: str = ""
    comment: str = ""
    parts: "dict[str, Key]" = field(default_factory=dict)

    def over(self, base: "Key") -> "Key":
        """Return the key as changed from that of a file which this one includes."""
        names = dict.fromkeys([*base.parts, *self.parts])
        parts = {n: self.parts.get(n, Key()).over(base.parts.get(n, Key())) for n in names}
        return Key(self.default or base.default, self.comment or base.comment, parts)

    @property
    def target(self) -> str | None:
        """The path of the class that takes the parts, if the key names one."""
        return self.parts[TARGET].default if TARGET in self.parts else None

    def at(self, place: str) -> "Key":
        """Return the key at a place below, empty if there is none."""
        first, _, rest = place.partition(".")
        return self.parts.get(first, Key()).at(rest) if place else self

    def walk(self, place: str = "") -> "Iterator[tuple[str, Key]]":
        """Yield all keys below, by name."""
        for name, part in self.parts.items():
            yield f"{place}{name}", part
            yield from part.walk(f"{place}{name}.")


class Choice(NamedTuple):
    """A YAML file of conf/. Args: keys: from the root; selected: choices of other groups."""

    about: str
    keys: Key
    selected: Sequence[str]


def group_files(group: str) -> list[Path]:
    return sorted((CONF / group).glob("[!_]*.yaml"))


def read(file: Path, place: str = "") -> Choice:
    """Read a YAML file and those that it includes. Args: place: where Hydra puts its keys."""
    text = file.read_text(encoding="utf-8")
    header = re.match(r"(?:# @package (\S+)\n)?((?:#.*\n)*)", text)
    assert header is not None
    place = (header[1] or place).removeprefix("_global_")
    keys, selected = Key(), []
    for entry in (yaml.load(text, LOADER) or {}).get("defaults", ()):
        if isinstance(entry, Mapping):
            [(group, chosen)] = entry.items()
            selected.append(f"{re.sub('^override /|@_global_.*', '', group)}={chosen}")
        elif entry != "_self_":
            name, _, elsewhere = entry.partition("@")
            elsewhere = elsewhere.removeprefix("_global_.")
            keys = read(file.with_name(f"{name}.yaml"), elsewhere or place).keys.over(keys)
    own = Key(parts=parts_of(yaml.compose(text, LOADER), text))
    for name in reversed(place.split(".") if place else []):
        own = Key(parts={name: own})
    about = re.sub(r"^# ?", "", header[2], flags=re.MULTILINE).strip()
    return Choice(about, own.over(keys), selected)


def parts_of(node: Any, text: str) -> dict[str, Key]:
    """Return the keys of a YAML mapping by name, with the comment at the end of their line."""
    lines, parts = text.splitlines(), {}
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        start, end = value.start_mark, value.end_mark
        comment = "" if node.flow_style else lines[key.start_mark.line].partition("  #")[2].strip()
        block = isinstance(value, yaml.MappingNode) and not value.flow_style
        default = "" if block else text[start.index : end.index].strip()
        if key.value not in HYDRA:
            parts[key.value] = Key(default, comment, parts_of(value, text))
    return parts


def rows(keys: Key, anchor: str, place: str = "", hint: Any = Any) -> Iterator[str]:
    """Yield a row of HTML for each key below a place. Args: hint: the type of the mapping."""
    paths = [
        keys.target,
        *(at[TARGET] for at in types_at(place).values()),
        trained().at(place).target,
    ]
    targets = [import_path(path) for path in paths if path]
    values = [get_args(part)[1] for part in (hint, *get_args(hint)) if is_mapping(part)]
    for name, part in keys.parts.items():
        if name.startswith("_"):
            continue
        key = f"{place}.{name}".lstrip(".")
        hints = [*(parameters(target)[name] for target in targets if name in parameters(target))]
        takes = [*hints, *values, Any][0]
        if not part.parts or part.comment or (part.target and place):
            kind = f"keys of `{part.target.rpartition('.')[2]}`" if part.target else words(takes)
            told = [
                part.comment,
                *(explained(target, name) for target in targets),
                comments().get(key),
            ]
            cells = f"`{key}`", kind, default(part.default), next(filter(None, told), "")
            row = "".join(f"<td>{in_code(cell)}</td>" for cell in cells)
            yield f'<tr id="{anchor}.{key}">{row}</tr>'
        yield from rows(part, anchor, key, takes)


@cache
def trained() -> Key:
    """Return the keys of training, which experiments and searches set too."""
    return read(CONF / "train.yaml").keys


@cache
def comments() -> dict[str, str]:
    """Return the comment that some choice has on a key, for those without."""
    choices = (read(file, file.parent.name).keys for file in sorted(CONF.glob("*/[!_]*.yaml")))
    return {key: part.comment for keys in choices for key, part in keys.walk() if part.comment}


def is_mapping(hint: Any) -> bool:
    return get_origin(hint) in (dict, Mapping)


def words(hint: Any) -> str:
    """Describe the values of a parameter's type."""
    mapping = any(is_mapping(part) for part in (hint, *get_args(hint)))
    return in_words(hint) or "keys with values" * mapping


def default(text: str) -> str:
    """Describe a default; `${.key}` by the key whose value it is."""
    other = re.fullmatch(r"\$\{\.?([\w.]+)\}", text)
    return f"that of `{other[1]}`" if other else {"": "", "???": "required"}.get(text, f"`{text}`")


def explained(target: Any, name: str) -> str:
    """Return what the docstring of a class, or of one above it, says of a parameter."""
    for above in getattr(target, "__mro__", (target,)):
        text = Docstring(above.__doc__ or "").parse("google", warnings=False)
        for section in text:
            for about in section.value if section.kind is DocstringSectionKind.parameters else ():
                if name in about.name.split(", ") and not about.description.startswith("as "):
                    return " ".join(about.description.split())
    return ""


def in_code(text: str) -> str:
    """Return text as HTML, with code in backticks, which may break at its dots and underscores."""
    breaks = re.compile(r"(?<=[._])(?=[a-z])")
    return re.sub(r"`(.+?)`", lambda c: f"<code>{breaks.sub('<wbr>', c[1])}</code>", escape(text))


def table(keys: Key, anchor: str) -> str:
    body = "\n".join(rows(keys, anchor))
    head = "<tr><th>key</th><th>values</th><th>default</th><th>meaning</th></tr>"
    html = f"<table><thead>{head}</thead><tbody>\n{body}\n</tbody></table>"
    return f'<div class="keys">\n{html}\n</div>' if body else "It has no keys."


def of_group(group: str) -> str:
    """Return the page of a config group."""
    parts = [f"# {group}"]
    for file in group_files(group):
        choice = read(file, group)
        parts += [f"## `{group}={file.stem}` {{#{file.stem}}}", choice.about]
        if choice.selected:
            parts.append(f"It also selects {' '.join(f'`{other}`' for other in choice.selected)}.")
        parts.append(table(choice.keys, file.stem))
    return "\n\n".join(parts)


def of_subcommand(subcommand: str) -> str:
    """Return the page of a command."""
    page = read(CONF / f"{subcommand}.yaml")
    about, _, examples = page.about.partition("\n\nExamples:\n")
    commands = re.sub(r"(?m)^  (?=\S)", "", examples)
    commands = re.sub(r"(?m)^      (?=\S)", "    # ", commands)
    parts = [f"# seqattn {subcommand}", about, f"```bash\n{commands}\n```"]
    groups = [line.split("=") for line in page.selected if "hydra/" not in line]
    if groups:
        parts += ["## Config groups", "Each with its default choice:"]
        parts.append(" · ".join(of_default(group, choice) for group, choice in groups))
    parts += ["## Keys", table(page.keys, subcommand)]
    return "\n\n".join(parts)


def of_default(group: str, choice: str) -> str:
    """Return a link to a group, with the choice that a command has by default."""
    folder = group.partition("@")[0]
    chosen = "" if choice == "None" else f" `{choice}`".replace("'", "")
    linked = f"[{group}](../configuration/{folder}.md)" if group_files(folder) else group
    return linked + chosen
