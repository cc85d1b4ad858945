"""Texts of several sentences in requests."""

from dataclasses import replace

import pytest

from tests.absent import has_extra
from tests.extras.serve.conftest import TEXT, ask, client_of, outputs, refusal
from tests.extras.serve.test_stream import events

pytestmark = pytest.mark.skipif(not has_extra("sentences"), reason="the extra is deleted")
ONE, TWO = f"{TEXT}.", "Two birds."
BOTH = f"{ONE} 42. {TWO}"


def test_sentences_are_generated_apart(client, bundle):
    first, second = (outputs(client, inputs=one)[0]["text"] for one in (ONE, TWO))
    expected = f"{first} 42. {second}"
    found = ask(client, inputs=[BOTH, ONE], sentences="en", **{"return": ["scores", "alignment"]})
    assert found["notices"] == ["1 line read as 3 sentences (en); sentences=none reads lines"]
    result, alone = found["results"]
    (output,) = result["outputs"]
    assert (output["text"], result["lines"]) == (expected, 2)
    assert expected == bundle.generate(BOTH, sentences="en")
    words = output["alignment"]
    assert words["source"] == BOTH.split()
    assert words["output"] == expected.split()
    links = alone["outputs"][0]["alignment"]["links"]
    assert words["links"][: len(links) + 1] == [*links, len(ONE.split())]


def test_bundles_that_do_not_know_read_lines_and_say_so(client):
    found = ask(client, inputs=BOTH)
    assert found["results"] == ask(client, inputs=BOTH, sentences="none")["results"]
    (notice,) = found["notices"]
    assert notice.startswith("1 line of several sentences read as a whole; set sentences=CODE")
    assert "notices" not in ask(client, inputs=ONE)
    assert refusal(client, inputs=BOTH, sentences="xx").startswith("unknown language 'xx'")
    assert refusal(client, inputs=BOTH, sentences="en", prefix="the") == (
        "sentences=en does not support prefix; remove one"
    )


def test_events_name_the_line_of_a_text(client):
    *told, (name, last) = events(client, inputs=BOTH, sentences="en", generation="greedy")
    assert name == "done"
    assert [*dict.fromkeys(data["line"] for _, data in told)] == [0, 1]
    assert last == ask(client, inputs=BOTH, sentences="en", generation="greedy")
    assert "line" not in events(client, inputs=ONE, generation="greedy")[0][1]


def test_translate_reads_what_its_bundle_learned(bundle):
    learnt = {"rows": 9, "several": 0, "longest": 40, "language": "en"}
    knowing = replace(bundle, config={**bundle.config, "text_options": {"sentences": learnt}})
    expected = bundle.generate(BOTH, sentences="en")
    assert expected != bundle.generate(BOTH, sentences="none")
    with client_of(knowing, languages=["en", "de"]) as client:
        body = {"q": BOTH, "source": "en", "target": "de"}
        assert client.post("/translate", json=body).json()["translatedText"] == expected
        assert outputs(client, inputs=BOTH)[0]["text"] == expected
