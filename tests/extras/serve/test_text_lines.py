"""Texts of several lines before a model that reads one line."""

import pytest

from seqattn.extras.serve.limits import Limits
from tests.extras.serve.conftest import TEXT, ask, client_of, outputs, refusal

TWO = f"\n\n{TEXT}\r\n \ntwo birds\n"
ONE = "this model reads one line, but the text has several; send one line"
ALONE = [TEXT, "two birds"]


def in_lines(first, second):
    return f"\n\n{first}\r\n \n{second}\n"


def test_lines_are_generated_apart_and_line_breaks_stay(client, bundle):
    expected = in_lines(*bundle.generate(ALONE))
    first, second, third = ask(client, inputs=[TWO, TEXT, f"{TEXT}\n"])["results"]
    each = [result["outputs"][0] for result in ask(client, inputs=ALONE)["results"]]
    assert first["outputs"] == [
        {
            "text": expected,
            "score": pytest.approx(sum(one["score"] for one in each), abs=2e-5),
            "log_probability": pytest.approx(sum(one["log_probability"] for one in each), abs=2e-5),
        }
    ]
    assert second["outputs"][0] == each[0]
    assert third["outputs"][0]["text"] == each[0]["text"] + "\n"
    assert bundle.generate(TWO) == expected


def test_libretranslates_clients_get_their_lines_back(client, bundle):
    keys = {"q": TWO, "source": "en", "target": "de", "alternatives": 1}
    expected = in_lines(*bundle.generate(ALONE))
    for how in ("json", "data", "params"):
        found = client.post("/translate", **{how: keys}).json()
        assert found["translatedText"] == expected
    seconds = [one[1]["text"] for one in (outputs(client, inputs=t, n_best=2) for t in ALONE)]
    assert found["alternatives"] == [in_lines(*seconds)]


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"prefix": "the tree"}, "prefix"),
        ({"intervene": {"uniform": ["*"]}}, "intervene"),
        ({"return": ["tokens", "alignment"]}, "return=tokens"),
        ({"return": ["attention"]}, "return=attention"),
    ],
)
def test_what_is_asked_of_one_line_is_refused_for_several(client, keys, named):
    assert refusal(client, inputs=["a dog", TWO], **keys) == (
        f"this model reads one line, but a text has several; remove {named}, or send each line as "
        "a separate text"
    )
    ask(client, inputs=f"\n{TEXT}", **keys)


def test_the_page_and_explanations_take_one_line(client):
    for stream in (False, True):
        assert refusal(client, "/v1/sentence", text=TWO, stream=stream) == ONE
    assert refusal(client, "/v1/explain", text=TWO, method="attention") == ONE
    looks = [ask(client, "/v1/sentence", text=one)["looks"] for one in (TEXT, f"\n{TEXT}\n")]
    assert looks[0] == looks[1]


def test_lines_are_as_many_as_the_queue_holds(bundle):
    with client_of(bundle, Limits(queue=3)) as client:
        assert ask(client, inputs="a dog\n" * 3)
        line = refusal(client, status=413, inputs="a dog\n" * 4)
    assert line == "a request may have at most 3 lines, got 4; split it"
