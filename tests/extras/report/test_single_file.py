"""The page is one file that fetches nothing, and no text of a sentence is more than text."""

import json
import re
from importlib.resources import files

import pytest

from seqattn.extras.report.single_file import escaped, joined_scripts, page
from tests.extras.report.samples import NASTY

SCRIPTS = sorted(
    path.name
    for path in (files("seqattn.extras.report") / "page").iterdir()
    if path.name.endswith(".js")
)
IMPORT = re.compile(r'import \{ ([^}]*) \} from "\./(\w+\.js)";')


def read(name):
    return (files("seqattn.extras.report") / "page" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("text", [NASTY, "<!--<script>", "]]>", "\u2028\u2029", "</SCRIPT >"])
def test_json_within_the_page_ends_no_script_and_stays_itself(text):
    written = escaped({"text": text})
    assert "<" not in written
    assert not {"\u2028", "\u2029"} & set(written)
    assert json.loads(written) == {"text": text}


def test_the_page_names_no_address_that_could_be_fetched():
    empty = page()
    assert "http" not in empty
    assert not re.search(
        r"(src=|@import|url\(|//[a-z])", re.sub(r"(?m)^\s*//.*$| // .*$", "", empty)
    )
    assert re.findall(r'<link[^>]*href="([^"]*)"', empty) == ["data:,"]


def test_a_page_without_documents_is_that_of_a_server():
    assert joined_scripts("live") in page()
    assert joined_scripts("main") in page({"title": "a", "sentences": []})


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_script_imports_is_exported(name):
    for names, origin in IMPORT.findall(read(name)):
        text = read(origin)
        for one in names.split(", "):
            assert re.search(rf"^export (async function|function|const|class) {one}\b", text, re.M)
    assert read(name).startswith("/**")


def test_every_script_is_in_a_page():
    found = {name for page in ("main", "live") for name in order_of(joined_scripts(page))}
    assert sorted(f"{name}.js" for name in found) == SCRIPTS


def order_of(joined):
    return re.findall(r"^const \$(\w+) = ", joined, re.M)


@pytest.mark.parametrize("page", ["main", "live"])
def test_a_script_stands_after_what_it_imports(page):
    joined = joined_scripts(page)
    order = order_of(joined)
    for name in order:
        needed = [origin.removesuffix(".js") for _, origin in IMPORT.findall(read(f"{name}.js"))]
        assert all(order.index(one) < order.index(name) for one in needed)
    assert not re.search(r"^(import|export) ", joined, re.M)
