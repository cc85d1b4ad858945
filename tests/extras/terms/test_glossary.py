"""Glossaries: what they require of the outputs of a bundle, and what is wrong with them."""

import json
import os

import pytest

import seqattn
from seqattn.bundle.text_options import OutputOf
from seqattn.errors import UserError
from seqattn.extras.terms.glossary import Glossary
from tests.cli.small import json_lines, refusal, run, succeed
from tests.growth import grows

TEXTS = ["a dog sees the cat", "two birds", "", "an old house by the tree"]
ENTRIES = {"dog": "birds", "birds": ["some cat", "bread"], "": "!the", "house": ["tree", "!two"]}


@pytest.fixture(scope="module")
def loaded(bundle):
    return seqattn.load(bundle)


def words(texts):
    return [text.split() for text in texts]


def test_outputs_have_the_terms_of_their_sources(loaded):
    free, outputs = (
        words(loaded.generate(TEXTS)),
        loaded.generate(TEXTS, terms={"entries": ENTRIES}),
    )
    dog, birds, empty, house = words(outputs)
    assert "birds" in dog
    assert "bread" in birds or "some cat" in outputs[1]
    assert empty == []
    assert "tree" in house
    assert "two" not in house
    assert not any("the" in one for one in (dog, birds, house))
    assert "birds" not in free[0] or "tree" not in free[3]
    glossary = Glossary(entries=ENTRIES)
    assert [glossary.unmet(*pair) for pair in zip(TEXTS, outputs, strict=True)] == [[]] * 4
    assert loaded.generate(TEXTS[3:], terms=glossary) == outputs[3:]


def test_a_prefix_and_terms_go_together(loaded):
    [output] = loaded.generate(TEXTS[:1], prefix="some ", terms={"entries": {"dog": "old tree"}})
    assert output.startswith("some")
    assert "old tree" in output


def test_the_longer_of_two_terms_is_taken_and_words_are_whole():
    glossary = Glossary(entries={"New York": "NY", "York": "Y", "new": "N", "犬": "D"})

    def required(source):
        return sorted(one for own in glossary.matching(source).values() for one in own.required)

    assert required("a New York and York") == ["NY", "Y"]
    assert required("new YORK") == ["NY"] == required("(new york)")
    assert required("Yorkshire renew") == []
    assert required("x犬y") == ["D"]
    kept = Glossary(entries={"York": "Y", "": "!Z"}, case=True)
    assert [*kept.matching("york")] == [""]
    assert kept.unmet("York", "y Z") == ["Y", "!Z"]
    assert kept.unmet("York", "Y z Zz") == []


@pytest.mark.parametrize(
    "space",
    [" ", "  ", " \u00ad ", "\u200b \u200e", " \ufeff", "\u00a0", "\u202f ", "\n", "\u3000"],
)
def test_terms_are_compared_with_single_spaces_in_one_normal_form(space):
    entries = {"file system": "Datei System", "caf\u00e9": "l\u2019e\u0301t\u00e9", "it's": "!a b"}
    glossary = Glossary(entries=entries, case=True)
    source = f"the file{space}system of it\u2019s cafe\u0301"
    assert {*glossary.matching(source)} == {"file system", "caf\u00e9", "it's"}
    output = f"Datei{space}Sys\u00adtem l'\u00e9te\u0301"
    assert glossary.unmet(source, output) == []
    assert glossary.unmet(source, f"{output} a{space}b") == ["!a b"]


def test_cells_are_read_as_spreadsheets_write_them(tmp_path):
    lines = ['"bank"\t"Ufer"\t"!say ""no"""\t', "dog\ttree\t\t", '\t!5" disk']
    (tmp_path / "g.tsv").write_text("\n".join(lines))
    terms = Glossary(str(tmp_path / "g.tsv")).terms
    assert [[*map(list, own)] for own in terms.values()] == [
        [["Ufer"], ['say "no"']],
        [["tree"], []],
        [[], ['5" disk']],
    ]


# As people write them: each row, and what is read of it; → is a tab, ␣ a no-break space, ¬ a soft
# hyphen, ^ a typographic apostrophe.
TABLES = r'''
plain.tsv
dog→Hund => Hund
cat→Katze→Kater => Katze / Kater
bank→Ufer→!Bank => Ufer / !Bank
→!Geldhaus => !Geldhaus
cold→! kalt => !kalt
New York→New York => New York
犬→Hund, m. => Hund, m.
it's→l^été => l^été
C++→C++ => C++
a/b→x; y => x; y
#1→(x) => (x)
!a→b => b
a\b→c\d => c\d
5" disk→3" Platte => 3" Platte
"dog→Hündin" => Hündin"
a "b"→"c" d => "c" d
'dog'→'x' => 'x'
source→Quelle => Quelle
English→German => German

padded.tsv
→→→ =>
 dog → Hund →→ => Hund
 =>
cat→Katze→Kater→ => Katze / Kater
 →→ =>
owl→Eule→  → => Eule
file␣system→Datei␣ system => Datei␣ system
a ¬ b→x¬y => x¬y
␣ice→Eis␣ => Eis

quoted.tsv
"dog"→"Hund" => Hund
"say ""no"""→"!nein" => !nein
 "owl" → "Eule"→ => Eule
""→"!x" => !x
"cat"→Katze→"" => Katze
"a, b"→"c; d" => c; d
"x=1"→"" 1 => "" 1

sheet.tsv
English→German => header
dog→Hund => Hund
cat→Katze→Kater => Katze / Kater

noted.tsv
→ =>
English→German→Note → => header: Note
dog→Hund→see 3 => Hund
cat→Katze => Katze
owl→Eule→→Uhu => Eule / Uhu
bank→!Bank→never→ => !Bank

synonyms.tsv
English→German→German 2→→Comment→French => header: Comment, French
cat→Katze→Kater→Mieze→x→chat => Katze / Kater / Mieze
dog→Hund→→→→chien => Hund
bat→Schläger => Schläger

source.csv
source,target => header
dog,Hund => Hund
cat,Katze,Kater => Katze / Kater
,!Bank => !Bank
"dog, big","Hund, groß" => Hund, groß
 "say ""no""" , "nein" => nein
x,"y => "y
a;b,c;d => c;d
owl, Eule ,, => Eule
,,, =>

unnamed.csv
dog,Hund => Hund
bank,Ufer,!Bank => Ufer / !Bank
"a","b","" => b
5" disk,Platte => Platte

capitals.csv
Source Term,Target Term,Definition,Target Term 2 => header: Definition
dog,Hund,"an animal, which barks",Hündin => Hund / Hündin
cat,Katze,, => Katze
owl,Eule => Eule

excel.csv
Englisch;Deutsch;Anmerkung => header: Anmerkung
dog;Hund; => Hund
bank;Ufer;kein, Geld => Ufer
;!Geldhaus; => !Geldhaus
"a;b";"c;d";"e;f" => c;d
;; =>

tabs.csv
English→German => header
a, b→c; d => c; d

codes.csv
en,de => header
dog,Hund => Hund

locales.csv
en-US,pt_BR => header
dog,cachorro => cachorro

both.csv
Term (EN),Term (DE),POS => header: POS
dog,Hund,noun => Hund

french.tsv
Terme source→Terme cible→Remarque => header: Remarque
chien→Hund→ici => Hund

spanish.tsv
Inglés→Español => header
dog→perro => perro

languages.tsv
English→Englisch => Englisch
German→Deutsch => Deutsch

same.tsv
French→French => French
term→Begriff => Begriff

target.tsv
target→Ziel => Ziel
source→Quelle => Quelle

later.csv
dog,Hund => Hund
source,target => target

german.txt
Quelle→Ziel→Hinweis→Ziel 2 => header: Hinweis
Hund→dog→m→hound => dog / hound
Bär→bear => bear
Straße→street→→ => street
Tür→!gate→x→door => door / !gate

polish.csv
"English";"Polish";"" => header
"to polish";"polerować";"szlifować" => polerować / szlifować
polish;pasta => pasta

one.csv
dog,Hund => Hund
'''


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("table", TABLES.strip().split("\n\n"))
def test_tables_are_read_as_people_write_them(tmp_path, capsys, table, end):
    signs = str.maketrans("→␣¬^", "\t\u00a0\u00ad\u2019")
    name, *lines = table.translate(signs).split("\n")
    rows, expected = zip(*(line.split(" =>") for line in lines), strict=True)
    content = "\ufeff" * (end != "\n") + end.join(rows) + end * len(rows)
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    read = [""] * len(rows)
    for own in Glossary(str(tmp_path / name)).terms.values():
        texts = own.required | {f"!{text}": where for text, where in own.forbidden.items()}
        for text, where in texts.items():
            place = int(where.rpartition(" ")[2]) - 1
            read[place] += f" / {text}" if read[place] else f" {text}"
    said = capsys.readouterr().err.replace("; not read", "")
    if said:
        place = said.removeprefix(f"{tmp_path / name} line ").partition(" is read as a header")
        read[int(place[0]) - 1] = f" header{place[2].rstrip()}"
    assert read == [*expected]


def test_case_is_kept_where_asked(loaded):
    given = {"dog": "Tree"}
    with pytest.raises(UserError, match="the target vocabulary lacks some of 'Tree'"):
        loaded.generate(TEXTS, terms={"entries": given, "case": True})
    output = loaded.generate(TEXTS[0], terms={"entries": {"DOG": "tree"}})
    assert "tree" in output.split()
    free = loaded.generate(TEXTS[0], terms={"entries": {"DOG": "tree"}, "case": True})
    assert free == loaded.generate(TEXTS[0])


@pytest.mark.parametrize("name", ["greedy", "sampling", "mbr"])
def test_searches_without_a_beam_forbid_and_cannot_require(loaded, name):
    outputs = loaded.generate(TEXTS, name, terms={"entries": {"": ["!the", "!a"]}})
    assert not {"the", "a"} & {word for text in words(outputs) for word in text[:-1]}
    with pytest.raises(UserError, match="required terms need generation=beam, got "):
        loaded.generate(TEXTS, name, terms={"entries": ENTRIES})


def test_a_file_and_json_say_the_same_and_outputs_without_their_terms_are_named(
    capfd,
    bundle,
    loaded,
    tmp_path,
):
    rows = [("dog", "birds"), ("birds", "some cat", "bread"), ("", "!the"), ("house", "tree")]
    lines = ["\t".join(row) for row in [*rows, ("house", "!two")]]
    (tmp_path / "g.tsv").write_text("\n".join(["", *lines]), encoding="utf-8")
    (tmp_path / "in").write_text("\n".join(TEXTS))
    call = (f"bundle={bundle}", f"input={tmp_path}/in", "terms=glossary")
    call = (*call, f"terms.file={tmp_path}/g.tsv", "format=jsonl")
    written = json_lines(succeed(capfd, "generate", *call))
    expected = loaded.generate(TEXTS, terms={"entries": ENTRIES})
    assert [(row["output"], row["unmet"]) for row in written] == [(one, []) for one in expected]
    ended = run(capfd, "generate", *call, "generation.limit={ratio: 0, extra: 1}")
    assert ended.code == 0
    rows = [json.loads(line) for line in ended.out.splitlines()]
    assert rows[0]["unmet"] == ["birds"] or "birds" in rows[0]["output"]
    told = "2 outputs do not satisfy their terms, which format=jsonl lists: output 1 does not "
    assert f"{told}satisfy the terms birds\n" in ended.err


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("dog", "g.tsv line 1 must be a source term, a tab"),
        ("dog\ttree\ndog\t", "g.tsv line 2 must be a source term, a tab"),
        ("dog\t!", "g.tsv line 1 must be a source term, a tab"),
        ("dog\t\u00ad", "g.tsv line 1 must be a source term, a tab"),
        ("dog\t\ttree", "g.tsv line 1 must be a source term, a tab"),
        ("\ttree", "g.tsv line 1: 'tree' is required without a source term; add one"),
        ("dog\ttree\ndog\t!Tree", "g.tsv line 1: 'tree' is required, but "),
        ("dog\told tree\n\n\t!tree", "g.tsv line 3 forbids it"),
        ("dog\ttree\ncat\t☃", "g.tsv line 2: the target vocabulary lacks some of '☃'"),
        ("cat\t" + "tree " * 60, "tokens, but the maximum is 39"),
        ("", "g.tsv has no terms"),
        (None, "g.tsv does not exist; expected a glossary"),
    ],
)
def test_what_is_wrong_with_a_glossary_is_named_by_its_line(
    capfd,
    bundle,
    tmp_path,
    content,
    line,
):
    if content is not None:
        (tmp_path / "g.tsv").write_text(content)
    words = (f"bundle={bundle}", "text=a dog", "terms=glossary", f"terms.file={tmp_path}/g.tsv")
    assert line in refusal(capfd, "generate", *words)


@pytest.mark.parametrize(
    ("source", "output", "late"),
    [
        ("She sees the cat.", "Sie sieht die Katze. Hunde.", True),
        ("She sees the cat.", "Sie sieht die Katze. hunde", True),
        ("She sees the cat.", "Sie sieht „die Katze.“ Hunde.", True),
        ("She sees the cat.", "Sie sieht die Hunde.", False),
        ("She sees the cat.", "Hunde sehen. Hunde.", False),
        ("the cat", "Die Katze Hunde", False),
        ("Go. See the cat.", "Geht jetzt. Seht die Hunde.", False),
        ("Go. See the cat.", "Geht jetzt. Seht die Katze! Hunde.", True),
        ("Doctor Smith has a cat.", "Dr. Smith hat Hunde.", False),
        ("A cat on May 3.", "Am 3. Mai Hunde.", False),
        ("dogs.", "他看见。猫。", True),
        ("dogs.", "他看见猫。", False),
        ("birds.", "वह देखता है। पक्षी।", True),
        ("birds.", "هل رأى؟ طيور", True),
    ],
)
def test_a_term_behind_the_final_mark_is_late_in_any_script(source, output, late):
    entries = {"cat": "Hunde", "dogs": ["Katzen", "猫"], "birds": ["पक्षी", "طيور"]}
    assert Glossary(entries=entries).is_late(source, output) is late


@pytest.mark.parametrize("sign", ["!", ".", 'cat."', "cat. ", '!"', "。", "a"])
def test_work_on_final_marks_grows_with_the_text(sign):
    glossary = Glossary(entries={"cat": "Hunde"})
    assert not grows(lambda text: glossary.is_late(text, text), sign)


def test_late_terms_are_counted_in_one_line(capfd):
    glossary = Glossary(entries={"cat": "Hunde"})
    for number, output in ((3, "Hunde."), (5, "Die Katze. Hunde."), (1_007, "Katzen. Hunde")):
        glossary.note(OutputOf(number, "The cat.", output, (), "The cat.", None, True))
    glossary.say()
    assert capfd.readouterr().err == (
        "outputs with a required term behind their final mark: 2 (first: line 5)\n"
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_glossary_is_no_pipe_which_would_be_waited_for(tmp_path):
    os.mkfifo(tmp_path / "g.tsv")
    with pytest.raises(UserError, match=r"g.tsv is not a regular file; expected a glossary"):
        Glossary(str(tmp_path / "g.tsv"))


@pytest.mark.parametrize(
    ("terms", "line"),
    [
        ({}, "terms needs either a file or entries"),
        ({"file": "x", "entries": {"a": "b"}}, "terms needs either a file or entries"),
        ({"entries": {"a": 1}}, "target terms must be texts, got 1"),
        ({"entries": {"a": []}}, "terms entry 'a' must be a source term, a tab"),
        ({"entries": {"a": "the", "": "!the"}}, "terms entry 'a': 'the' is required, but terms en"),
        ({"entrys": {}}, "unknown key terms.entrys"),
    ],
)
def test_what_is_wrong_with_terms_in_python_is_said_in_a_line(loaded, terms, line):
    with pytest.raises(UserError) as error:
        loaded.generate("a dog", terms=terms)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def test_terms_are_a_name_settings_or_an_object(loaded):
    with pytest.raises(UserError, match="unknown choice terms=glosary; did you mean glossary"):
        loaded.generate(TEXTS, terms="glosary")
    with pytest.raises(UserError, match="terms must be glossary or such an object, got 3"):
        loaded.generate(TEXTS, terms=3)
    with pytest.raises(UserError, match=r"unknown key generation\.term"):
        loaded.generate(TEXTS, term={"entries": ENTRIES})
