"""Pages of all kinds are read as browsers and html5lib read them."""

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import html5lib
import pytest

from seqattn.extras.align.html import _INVISIBLE, Html
from tests.browser import browser  # noqa: F401
from tests.extras.align.test_markup import aligned, generated


class Page(NamedTuple):
    """A line of pages.txt."""

    kind: str
    text: str
    reading: str | None


def unescaped(text):
    text = re.sub(r"\\u(\w{4})", lambda one: chr(int(one[1], 16)), text)
    text = text.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t")
    return text.encode("utf-16", "surrogatepass").decode("utf-16")


def pages():
    for line in Path(__file__).with_name("pages.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("# "):
            kind, text, *reading = map(unescaped, line.split("\t"))
            yield Page(kind, text, *(reading or [None]))


PAGES = list(pages())
SAME, BACKWARDS = aligned(lambda j, n: j), aligned(lambda j, n: n - 1 - j)


def visible(text):
    return _INVISIBLE.sub("", text)


def text_of(page):
    return "".join(html5lib.parse(page, namespaceHTMLElements=False).itertext())


def elements(page):
    """Return the letters of each kind of element, with all that is inside."""
    found = {}
    for node in html5lib.parse(page, namespaceHTMLElements=False).iter():
        if isinstance(node.tag, str):
            key = node.tag, *sorted(node.attrib.items())
            letters = visible("".join("".join(node.itertext()).split()))
            found.setdefault(key, Counter()).update(letters)
    return {key: letters for key, letters in found.items() if letters}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.text[:40])
def test_a_model_that_copies_returns_the_page(page):
    [output] = generated(Html(), [page.text], list, SAME)
    if page.kind == "=":
        assert output == page.text
    elif page.kind == "~":
        assert output != page.text
        assert text_of(output) == text_of(page.text)
    if page.reading is not None:
        segments = Html().document(page.text).segments
        assert " | ".join(segment.text for segment in segments) == page.reading


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.text[:40])
def test_elements_keep_their_words_in_another_order(page):
    [copy] = generated(Html(), [page.text], list, SAME)
    [output] = generated(
        Html(), [page.text], lambda texts: [" ".join(t.split()[::-1]) for t in texts], BACKWARDS
    )
    assert elements(output) == elements(copy)


def test_signs_of_footnotes_are_copied():
    sign = "<sup><a href=x>[<i>1</i>]</a></sup>"
    shorter = aligned(lambda j, n: [0, 1, 3][j])
    [output] = generated(Html(), [f"<p>a <b>b</b>{sign}, c</p>"], lambda _: ["A B C"], shorter)
    assert output.index("A <b>B</b>") < output.index(sign) < output.index("C")


@pytest.mark.parametrize(
    ("text", "read", "output"),
    [
        (
            '<p title=\'a "b"\'><img ALT=dog src=x>c <b title="it\'s">d</b></p>',
            ['a "b"', "dog", "it's", "c d"],
            '<p title=\'"B" A\'><img ALT="DOG DOG" src=x><b title="IT\'S">D</b> C</p>',
        ),
        (
            "<input type=Submit value=Go placeholder=x><input value=y><input type=reset value>",
            ["Go", "x"],
            '<input type=Submit value="GO" placeholder="X"><input value=y><input type=reset value>',
        ),
        (
            "<i translate=no title=a><b alt=b></b></i> <code title='c &quot;&amp; d'>e</code>",
            ['c "& d', "e"],
            "<i translate=no title=a><b alt=b></b></i> <code title='D &quot;&amp; C'>e</code>",
        ),
        (
            "<p aria-label = ' a\u00ad '>x &shy;</p>",
            ["a", "x"],
            "<p aria-label = ' A '>X &shy;</p>",
        ),
        ('<b title=a"b&#32;c>d</b>', ["d"], '<b title=a"b&#32;c>D</b>'),
        ("<b title=a>b c</b> \0", ["b c \0"], "\0 <b title=a>C B</b>"),
    ],
)
def test_attributes_are_segments_in_their_quotes(text, read, output):
    seen = []

    def generate(texts):
        seen.extend(texts)
        return [" ".join(text.upper().replace("DOG", "DOG DOG").split()[::-1]) for text in texts]

    html = Html(attributes=True)
    assert generated(html, [text], list, SAME) == [text]
    assert generated(html, [text], generate, BACKWARDS) == [output]
    assert seen == read


def test_a_page_that_asks_for_it_is_copied_which_is_said_once(capsys):
    page = '<head><META content="NoTranslate" name=Google></head><p translate=yes>a <b>b</b>'
    other = "<meta name=description content=notranslate><p>a"
    html = Html()
    upper = generated(html, [page, other, page], lambda texts: [t.upper() for t in texts], SAME)
    assert upper == [page, "<meta name=description content=notranslate><p>A", page]
    assert capsys.readouterr().err == (
        "pages with <meta name=google content=notranslate> stay as they are\n"
    )


SHOW = """
const frame = document.createElement('iframe');
frame.sandbox = 'allow-same-origin';  // so that no script runs
document.body.append(frame);
return arguments[0].map(page => {
  const doc = frame.contentDocument;
  doc.open(); doc.write(page); doc.close();
  return doc.body.innerText;
});
"""


def test_a_browser_shows_what_a_model_reads_and_writes(browser):  # noqa: F811
    texts = [page.text for page in PAGES]
    copies = generated(Html(), texts, list, SAME)
    uppers = generated(Html(), texts, lambda some: [text.upper() for text in some], SAME)
    shown = browser.run(SHOW, [*texts, *copies, *uppers])
    size, wrong = len(texts), []
    for number, page in enumerate(PAGES):
        own, copy, upper = shown[number::size]
        segments = Html().document(page.text).segments
        read = " ".join(segment.text for segment in segments)
        if page.kind != "!" and copy != own:
            wrong.append((page.text, "copy", copy, own))
        if visible(upper).casefold() != visible(copy).casefold():
            wrong.append((page.text, "upper", upper, copy))
        if page.reading is None and read.split() != visible(own).split():
            wrong.append((page.text, "reads", read, own))
        if page.reading is not None and read.split() == visible(own).split():
            wrong.append((page.text, "needs no reading"))
    assert not wrong, "\n".join(map(str, wrong))
