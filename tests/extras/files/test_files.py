"""Files come back with translations in the place of their texts, and are otherwise as before."""

import difflib
import gzip
import re
import tracemalloc
import zipfile

import pytest

from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from seqattn.extras.files.documents import WordDocument
from seqattn.extras.files.exchange_files import matches
from seqattn.extras.files.formats import Translation
from seqattn.extras.files.option import Files
from seqattn.extras.files.segments import Segments
from seqattn.extras.files.xml_text import parse_xml
from tests.bundle.conftest import configuration, corpus, untrained
from tests.cli.small import run as cli
from tests.growth import grows

SRT = """\ufeff1
00:00:01,000 --> 00:00:02,500 X1:201 X2:516
<i>He buys</i>
these books & goes

2
00:00:02,600 --> 00:00:04,000
home in the {\\an8}evening.

3
00:00:05,000 --> 00:00:06,000
- Hello, <b>Ann</b>!
- Hi <3.

4
00:00:07,000 --> 00:00:08,000
♪♪
"""
VTT = """WEBVTT - a title

STYLE
::cue { color: red }

NOTE a comment
00:00 of it

intro
00:01.000 --> 00:04.000 align:start
<v Bob>He &amp; <c.yellow>she</c> buy<00:00:02.000> books.

00:05.000 --> 00:06.000
Bob: We see it."""
PO = """# head
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"

# note
#: a.c:3
#, fuzzy, c-format
#| msgid "old"
msgctxt "menu"
msgid "He buys %d <b>book</b>."
msgid_plural "He buys %(n)s books."
msgstr[0] "alt"
msgstr[1] ""

msgid ""
"Long \\"text\\"\\n"
"in parts\\n"
msgstr ""

msgid "done"
msgstr "fertig"

#~ msgid "gone"
#~ msgstr "weg"
"""
XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
 <file original="a" source-language="en-US" target-language="de" datatype="plaintext"><body>
   <trans-unit id="1">
    <source>He buys <g id="1">these <x id="2"/>books</g> &amp; sings.</source>
   </trans-unit>
   <group translate="no"><trans-unit id="2"><source>KEEP</source></trans-unit></group>
   <trans-unit id="3"><source>Press <bpt id="1">&lt;b&gt;</bpt>OK<ept id="1"/>.</source
     ><target state="new"/></trans-unit>
   <trans-unit id="4"><source>Done.</source><target>Fertig.</target></trans-unit>
   <trans-unit id="5"><source><![CDATA[A < B]]> é</source></trans-unit>
 </body></file>
 <file original="b" source-language="fr" target-language="de"><body>
   <trans-unit id="1"><source>Oui.</source></trans-unit></body></file>
</xliff>
"""
XLIFF_2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0"
  srcLang="en" trgLang="de">
 <file id="f1"><unit id="u1"><segment id="s1" state="initial"
  ><source>He buys <pc id="1">books</pc>.</source></segment>
 <ignorable><source> </source></ignorable>
 <segment><source>She <ph id="2"/> sings.</source><target></target></segment></unit></file>
</xliff>
"""
TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en-US"/><body>
  <tu>
    <tuv xml:lang="en-US"><seg>He buys books.</seg></tuv>
    <tuv xml:lang="fr"><seg>Il achète.</seg></tuv>
  </tu>
  <tu><tuv xml:lang="EN"><seg>Hi</seg></tuv><tuv xml:lang="de-AT"><seg/></tuv></tu>
  <tu><tuv xml:lang="en"><seg>Yes</seg></tuv><tuv xml:lang="de"><seg>Ja</seg></tuv></tu>
</body></tmx>
"""
CASES = {
    "a.srt": (
        SRT,
        {},
        [
            '<g id="0">He buys</g> these books &amp; goes<x id="1"/>home in '
            'the <x id="2"/>evening.',
            'Hello, <g id="0">Ann</g>!',
            "Hi &lt;3.",
        ],
        [],
    ),
    "b.vtt": (
        VTT,
        {},
        ['<x id="0"/>He &amp; <g id="1">she</g> buy<x id="2"/> books.', "Bob: We see it."],
        [],
    ),
    "c.po": (
        PO,
        {},
        [
            'He buys <x id="0"/> <g id="1">book</g>.',
            'He buys <x id="0"/> books.',
            'Long "text"',
            "in parts",
        ],
        [
            "-#, fuzzy, c-format", "+#, c-format",
            '-msgstr[0] "alt"', '-msgstr[1] ""',
            '+msgstr[0] "He buys %d <b>book</b>."', '+msgstr[1] "He buys %(n)s books."',
            '+"Long \\"text\\"\\n"', '+"in parts\\n"',
        ],
    ),
    "d.xlf": (
        XLIFF,
        {"source_language": "en"},
        [
            'He buys <g id="0">these <x id="1"/>books</g> &amp; sings.',
            'Press <x id="0"/>OK<x id="1"/>.',
            "A &lt; B é",
        ],
        [
            '+    <target state="translated">He buys <g id="1">these <x id="2"/>books</g> &amp; '
            "sings.</target>",
            '-     ><target state="new"/></trans-unit>',
            '+     ><target state="translated">Press <bpt id="1">&lt;b&gt;</bpt>OK<ept id="1"/>.'
            "</target></trans-unit>",
            '-   <trans-unit id="5"><source><![CDATA[A < B]]> é</source></trans-unit>',
            '+   <trans-unit id="5"><source><![CDATA[A < B]]> é</source>'
            '<target state="translated">A &lt; B é</target></trans-unit>',
        ],
    ),
    "e.xliff": (
        XLIFF_2,
        {},
        ['He buys <g id="0">books</g>.', 'She <x id="0"/> sings.'],
        [
            '- <file id="f1"><unit id="u1"><segment id="s1" state="initial"',
            "-  ><source>He buys <pc id=\"1\">books</pc>.</source></segment>",
            '+ <file id="f1"><unit id="u1"><segment id="s1" state="translated"',
            '+  ><source>He buys <pc id="1">books</pc>.</source>'
            '<target>He buys <pc id="1">books</pc>.</target></segment>',
            '- <segment><source>She <ph id="2"/> sings.</source><target></target></segment></unit>'
            "</file>",
            '+ <segment state="translated"><source>She <ph id="2"/> sings.</source>'
            '<target>She <ph id="2"/> sings.</target></segment></unit></file>',
        ],
    ),
    "f.tmx": (
        TMX,
        {"target_language": "de"},
        ["He buys books.", "Hi"],
        [
            '+    <tuv xml:lang="de"><seg>He buys books.</seg></tuv>',
            '-  <tu><tuv xml:lang="EN"><seg>Hi</seg></tuv><tuv xml:lang="de-AT"><seg/></tuv></tu>',
            '+  <tu><tuv xml:lang="EN"><seg>Hi</seg></tuv><tuv xml:lang="de-AT"><seg>Hi</seg></tuv>'
            "</tu>",
        ],
    ),
    "g.html": ("\ufeff<p>He <b>buys</b> it.</p>", {}, ["<p>He <b>buys</b> it.</p>"], []),
}  # fmt: skip


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    directory = tmp_path_factory.mktemp("files")
    tokenizer = train_tokenizer(corpus(), corpus(), TokenizerConfig(vocab_size=38), directory)
    untrained(directory / "model", tokenizer, configuration())
    return directory / "model"


@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("name", CASES)
def test_only_what_is_translated_changes(tmp_path, name, ends, encoding):
    text, settings, units, changes = CASES[name]
    text = text.replace("\n", ends)
    if encoding == "utf-16":
        if name == "g.html":
            pytest.skip("pages are UTF-8")
        text = text.replace(' encoding="UTF-8"', "").removeprefix("\ufeff")
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    option = Files(**settings)
    assert option.units(path) == units
    written = b"".join(option.written(path, units))
    if encoding == "utf-16":
        assert written[:2] == path.read_bytes()[:2]
    after = written.decode(encoding).split(ends)
    differing = [
        line
        for line in difflib.unified_diff(text.split(ends), after, lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    assert sorted(differing) == sorted(changes)


def test_a_sentence_over_cues_is_put_back_into_these(tmp_path):
    path = tmp_path / "a.srt"
    path.write_text(SRT, encoding="utf-8")
    option = Files()
    moved = 'Er kauft <g id="0">diese Bücher</g> &amp; geht <x id="1"/>abends <x id="2"/>heim.'
    units = [moved, '<g id="0">Hallo</g>, Ann!', "Na &lt;3."]
    lines = b"".join(option.written(path, units)).decode().split("\n")
    assert lines[2:4] == ["Er kauft <i>diese", "Bücher</i> & geht"]
    assert lines[7] == "abends {\\an8}heim."
    assert lines[11:13] == ["- <b>Hallo</b>, Ann!", "- Na <3."]
    units[0] = 'Er kauft Bücher und geht heim.<x id="1"/> <x id="2"/>'  # nothing in the second
    lines = b"".join(option.written(path, units)).decode().split("\n")
    assert lines[2:4] == ["Er kauft", "Bücher und"]
    assert lines[7] == "geht heim. {\\an8}"


def test_a_translation_that_exists_is_translated_again_if_told(tmp_path):
    for name in ("c.po", "d.xlf", "f.tmx"):
        text, settings, units, _ = CASES[name]
        (tmp_path / name).write_text(text, encoding="utf-8")
        more = Files(**settings, everything=True).units(tmp_path / name)
        assert [one for one in more if one not in units] == [
            {"c.po": "done", "d.xlf": "Done.", "f.tmx": "Yes"}[name]
        ]


def test_words_of_documents_keep_their_format(tmp_path):
    docx = pytest.importorskip("docx")
    document = docx.Document()
    document.add_heading("He buys these books.", 1)
    paragraph = document.add_paragraph("She sees ")
    paragraph.add_run("my dogs").bold = True
    paragraph.add_run(" & the big ")
    paragraph.add_run("hou").italic = True
    paragraph.add_run("se <today>.")
    document.add_paragraph("Name:\tAnn\nNext")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "He sings.", "42"
    document.sections[0].header.paragraphs[0].text = "The head"
    path, copy = tmp_path / "a.docx", tmp_path / "b.docx"
    document.save(path)
    option = Files()
    units = option.units(path)
    bold, italic = '<g id="1">my dogs</g>', '<g id="3">hou</g>'
    assert units == [
        "He buys these books.",
        f"She sees {bold} &amp; the big {italic}se &lt;today&gt;.",
        'Name:<br id="1">Ann<br id="3">Next',
        "He sings.",
        "The head",
    ]
    units[1] = '<g id="1">meine</g> <g id="3">Hunde &amp; das</g> <g id="1">sieht</g> sie.'
    copy.write_bytes(b"".join(option.written(path, units)))
    after = docx.Document(copy)
    runs = [(run.text, run.bold, run.italic) for run in after.paragraphs[1].runs]
    assert runs == [
        ("meine", True, None), (" ", None, None), ("Hunde & das", None, True), (" ", None, None),
        ("sieht", True, None), (" sie.", None, None),
    ]  # fmt: skip
    assert after.paragraphs[2].text == "Name:\tAnn\nNext"
    assert after.tables[0].cell(0, 1).text == "42"
    with zipfile.ZipFile(path) as before, zipfile.ZipFile(copy) as now:
        assert before.namelist() == now.namelist()
        changed = {name for name in now.namelist() if before.read(name) != now.read(name)}
    assert changed == {"word/document.xml", "word/header1.xml"}


W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def document_of(path, paragraph):
    text = f"<w:document {W}><w:body>{paragraph}</w:body></w:document>"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", text)
    return path


def run(text, properties=""):
    return f"<w:r>{properties}<w:t>{text}</w:t></w:r>"


def test_links_stay_and_fields_deletions_and_boxes_are_not_text(tmp_path):
    link = f'<w:hyperlink r="1">{run("a page")}</w:hyperlink>'
    mark = '<w:bookmarkStart w:id="0"/>'
    begin, end = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "end"))
    field = f"{begin}{run('12')}{end}"
    deleted = "<w:del><w:r><w:delText>old</w:delText></w:r></w:del>"
    box = f"<w:r><w:pict><w:p>{run('In a box.')}</w:p></w:pict></w:r>"
    inner = f"<w:pPr/>{mark}{run('See ')}{link}{run(' on ')}{field}{deleted}{run('it.')}{box}"
    path = document_of(tmp_path / "a.docx", f"<w:p>{inner}</w:p>")
    document = WordDocument(path)
    units = document.units()
    assert [re.sub(r' id="\d+"', "", one) for one in units] == [
        "See <g>a page</g> on <x/><x/><x/><x/>it.",
        "In a box.",
    ]
    (tmp_path / "b.docx").write_bytes(b"".join(document.written([*map(Translation, units)])))
    with zipfile.ZipFile(tmp_path / "b.docx") as archive:
        after = archive.read("word/document.xml").decode()
    assert after.replace(' xml:space="preserve"', "") == (
        f"<w:document {W}><w:body><w:p>{inner}</w:p></w:body></w:document>"
    )


def test_a_code_in_the_run_of_a_text_stays_with_it(tmp_path):
    runs = "<w:r><w:footnoteRef/><w:tab/><w:t>A note.</w:t><w:br/></w:r>"
    path = document_of(tmp_path / "a.docx", f"<w:p>{run('1')}{runs}<w:r><w:pict/></w:r></w:p>")
    document = WordDocument(path)
    [unit] = document.units()
    (tmp_path / "b.docx").write_bytes(b"".join(document.written([Translation(unit)])))
    with zipfile.ZipFile(tmp_path / "b.docx") as archive:
        after = archive.read("word/document.xml").decode()
    kinds = re.findall(r"<w:(footnoteRef|tab|t|br|pict)\b", after)
    assert kinds == ["t", "footnoteRef", "tab", "t", "br", "pict"]


def test_only_strings_of_a_plural_that_are_empty_are_filled(tmp_path):
    path = tmp_path / "a.po"
    strings = 'msgid "a book"\nmsgid_plural "books"\nmsgstr[0] "ein Buch"\nmsgstr[1] ""\n'
    path.write_text(strings, encoding="utf-8")
    option = Files()
    assert option.units(path) == ["books"]
    written = b"".join(option.written(path, ["Bücher"])).decode()
    assert written == strings.replace('msgstr[1] ""', 'msgstr[1] "Bücher"')


def translated(tmp_path, name, text, rows=None):
    """A file whose translations are its texts in capitals, but for their codes."""
    path = tmp_path / name
    path.write_bytes(text.encode())
    units = Files().units(path)
    capitals = [re.sub(r"(<[^>]*>|&\w+;)|(.)", lambda m: m[1] or m[2].upper(), u) for u in units]
    if rows:
        rows = [{"line": n, "output": one, "rank": 1, **rows} for n, one in enumerate(capitals, 1)]
        return b"".join(Files().with_notes(path, rows)).decode("utf-8")
    return b"".join(Files().written(path, capitals)).decode("utf-8")


QUALITY = {"quality": {"label": "unusable", "expected": 0.0}}


def test_marks_of_obsolete_entries_are_not_those_of_the_next(tmp_path):
    done = 'msgid "a"\nmsgstr "b"\n'
    obsolete = '#, fuzzy\n#~ msgid "x"\n#~ msgstr "y"\n'
    for between in ("", "\n"):
        text = f"{obsolete}{between}{done}"
        assert translated(tmp_path, "a.po", text) == text
    two = "#, fuzzy\n#, c-format\n" + done
    assert translated(tmp_path, "a.po", two) == two.replace("#, fuzzy", "#").replace('"b"', '"A"')
    text = f'{obsolete}msgid "a"\nmsgstr ""\n'
    noted = translated(tmp_path, "a.po", text, QUALITY)
    assert noted.startswith(f"{obsolete}# quality: unusable, 0.0\nmsgid")


def test_an_unknown_quality_is_no_note(tmp_path):
    text = 'msgid "a"\nmsgstr ""\n'
    noted = translated(tmp_path, "a.po", text, {"quality": {"label": None, "expected": None}})
    assert noted == text.replace('""', '"A"')


def test_notes_stand_after_the_head_of_a_file(tmp_path):
    cue = "00:01.000 --> 00:02.000\nhe\n"
    for mark in ("", "\ufeff"):
        noted = translated(tmp_path, "a.vtt", f"{mark}WEBVTT\n{cue}", QUALITY)
        assert noted == f"{mark}WEBVTT\nNOTE quality: unusable, 0.0\n\n{cue.replace('he', 'HE')}"
        noted = translated(tmp_path, "a.po", f'{mark}msgid "a"\nmsgstr ""\n', QUALITY)
        assert noted.startswith(f"{mark}# quality: unusable, 0.0\nmsgid")
    text = f"WEBVTT\n\n{cue}".replace("\n", "\r\n")
    assert "\n" not in translated(tmp_path, "a.vtt", text, QUALITY).replace("\r\n", "")


def test_cues_without_blank_lines_keep_their_numbers(tmp_path):
    times = "00:00:01,000 --> 00:00:02,000"
    text = f"\ufeff{times}\nhe sings.\n2\n{times}\nshe\nsings.\n3\n{times}\n- 3\n"
    expected = text.replace("he sings", "HE SINGS").replace("she\nsings", "SHE\nSINGS")
    assert translated(tmp_path, "a.srt", text) == expected


def test_lines_are_not_divided_within_tags(tmp_path):
    times = "00:01.000 --> 00:02.000"
    tag = '<font color="red" face="A b">'
    cue = f"{times}\nthe\n{tag}man sings.</font>\n\n{times}\n<v Bob>he is.\n<v Ann S>she is.\n"
    written = translated(tmp_path, "a.vtt", f"WEBVTT\n\n{cue}")
    assert tag in written
    assert "<v Bob>HE IS.\n<v Ann S>SHE IS.\n" in written


def test_spaces_around_a_text_stay(tmp_path):
    text = 'msgid "  a b: "\nmsgstr ""\n'
    assert translated(tmp_path, "a.po", text) == text.replace('""', '"  A B: "')
    source = "<source>\n   he <g id='1'>sings</g>\n </source>"
    text = f"<xliff version='1.2'><file><trans-unit id='1'>{source}</trans-unit></file></xliff>"
    path = tmp_path / "a.xlf"
    path.write_text(text, encoding="utf-8")
    assert Files().units(path) == ['he <g id="0">sings</g>']
    target = ">\n   HE <g id='1'>SINGS</g>\n </target>"
    assert target in translated(tmp_path, "a.xlf", text)


DEEP = f"<w:p>{'<w:smartTag>' * 101}{run('Deep.')}{'</w:smartTag>' * 101}</w:p>"
BROKEN = {
    "a.srt": (SRT.replace("00:00:05,000", "00:00:0x"), "line 11: the times of the cue are not", 1),
    "a.po": (PO.replace('"done"', '"do"ne"'), "line 21: this is not of a catalog of gettext", 4),
    "a.xlf": (
        XLIFF.replace("OK", "<g id='3'>" * 101 + "OK" + "</g>" * 101),
        "unit 3: tags nest more than 100 deep; simplify the text",
        3,
    ),
    "a.docx": ("<w:p><w:r><w:t>ok</w:t></w:r></w:p>" + DEEP, "word/document.xml, text 2: tags", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_unit_is_named_and_left_if_told(tmp_path, capsys, name):
    text, message, count = BROKEN[name]
    path = tmp_path / name
    if name == "a.docx":
        document_of(path, text)
    else:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=rf"{name}, {message}.*add files.skip_broken=true"):
        Files().units(path)
    option = Files(skip_broken=True)
    assert len(option.units(path)) == count
    written = b"".join(option.written(path, ["NEW"] * count))
    assert f"units of {path} that stay as they are: {message}" in capsys.readouterr().err
    if name != "a.docx":
        assert written.count(b"NEW") == count
        assert written.count(b"\n") >= text.count("\n") - 2


NOTED = {
    "b.vtt": (
        "NOTE quality: usable, 71.5\n\nNOTE translation 2: Er -> sie & du\n\nintro\n00:01.000"
    ),
    "c.po": "# quality: usable, 71.5\n# translation 2: Er --> sie & du\n# note\n#: a.c:3\n",
    "d.xlf": "</target><note>quality: usable, 71.5</note>"
    "<note>translation 2: Er --&gt; sie &amp; du</note>",
    "e.xliff": '<unit id="u1"><notes><note>quality: usable, 71.5</note>'
    "<note>translation 2: Er --&gt; sie &amp; du</note></notes><segment",
    "f.tmx": "<tu>\n    <note>quality: usable, 71.5</note>"
    "<note>translation 2: Er --&gt; sie &amp; du</note><tuv",
}


@pytest.mark.parametrize("name", NOTED)
def test_qualities_and_other_translations_are_notes(tmp_path, name):
    text, settings, units, _ = CASES[name]
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    rows = [
        {"line": 1, "output": "Er.", "rank": 1, "quality": {"label": "usable", "expected": 71.5}},
        {"line": 1, "output": 'Er --><x id="0"/>s<g id="1">i</g>e &amp; du', "rank": 2},
        *({"line": n, "output": "x.", "rank": 1} for n in range(2, len(units) + 1)),
    ]
    written = b"".join(Files(**settings).with_notes(path, rows)).decode()
    assert NOTED[name] in written
    assert written.count("quality") == written.count("translation 2") == 1
    again = tmp_path / f"again.{name}"
    again.write_text(written, encoding="utf-8")
    everything = Files(everything=True, **settings)
    assert len(everything.units(again)) == len(everything.units(path))


def test_notes_of_a_unit_of_xliff_are_added_to_those_it_has(tmp_path):
    for notes, begin in (("<notes><note>a</note></notes>", "<note>a</note>"), ("<notes/>", "")):
        path = tmp_path / "e.xliff"
        path.write_text(XLIFF_2.replace('id="u1">', f'id="u1">{notes}'), encoding="utf-8")
        rows = [{"line": n, "output": "x", "rank": rank} for n in (1, 2) for rank in (1, 2)]
        written = b"".join(Files().with_notes(path, rows)).decode()
        assert f"<notes>{begin}{'<note>translation 2: x</note>' * 2}</notes>" in written
        assert written.count("notes>") == 2


def test_languages_have_codes_of_two_and_three_letters():
    for code, wanted in (("en-US", "en"), ("eng_Latn", "en"), ("de", "deu_Latn")):
        assert matches(code, wanted)
    for code, wanted in (("en-US", "en-GB"), ("eng", "de"), ("xx", "yy"), ("e", "en")):
        assert not matches(code, wanted)


def test_nothing_in_a_file_exhausts_the_machine(tmp_path):
    cases = {
        "a.xlf": ('<!DOCTYPE x [<!ENTITY a "b">]><xliff>&a;</xliff>', "declares entities"),
        "b.xlf": ("<xliff>" * 300, "nests deeper than 256"),
        "j.xlf": (f"<xliff>{'<b/>' * 1_000_000}</xliff>", "has more than 1,000,000 elements"),
        "c.xlf": ("<xliff><a></xliff>", "is not well-formed XML"),
        "d.xlf": ("<html/>", "is neither XLIFF nor TMX"),
        "e.tmx": ("<tmx><body/></tmx>", "set files.target_language"),
        "f.po": ("msgid 3", "line 1: this is not of a catalog"),
        "g.po": ('msgid ""\nmsgstr "charset=latin1"', "declares the charset latin1"),
        "h.docx": ("no archive", "is not a document of Word"),
        "i.srt": (b"1\n00:01,0 --> 00:02,0\n\xe4", "is not valid UTF-8 at byte 22"),
    }
    for name, (text, message) in cases.items():
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(UserError, match=message):
            Files().units(path)
    with zipfile.ZipFile(tmp_path / "bomb.docx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", bytes(30_000_000))
    with pytest.raises(UserError, match="unpacks to 30,000,000 bytes, which is too much"):
        Files().units(tmp_path / "bomb.docx")


@pytest.mark.parametrize("kind", ["srt", "vtt", "po", "xlf"])
def test_work_grows_no_faster_than_a_file(tmp_path, kind):
    begin = {"po": 'msgid "', "xlf": '<xliff version="1.2"><file><trans-unit><source>'}
    end = {"po": '"\nmsgstr ""', "xlf": "</source></trans-unit></file></xliff>"}
    times = "1\n00:00:01,000 --> 00:00:02,000\n"
    signs = {
        "po": ["a ", "%(", "<b ", "{a", "$", "\\n"],
        "xlf": ["a ", "<x/>", "<ph>a</ph>", "&amp;", "<!--a-->", "<g>a</g>"],
    }

    def work(text):
        path = tmp_path / f"a.{kind}"
        body = text[1:-1] if kind == "xlf" else text
        path.write_text(begin.get(kind, times) + body + end.get(kind, ""), encoding="utf-8")
        try:
            option = Files()
            units = option.units(path)
            list(option.written(path, units))
        except UserError:
            pass

    usual = ["<", "<i>", "{\\", "a\n", f"a\n\n{times}", "- a\n", "a: "]
    for sign in signs.get(kind, usual):
        assert not grows(work, sign), sign


def test_xml_keeps_places_of_any_script():
    text = '<?xml version="1.0"?><!-- <a> --><r xmlns:x="u"><x:a q="é>">téxt<b/><c>ü</c></x:a></r>'
    top = parse_xml(text, "f")
    found = {one.name: text[one.begin : one.end] for one in top.each("a", "b", "c")}
    assert found == {"a": '<x:a q="é>">téxt<b/><c>ü</c></x:a>', "b": "<b/>", "c": "<c>ü</c>"}


def test_commands_write_files_and_go_on(capfd, bundle, tmp_path):
    source, output = tmp_path / "a.srt", tmp_path / "out.srt"
    source.write_text(SRT, encoding="utf-8")
    words = f"bundle={bundle}", f"input={source}"
    ended = cli(capfd, "generate", *words, f"output={output}")
    assert ended.code == 0, ended.err
    before, after = SRT.split("\n"), output.read_text(encoding="utf-8").split("\n")
    assert len(before) == len(after)
    differing = [n for n, pair in enumerate(zip(before, after)) if pair[0] != pair[1]]
    assert differing
    assert {*differing} <= {2, 3, 7, 11, 12}
    assert "\n".join(after).count("{\\an8}") == 1
    assert cli(capfd, "generate", *words, "window=1", f"output={tmp_path}/w.srt").code == 0
    assert (tmp_path / "w.srt").read_bytes() == output.read_bytes()
    pages = [tmp_path / "p.html", tmp_path / "q.html", tmp_path / "r.html"]
    pages[0].write_text("<p>He <b>buys</b><p>books.", encoding="utf-8")
    for output, more in zip(pages[1:], ([], ["markup=html"]), strict=True):
        words_of_page = f"bundle={bundle}", f"input={pages[0]}", f"output={output}", *more
        assert cli(capfd, "generate", *words_of_page).code == 0
    assert re.sub("[^<>/bp]", "", pages[1].read_text()).count("<p>") == 2
    assert pages[1].read_bytes() == pages[2].read_bytes()
    pages[0].write_text(f"{'<div>' * 101}books", encoding="utf-8")
    deep = [f"bundle={bundle}", f"input={pages[0]}", f"output={pages[1]}"]
    assert f"{pages[0]}, the page: tags nest" in cli(capfd, "generate", *deep).err
    assert cli(capfd, "generate", *deep, "files.skip_broken=true").code == 0
    assert pages[1].read_bytes() == pages[0].read_bytes()
    noted = tmp_path / "c.po"
    noted.write_text(PO, encoding="utf-8")
    ended = cli(
        capfd,
        "generate",
        f"bundle={bundle}",
        f"input={noted}",
        "n_best=2",
        f"output={tmp_path}/d.po",
    )
    assert ended.code == 0, ended.err
    assert "# translation 2: " in (tmp_path / "d.po").read_text(encoding="utf-8")
    others = ("part=1/2", "n_best=2", "format=jsonl", "alignments=true", "markup=placeholders")
    for more in others:
        refused = cli(capfd, "generate", *words, more)
        assert refused.code == 2
        key = more.partition("=")[0]
        assert f"a.srt is translated in its place, without {key}; remove it" in refused.err
    assert "is not plain text, but subtitles" in cli(capfd, "generate", *words, "~files").err


def test_units_with_translations_are_training_pairs(tmp_path):
    texts = {
        "a.tmx": TMX.replace("<tuv xml:lang", "<note>a</note><tuv xml:lang", 1),
        "b.xlf": XLIFF.replace('<target state="new"/>', "<target>Drück <x id='1'/>OK.</target>"),
        "c.po": PO,
        "d.xliff": XLIFF_2.replace("<target></target>", "<target>Sie <ph id='2'/>singt.</target>"),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with gzip.open(tmp_path / "e.tmx.gz", "wt", encoding="utf-8") as file:
        file.write(TMX)

    def pairs(name, *languages):
        files = {"train": str(tmp_path / name)}
        return [*Segments(files, *(languages or ("en", "de"))).stream("train")]

    assert pairs("a.tmx") == pairs("e.tmx.gz") == [("Yes", "Ja")]
    assert pairs("a.tmx", "en", "fr") == [("He buys books.", "Il achète.")]
    assert pairs("b.xlf") == [("Press OK.", "Drück OK."), ("Done.", "Fertig.")]
    assert pairs("c.po") == [("done", "fertig")]
    assert pairs("d.xliff") == [("She sings.", "Sie singt.")]
    files = [str(tmp_path / name) for name in ("b.xlf", "c.po")]
    source = Segments({"train": files}, "en", "de", hold_out=1)
    held = source.load("val", tmp_path / "cache")["source"]
    assert sorted([*source.load("train", tmp_path / "cache")["source"], *held]) == [
        "Done.", "Press OK.", "done",
    ]  # fmt: skip
    with pytest.raises(UserError, match="has no units with texts in en and cs; correct data"):
        Segments({"train": files[0]}, "en", "cs").load("train", tmp_path / "cache")
    (tmp_path / "broken.po").write_text("msgid 3", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"broken\.po, line 1: this is not of a catalog of gettext$"
    ):
        Segments({"train": str(tmp_path / "broken.po")}, "en", "de").load("train", tmp_path / "c")
    with pytest.raises(UserError, match=r"must end in one of .tmx, .xliff, .xlf, .po, got"):
        Segments({"train": "a.csv"}, "en", "de")


def test_a_memory_of_any_size_is_read_in_little_of_it(tmp_path):
    unit = '<tu><tuv xml:lang="en"><seg>a</seg></tuv><tuv xml:lang="de"><seg>b</seg></tuv></tu>'
    path = tmp_path / "a.tmx"
    path.write_text(f"<tmx><body>{unit * 20_000}</body></tmx>", encoding="utf-8")
    source = Segments({"train": str(path)}, "en", "de")
    tracemalloc.start()
    assert sum(1 for _ in source.stream("train")) == 20_000
    largest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert largest < path.stat().st_size / 2
    for text, message in (
        (f"<tmx><body>{'<a>' * 300}", "nests deeper than 256"),
        (f"<tmx><tu><tuv><seg>{'a ' * 600_000}", "a text of more than 1,000,000 characters"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><tmx/>', "declares entities"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=message):
            list(source.stream("train"))
