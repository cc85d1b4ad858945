"""Terms of a request to the server."""

import pytest

import seqattn

pytest.importorskip("starlette")
ENTRIES = {"dog": ["birds"], "birds": ["some cat", "bread"], "": ["!the"]}
TEXTS = ["a dog sees the cat", "two birds\nan old house"]


@pytest.fixture(scope="module")
def served(bundle):
    from tests.extras.serve.conftest import client_of

    loaded = seqattn.load(bundle)
    with client_of(loaded) as client:
        yield client, loaded


def test_outputs_are_those_of_the_bundle_and_say_what_they_lack(served):
    from tests.extras.serve.conftest import ask

    client, loaded = served
    found = ask(client, inputs=TEXTS, terms=ENTRIES)["results"]
    outputs = [result["outputs"][0] for result in found]
    expected = loaded.generate(TEXTS, terms={"entries": ENTRIES})
    assert [one["text"] for one in outputs] == expected
    assert [one.get("unmet") for one in outputs] == [None, None]
    short = {"limit": {"ratio": 0, "extra": 1}}
    [result] = ask(client, inputs=TEXTS[:1], terms={"dog": ["old tree"]}, generation=short)[
        "results"
    ]
    assert result["outputs"][0]["unmet"] == ["old tree"]


def test_terms_go_with_markup(served):
    from tests.extras.serve.conftest import ask

    client, loaded = served
    keys = {"terms": {"dog": ["old tree"]}, "format": "html"}
    [result] = ask(client, inputs="a <b>dog</b> sees", **keys)["results"]
    terms = {"entries": {"dog": "old tree"}}
    expected = loaded.generate("a <b>dog</b> sees", markup="html", terms=terms)
    assert result["outputs"][0]["text"] == expected


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"terms": {"a": ["☃"]}}, "terms entry 'a': the target vocabulary lacks some of '☃'"),
        ({"terms": {"a": ["the", "!the"]}}, "terms entry 'a': 'the' is required, but terms entry"),
        ({"terms": {"a": ["b"]}, "generation": "greedy"}, "required terms need generation=beam"),
        ({"terms": {"file": "/etc/passwd"}}, "terms.file should be a"),
        ({"terms": {"a": ["b"] * 9}}, "terms.a should have at most 8 items"),
        ({"terms": {str(n): ["b"] for n in range(65)}}, "terms should have at most 64 names"),
        ({"terms": {}}, "terms needs either a file or entries"),
    ],
)
def test_wrong_terms_of_a_request_are_refused_in_a_line(served, keys, line):
    from tests.extras.serve.conftest import refusal

    assert refusal(served[0], inputs="a dog", **keys).startswith(line)
