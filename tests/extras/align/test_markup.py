"""Tags and placeholders come back where their words went, and the rest is as it was."""

import gzip
from collections import Counter
from contextlib import nullcontext
from html.parser import HTMLParser
from pathlib import Path
from random import Random

import pytest

import seqattn
from seqattn.analysis.word_alignment import WordAlignment
from seqattn.bundle.text_options import LineOutput, OutputOf, SegmentOutput, all_texts
from seqattn.errors import UserError
from seqattn.extras.align.html import Html
from seqattn.extras.align.html_tree import _OPTIONAL, _VOID
from seqattn.extras.align.markup import _ALIKE, LONGEST, Placeholders
from seqattn.extras.align.parts import copies_in, parts_of, spans
from tests.cli.small import json_lines, run, succeed
from tests.growth import SIGNS, grows

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


def generated(markup, texts, generate, align):
    documents = markup.split(texts)
    outputs = iter(generate(all_texts(documents)))
    pairs = [
        (one, [segment_output(text, next(outputs)) for text in one.texts]) for one in documents
    ]
    return [one.text for one in markup.restore(pairs, align)]


def segment_output(text, output):
    return SegmentOutput(output, [LineOutput(text, output)])


@pytest.mark.parametrize("text", WELL_FORMED)
def test_a_model_that_changes_nothing_returns_the_text_to_the_letter(text):
    assert generated(Html(), [text], list, aligned(lambda j, n: 0)) == [text]


@pytest.mark.parametrize("text", [*WELL_FORMED, *BROKEN])
def test_output_nests_whatever_the_order_of_its_words(text):
    for order in (lambda j, n: n - 1 - j, lambda j, n: 0, lambda j, n: Random(j).randrange(n)):
        [output] = generated(Html(), [text], backwards, aligned(order))
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
    assert generated(Html(), [text], backwards, BACKWARDS) == [output]


def test_tags_follow_their_words_in_each_line_of_a_segment():
    markup = Html()
    (document,) = markup.split(["one <b>two</b>. 3. <i>four</i> five."])
    lines = [
        LineOutput("one two.", "TWO. ONE"),
        LineOutput("3.", "3.", is_copy=True),
        LineOutput("four five.", "FIVE. FOUR"),
    ]
    output = SegmentOutput("TWO. ONE 3. FIVE. FOUR", lines)
    links = {"one two.": [1, 0], "3.": [0], "four five.": [1, 0]}

    def align(sources, targets):
        pairs = zip(sources, targets, strict=True)
        return [WordAlignment(a.split(), b.split(), links[a]) for a, b in pairs]

    (restored,) = markup.restore([(document, [output])], align)
    assert restored.text == "<b>TWO</b>. ONE 3. FIVE. <i>FOUR</i>"


def test_an_element_of_several_places_is_written_at_each():
    [output] = generated(Html(), ["he <b>switches on</b> it"], lambda texts: ["er schaltet es ein"],
        lambda a, b: [WordAlignment(a[0].split(), b[0].split(), [0, 1, 3, 2])],
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
    assert generated(Html(), texts, generate, align) == ["A  DOG", "<p>TWO BIRDS</p>"]
    assert seen == ["a  dog", "two birds"]


@pytest.mark.parametrize("text", ["Hi {name}, see https://x.y/z?a=1.", "%s of  %d\n{{x}} <a@b.de>"])
def test_placeholders_that_a_model_copies_stay(text):
    assert generated(Placeholders(), [text], list, BACKWARDS) == [text]


def test_placeholders_that_a_model_garbles_are_restored_or_named(capsys):
    def garbled(texts):
        return [text.replace("{name}", "namen").replace("%s", "") for text in texts]

    [output] = generated(Placeholders(), ["Hi {name}, you"], garbled, aligned(lambda j, n: j))
    assert output == "Hi {name}, you"
    assert generated(Placeholders(), ["a %s"], garbled, aligned(lambda j, n: 0)) == ["a"]
    own = Placeholders(pattern=r"ACME \w+")
    assert generated(own, ["by ACME Dog"], backwards, BACKWARDS) == ["ACME Dog BY"]


TABLE = (Path(__file__).parent / "placeholders.txt").read_text(encoding="utf-8").splitlines()
ROWS = [row.partition(" ⇒ ")[::2] for row in TABLE if not row.startswith("# ")]
LOCALIZED = [(text, parts.split(" · ") if parts else []) for text, parts in ROWS]
"""Texts of localization files with their placeholders."""


def kept_in(text):
    segments = Placeholders().document(text).segments
    return [unit.text for segment in segments for unit in segment.units if unit.kept]


def restored(markup, text, output, links):
    """The text of an output, and what is lost. Args: links: of the parts of both, by `spans`."""
    document = markup.document(text)
    [segment] = document.segments
    return document.restored([segment.restored(output, links)])


def test_placeholders_of_localization_files_are_found():
    assert len(LOCALIZED) > 90
    assert [(text, kept_in(text)) for text, _ in LOCALIZED] == LOCALIZED


@pytest.mark.parametrize(
    "change",
    [lambda words: [], lambda words: ["x"], lambda words: [word[1:] for word in words[::-1]]],
    ids=["dropped", "all lost in a word", "changed and turned"],
)
def test_each_placeholder_is_in_the_output_once_or_lost(change):
    for text, parts in LOCALIZED:
        output = " ".join(change([word for word in text.split() if not kept_in(word)] + parts))
        count = len(spans(output))
        for links in ([], [0] * count):
            found, lost = restored(Placeholders(), text, output, links)
            copies = Counter(found[begin:end] for begin, end in copies_in(parts, found))
            assert copies + Counter(lost) == Counter(parts), (text, output, links, found, lost)


@pytest.mark.parametrize(
    ("text", "output", "links", "found"),
    [
        ("你好{name}、欢迎光临。", "Hello, welcome to us!", [0, 3, 4, 5],
         "Hello {name}, welcome to us!"),
        ("他买{name}和狗。", "He buys and dogs.", [0, 1, 3, 4], "He buys {name} and dogs."),
        ("他买{name}和狗。", "他买和狗。", [0, 1, 3, 4], "他买{name}和狗。"),
        ("他买{name}和狗。", "He buys Nam, dogs.", [0, 1, 2, 4], "He buys {name} dogs."),
        ("สวัสดี{name}ยินดีต้อนรับ", "Hello and welcome", [0, 5, 9], "Hello {name} and welcome"),
        ("He buys {name} today.", "他今天买X。", [0, 3, 3, 1, 2], "他今天买{name}"),
        ("a {n}-fold increase", "ein facher Anstieg", [0, 1, 2], "ein {n} facher Anstieg"),
        ("{name}'s dogs sleep.", "Die Hunde schlafen.", [0, 1, 2], "{name} Die Hunde schlafen."),
        ("{name}你好", "Hello", [1], "{name} Hello"),
        ("{name}你好", "好", [1], "{name}好"),
        ("Dear{name}, she sees", "Liebe, sie sieht", [0, 1, 2], "Liebe{name}, sie sieht"),
        ("buys {a}/{b} books", "kauft A/B Bücher", [0, 1, 2], "kauft {a}/{b} Bücher"),
        ("buys {a}/{b} books", "kauft {b}/A Bücher", [0, 1, 2], "kauft {b}/A {a} Bücher"),
        ("他买{a}和{b}。", "He buys.", [0, 1], "He buys {a} {b}."),
    ],
)  # fmt: skip
def test_a_placeholder_in_a_word_leaves_the_output_as_it_is(text, output, links, found):
    assert restored(Placeholders(), text, output, links) == (found, [])


def test_markers_in_a_word_leave_the_output_as_it_is():
    text, output = r"\v 1 He buys \wj these books\wj*.", "1 Er kauft diese Bücher."
    found = restored(Placeholders(pattern=r"\\\w+\*?"), text, output, [1, 2, 3, 5, 6])
    assert found == (r"1 Er kauft diese Bücher\wj*.", ["\\v", "\\wj"])
    text, output = "He buys <code>x</code>-like books.", "Er kauft existierende Bücher."
    found = restored(Html(), text, output, [0, 1, 2, 3])
    assert found.text == "Er kauft <code>x</code> existierende Bücher."


@pytest.mark.parametrize(
    ("text", "output", "links", "found"),
    [
        ("我买<b>书</b>和狗。", "I buy books and dogs.", [0, 1, 2, 3, 4],
         "I buy <b>books</b> and dogs."),
        ("He <b>buys</b> <a href=x>books</a>.", "他买书。", [0, 1, 2],
         "他<b>买</b><a href=x>书</a>。"),
        ("He <b>buys</b> books.", "他买书。", [0, 1, 2], "他<b>买</b>书。"),
        ("<i>他</i>买<b>书</b>。", "彼は本を買う。", [0, 0, 2, 2, 1, 1],
         "<i>彼は</i><b>本を</b>買う。"),
        ("他<b>买</b>书<img>和狗。", "he dogs and books buys", [0, 4, 3, 2, 1],
         "he dogs and books<img> <b>buys</b>"),
        ("ฉัน<b>รัก</b>หมา", "I love dogs", [0, 2, 4], "I <b>love</b> dogs"),
        ("<b>ខ្ញុំ</b>ឆ្កែ", "I dog", [0, 3], "<b>I</b> dog"),
        ("<b>ဂျပန်</b>ခွေး", "Japan dog", [0, 3], "<b>Japan</b> dog"),
    ],
)  # fmt: skip
def test_tags_in_scripts_without_spaces_follow_letters(text, output, links, found):
    assert restored(Html(), text, output, links).text == found


def test_links_between_pieces_are_links_between_letters():
    """A tag is around what comes from a piece that it holds in part, whatever else is in it."""
    [segment] = Html().document("在<a>北京</a>、我 buy <b>books</b>。").segments
    assert segment.links(["在北京、", "我", "buy", "books。"], ["I", "书书", "x"], [1, 3, 0]) == [
        3, 5, 5, 1,
    ]  # fmt: skip
    assert segment.links(["在北京、我", "buy"], ["I"], [0]) == []


def test_parts_of_words_are_those_of_pieces():
    pieces = ["<s>", "▁", "他的", "<0xE4>", "<0xB9>", "<0xB0>", "书", "。", "▁bo", "oks"]
    chinese, words = [("他的", [2]), ("买", [3, 4, 5]), ("书。", [6])], [("books", [8, 9])]
    assert parts_of([*pieces, "▁a", "书"]) == [*chinese, *words, ("a", [10]), ("书", [11])]


def test_what_looks_like_a_placeholder_is_told_once(capsys):
    markup = Placeholders()
    for _ in range(2):
        generated(markup, ["100% sure {x}", "{see below} a", "50%d"], list, aligned(lambda j, n: 0))
    line = "some parts look like placeholders but are read as text, such as {see below}; set "
    assert capsys.readouterr().err == f"{line}markup.pattern to copy them\n"
    generated(Placeholders(pattern="b"), ["{see below}"], list, aligned(lambda j, n: 0))
    generated(Placeholders(), [text for text, parts in LOCALIZED if parts], list, BACKWARDS)
    assert capsys.readouterr().err == ""


def test_placeholders_take_linear_time():
    def read(text):
        Placeholders().document(text)
        _ALIKE.search(text)

    def put(text):
        restored(Placeholders(), text, text[::-1] + text, [])

    parts = ("{a,", "{a,b,{", "{x}", "<a b='", "{a[")
    assert [sign for sign in (*SIGNS, *parts) if grows(read, sign)] == []
    assert not grows(put, "犬{x}%d")


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
        [output] = generated(
            Placeholders(), [text], lambda _: ["{a} " * (LONGEST // 10)], aligned(order)
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


def test_texts_whose_tags_are_repaired_are_known_by_their_spelling():
    assert [Html().document(text).spelling for text in WELL_FORMED] == WELL_FORMED
    assert not [text for text in BROKEN if Html().document(text).spelling == text]


PAGE = "<!DOCTYPE html>\r\n<p>a <b>dog\r\nsees</b>\r\n<pre>a\r\n  b</pre>\r\n<ul><li>two birds</ul>"


@pytest.mark.parametrize("end", ["", "\n", "\r\n\r\n"])
def test_an_html_file_is_one_text_and_keeps_its_line_breaks(capfd, trained, tmp_path, end):
    file, out = tmp_path / "a.HTM.gz", tmp_path / "out"
    file.write_bytes(gzip.compress(f"\ufeff{PAGE}{end}".encode()))
    words = (f"bundle={trained}/model", "markup=html", f"input={file}")
    expected = seqattn.load(trained / "model").generate(PAGE + end, markup="html")
    assert "<pre>a\r\n  b</pre>" in expected
    ended = run(capfd, "generate", *words, f"output={out}")
    assert (ended.code, "without their counterpart" in ended.err) == (0, False)
    assert out.read_bytes() == expected.encode()
    assert succeed(capfd, "generate", *words) == expected
    [row] = json_lines(succeed(capfd, "generate", *words, "format=jsonl"))
    assert {"line": 1, "source": PAGE + end, "output": expected}.items() <= row.items()
    shares = [tmp_path / f"out{part}" for part in (1, 2)]
    for part, share in enumerate(shares, 1):
        succeed(capfd, "generate", *words, f"output={share}", f"part={part}/2")
    assert b"".join(share.read_bytes() for share in shares) == expected.encode()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"<p>\xff", "x.html is not valid UTF-8 at byte 3; convert it to UTF-8"),
        ("\ufeff<p>".encode("utf-16-le"), "x.html is not valid UTF-8 at byte 0; convert it"),
        (b"<META CHARSET='Latin1'>", "x.html declares the charset Latin1; convert it to UTF-8"),
        (
            b'<meta http-equiv="Content-Type"\ncontent="text/html; charset=windows-1252">',
            "x.html declares the charset windows-1252; convert it",
        ),
        (b'<?xml version="1.0" encoding="us-ascii"?>', "x.html declares the charset us-ascii; c"),
        (b"<meta charset=UTF-8><script charset=x>", None),
        (b"<p>" + b" " * 1_000_000, "x.html is larger than the maximum of 1,000,000 bytes"),
        (b"<meta " * 200_000, "x.html is larger than the maximum of 1,000,000 bytes"),
        (b"<meta " * 100_000, None),
    ],
)
def test_a_page_that_is_not_utf8_is_refused_and_not_guessed(tmp_path, content, line):
    (tmp_path / "x.html").write_bytes(content)
    with nullcontext() if line is None else pytest.raises(UserError, match=line):
        assert Html().read(tmp_path / "x.html") == content.decode()


def test_markup_goes_with_other_options(capfd, trained, tmp_path):
    (tmp_path / "x.txt").write_text("a <b>dog</b> sees\n\nthe {name} cat\n<i>the boy</i>")
    (tmp_path / "terms.tsv").write_text("dog\tKatze\ncat\t!Katze")
    words = (f"bundle={trained}/model", "markup=html", f"input={tmp_path}/x.txt")
    alone = succeed(capfd, "generate", *words).splitlines()
    rows = json_lines(succeed(capfd, "generate", *words, "n_best=2", "format=jsonl"))
    assert [row["output"] for row in rows if row["rank"] == 1] == alone
    assert {row["rank"] for row in rows} == {1, 2}
    own = f"terms.file={tmp_path}/terms.tsv"
    *others, row = json_lines(succeed(
        capfd, "generate", *words, "terms=glossary", own, "format=jsonl"
    ))  # fmt: skip
    assert "Katze" in others[0]["output"]
    assert [one["unmet"] for one in others] == [[], [], []]
    assert (row["output"], row["unmet"]) == (alone[3], [])
    samples = (*words, "generation=sampling")
    assert succeed(capfd, "generate", *samples, "window=1") == succeed(capfd, "generate", *samples)


def test_lines_that_break_tags_or_lose_line_breaks_are_counted_once_a_run(capfd, trained, tmp_path):
    words = (f"bundle={trained}/model", "markup=html", "window=2")
    (tmp_path / "x.txt").write_text("a dog\n<ul>\n<li>a \u9d5c ball\n</ul>\n<p>a <b>dog")
    ended = run(capfd, "generate", *words, f"input={tmp_path}/x.txt")
    assert ended.out.count("\n") == 5
    assert "\n3 outputs (first: 2) had tags without their counterpart, " in f"\n{ended.err}"
    assert "a page is one text, as files named .html are read" in ended.err
    assert "lacks 1 piece of the input, such as \u9d5c" in ended.err
    (tmp_path / "x.jsonl").write_text('{"source": "a dog"}\n{"source": "<pre>a\\n b</pre>"}')
    ended = run(capfd, "generate", *words, f"input={tmp_path}/x.jsonl")
    assert ended.out.endswith("\n<pre>a  b</pre>\n")
    assert ended.err == "1 output (first: 2) became one line; format=jsonl keeps line breaks\n"
    ended = run(capfd, "generate", *words, f"input={tmp_path}/x.jsonl", "format=jsonl")
    copied = dict.fromkeys(("source", "output"), "<pre>a\n b</pre>")
    assert copied.items() <= json_lines(ended.out)[1].items()
    assert not ended.err


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ([(7, "a %s"), (9, "a")], "text 7: lost %s\n"),
        (
            [(7, "a %s"), (9, "a %d")],
            "2 texts lost protected parts, which format=jsonl lists: text 7: lost %s\n",
        ),
    ],
)
def test_lost_parts_are_told_once_and_listed_in_json(capsys, texts, told):
    markup = Placeholders()
    split = markup.split([text for _, text in texts])
    documents = [(one, [segment_output(text, "b") for text in one.texts]) for one in split]
    each = markup.restore(documents, aligned(lambda j, n: 0))
    outputs = [
        OutputOf(number, "", "", (), text, one, True)
        for (number, text), one in zip(texts, each, strict=True)
    ]
    lost = [markup.note(output).keys.get("lost") for output in outputs]
    assert lost == [[text[2:]] if text[2:] else None for _, text in texts]
    markup.say()
    assert capsys.readouterr().err == told


def test_alignments_of_texts_without_spaces_are_told(capfd, trained):
    words = "generate", f"bundle={trained}/model", "alignments=true"
    told = "texts without spaces between words count as one word each"
    assert told in run(capfd, *words, "text=他买书和狗。").err
    assert told not in run(capfd, *words, "text=a dog").err


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
