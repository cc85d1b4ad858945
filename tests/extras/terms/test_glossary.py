"""Glossaries: what they require of the outputs of a bundle, and what is wrong with them."""

import json

import pytest

import seqattn
from seqattn.errors import UserError
from seqattn.extras.terms.glossary import Glossary
from tests.cli.small import json_lines, refusal, run, succeed

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


@pytest.mark.parametrize("space", [" ", "  ", "\u00a0", "\u202f ", "\n", "\u3000"])
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
    assert "output 2 does not satisfy the terms some cat | bread" in ended.err


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("dog", "g.tsv line 1 must be a source term, a tab and target terms"),
        ("dog\ttree\ndog\t", "g.tsv line 2 must be a source term, a tab and target terms"),
        ("dog\t!", "g.tsv line 1 must be a source term, a tab and target terms"),
        ("dog\t\u00ad", "g.tsv line 1 must be a source term, a tab and target terms"),
        ("dog\t\ttree", "g.tsv line 1 must be a source term, a tab and target terms"),
        ("\ttree", "g.tsv line 1: 'tree' is required without a source term; add one"),
        ("dog\ttree\ndog\t!Tree", "g.tsv line 1: 'tree' is required, but "),
        ("dog\told tree\n\n\t!tree", "g.tsv line 3 forbids it"),
        ("dog\ttree\ncat\t☃", "g.tsv line 2: the target vocabulary lacks some of '☃'"),
        ("cat\t" + "tree " * 60, "tokens, but the maximum is 39"),
        ("", "g.tsv has no terms"),
        (None, "g.tsv: No such file or directory"),
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
    ("terms", "line"),
    [
        ({}, "terms needs either a file or entries"),
        ({"file": "x", "entries": {"a": "b"}}, "terms needs either a file or entries"),
        ({"entries": {"a": 1}}, "target terms must be texts, got 1"),
        ({"entries": {"a": []}}, "terms entry 'a' must be a source term, a tab and target terms"),
        ({"entries": {"a": "the", "": "!the"}}, "terms entry 'a': 'the' is required, but terms en"),
        ({"entrys": {}}, "unknown key terms.entrys"),
    ],
)
def test_what_is_wrong_with_terms_in_python_is_said_in_a_line(loaded, terms, line):
    with pytest.raises(UserError) as error:
        loaded.generate("a dog", terms=terms)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)
