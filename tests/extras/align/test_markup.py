"""Tags and placeholders come back where their words went, and the rest is as it was."""

from html.parser import HTMLParser
from random import Random
from types import SimpleNamespace

import pytest

import seqattn
from seqattn.analysis.word_alignment import WordAlignment
from seqattn.errors import UserError
from seqattn.extras.align.html import Html
from seqattn.extras.align.html_tree import _OPTIONAL, _VOID
from seqattn.extras.align.markup import LONGEST, Placeholders
from tests.cli.small import succeed

WELL_FORMED = [
    "Hello <b>world</b>!",
    "a  b\n c",
    "<p>Hello <b>big <i>bad</i></b>  wolf.</p>\n<p class='x'>A&nbsp;b &amp; <a href=\"#\">c</a>, d",
    "<ul><li>a b<li>c d</ul>",
    "x <img src=a> y<br>z <code>foo bar(1)</code>, w <!-- c --> v",
    "un<b>believ</b>able day",
    "<b></b> x <b> </b>y",
    "<script>if (a<b) x();</script> hi <b>you</b>",
    '<div translate="no">no <b>x</b></div> yes <span translate=no>Foo Bar</span>.',
    "AT&T and a < b &lt; c",
    "caf&eacute; <I Class=X>x</I >",
    "<a href=x><p>one</p><p>two</p></a>",
    "<table><tr><td>a b<td>c<tr><td>d</table>",
    "5 &lt; 6 &amp; 7",
    "",
    " \n ",
    "<b>x</b>\r\n<i>y</i>",
    "<!DOCTYPE html>\n<html><head><title>T t</title></head><body><p>Hi <em>you</em></body></html>",
    "a <wbr> b foo<wbr>bar<img>",
    "<p>a & <b>b</b></p>",
    "x<br><a href='u'></a>",
]
BROKEN = [
    "<</i>b>x <b>y</b>",
    "a <b>b",
    "a</i> <b>b <i>c</b> d</i>",
    "a <b>x <!-- y",
    "a <b x='",
    "</p>a",
]


def aligned(order):
    """An aligner that links word `order(j, n)` of n source words to output word j."""

    def align(sources, targets):
        sides = [(source.split(), target.split()) for source, target in zip(sources, targets)]
        return [
            WordAlignment(a, b, [order(j, len(a)) for j in range(len(b))] if a else [])
            for a, b in sides
        ]

    return align


def backwards(texts):
    return [" ".join(text.upper().split()[::-1]) for text in texts]


BACKWARDS = aligned(lambda j, n: n - 1 - j)


class Checked(HTMLParser):
    """Fails for tags that do not nest."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open[-1] != tag and self.open[-1] in _OPTIONAL:
            self.open.pop()
        assert self.open.pop() == tag


def check(text):
    parser = Checked()
    parser.feed(text)
    parser.close()
    assert {*parser.open} <= _OPTIONAL, text


@pytest.mark.parametrize("text", WELL_FORMED)
def test_a_model_that_changes_nothing_returns_the_text_to_the_letter(text):
    assert Html().generate([text], list, aligned(lambda j, n: 0)) == [text]


@pytest.mark.parametrize("text", [*WELL_FORMED, *BROKEN])
def test_output_nests_whatever_the_order_of_its_words(text):
    for order in (lambda j, n: n - 1 - j, lambda j, n: 0, lambda j, n: Random(j).randrange(n)):
        [output] = Html().generate([text], backwards, aligned(order))
        check(output)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("one <b>two three</b> four", "FOUR <b>THREE TWO</b> ONE"),
        ("<b>Hello <i>big</i></b>, world!", "WORLD! <b><i>BIG</i></b>, <b>HELLO</b>"),
        ("<p>a <b>b</b></p><p>c d</p>", "<p><b>B</b> A</p><p>D C</p>"),
        ("a &amp; <i>b</i> &lt;", "&lt; <i>B</i> &amp; A"),
        ("x <code>f(1)</code> y", "Y <code>f(1)</code> X"),
        ("<i>x</i><img src='a'> y", "Y <i>X</i><img src='a'>"),
    ],
)
def test_tags_follow_their_words(text, output):
    assert Html().generate([text], backwards, BACKWARDS) == [output]


def test_an_element_of_several_places_is_written_at_each():
    [output] = Html().generate(
        ["he <b>switches on</b> it"], lambda texts: ["er schaltet es ein"],
        lambda *sides: [SimpleNamespace(links=[0, 1, 3, 2])],
    )  # fmt: skip
    assert output == "er <b>schaltet</b> es <b>ein</b>"


def test_what_no_tag_touches_is_generated_as_before():
    seen = []

    def generate(texts):
        seen.extend(texts)
        return [text.upper() for text in texts]

    def align(sources, targets):
        assert sources == targets == []
        return []

    texts = ["a  dog", "<p>two birds</p>"]
    assert Html().generate(texts, generate, align) == ["A  DOG", "<p>TWO BIRDS</p>"]
    assert seen == ["a  dog", "two birds"]


@pytest.mark.parametrize("text", ["Hi {name}, see https://x.y/z?a=1.", "%s of  %d\n{{x}} <a@b.de>"])
def test_placeholders_that_a_model_copies_stay(text):
    assert Placeholders().generate([text], list, BACKWARDS) == [text]


def test_placeholders_that_a_model_garbles_are_restored_or_named(capsys):
    def garbled(texts):
        return [text.replace("{name}", "namen").replace("%s", "") for text in texts]

    [output] = Placeholders().generate(["Hi {name}, you"], garbled, aligned(lambda j, n: j))
    assert output == "Hi {name}, you"
    assert Placeholders().generate(["a %s"], garbled, aligned(lambda j, n: 0)) == ["a"]
    assert capsys.readouterr().err == "text 1: lost %s\n"
    own = Placeholders(pattern=r"ACME \w+")
    assert own.generate(["by ACME Dog"], backwards, BACKWARDS) == ["ACME Dog BY"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("<b>" * 101 + "x", "tags nest more than 100 deep; simplify the text"),
        (f"<a b='&#{'9' * 5_000};'>x</a>", "a character reference may have at most 20 digits"),
        ("<b>x</b>" * 7_000, "a text may have at most 20,000 tags, got more; split it"),
        (
            "a" * (LONGEST + 1),
            "a text with markup may have at most 200,000 characters, got 200,001",
        ),
    ],
)
def test_hostile_texts_are_refused_in_a_line(text, line):
    with pytest.raises(UserError, match=line):
        Html().document(text)


@pytest.mark.parametrize("part", ["<!--", "<a b='", "</", "<![CDATA[", "<?", "<b ", "<", "&#", "{"])
def test_unfinished_tags_take_no_time(part):
    Html().document((part * LONGEST)[:LONGEST])
    Placeholders().document((part * LONGEST)[:LONGEST])


def test_many_placeholders_take_linear_time(capsys):
    text = "{a} {b} " * (LONGEST // 20)
    for order in (lambda j, n: 0, lambda j, n: j):  # a quadratic search takes minutes
        [output] = Placeholders().generate(
            [text], lambda _: ["{a} " * (LONGEST // 10)], aligned(order)
        )
        assert output.count("{a}") >= LONGEST // 20
        assert len(capsys.readouterr().err) < 100


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("(", "not a regular expression"),
        ("x{99999999999}", "not a regular expression: the repetition number is too large"),
        ("x*", "not match the empty text"),
        (r"\b", "not match the empty text"),
    ],
)
def test_a_pattern_that_cannot_be_is_refused(pattern, line):
    with pytest.raises(UserError, match=line):
        Placeholders(pattern=pattern)


def test_a_command_and_python_give_the_same(capfd, trained):
    text = "<p>a <b>dog</b> sees</p> a ball ."
    out = succeed(capfd, "generate", f"bundle={trained}/model", "markup=html", f"text={text}")
    bundle = seqattn.load(trained / "model")
    assert out == f"{bundle.generate(text, markup='html')}\n"
    assert out.startswith("<p>")
    plain = bundle.generate("a dog")
    assert [bundle.generate("a dog", markup=name) for name in ("html", "placeholders")] == [
        plain
    ] * 2
    with pytest.raises(UserError, match="unknown choice markup=xml"):
        bundle.generate(text, markup="xml")
