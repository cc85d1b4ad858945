"""The page's documents are the report's, and interventions change them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from seqattn.analysis import capture, intervene
from seqattn.extras.explain.explanations import explain
from seqattn.extras.report.sentences import looks_into
from seqattn.extras.serve.examples import examples_for
from seqattn.settings.choices import choices
from seqattn.tokens import BOS
from tests.extras.report.samples import unpacked
from tests.extras.serve.conftest import SMALL, TEXT, ask, client_of, outputs, refusal
from tests.extras.serve.test_stream import events

CROSS = "decoder.layers.0.cross_attention"
OFF = {"gates": {CROSS: [1, 0, 1, 1]}}
PATH = "/v1/sentence"


def look(client, **keys):
    """What a request sees of its sentence."""
    document = ask(client, PATH, **{"text": TEXT, **keys})
    assert len(document["looks"]) == 1
    return document["looks"][0]


def weights(found, name=CROSS):
    return unpacked(next(one for one in found["attentions"] if one["name"] == name)["weights"])


@pytest.mark.parametrize("search", [None, "greedy"])
def test_a_sentence_is_that_of_the_report(client, bundle, search):
    own = bundle.search(search)
    expected = looks_into([bundle], own)[0].document(TEXT, [])
    assert look(client, **({"generation": search} if search else {})) == expected


def test_the_page_knows_the_bundle_its_searches_and_its_heads(client, spans, writing):
    found = client.get("/v1/page").json()
    assert found["searches"] == ["greedy", "beam", "sampling"]
    assert found["search"] == "beam"
    assert found["heads"][CROSS] == 4
    assert found["asks"] is False
    assert found["run"]["sentences"] == []
    assert found["run"]["bundles"][0]["facts"]["parameters"]
    assert (found["task"], found["data"]) == ("translation", "demo_translation")
    assert found["languages"] == ["en", "de"]
    assert found["examples"] == [{"text": TEXT, "context": None}]  # once, neither empty nor long
    with client_of(spans) as asked:
        found = asked.get("/v1/page").json()
        assert (found["asks"], found["search"], found["searches"]) == (True, "spans", ["spans"])
        assert (found["task"], found["languages"], len(found["examples"])) == ("qa", [], 3)
        assert all(one["text"].endswith("?") and one["context"] for one in found["examples"])
    with client_of(writing) as asked:
        assert asked.get("/v1/page").json()["asks"] is True


def test_a_head_that_is_off_is_off_in_the_output_and_in_all_that_is_shown(client, bundle):
    found = look(client, generation="greedy", intervene=OFF)
    said = outputs(client, inputs=TEXT, generation="greedy", intervene=OFF)[0]["text"]
    assert found["output"] == said
    ids = [bundle.tokenizer.target_pieces(range(bundle.tokenizer.target_size)).index(piece)
           for piece in found["target"]]  # fmt: skip
    source = torch.tensor(bundle.encode(TEXT)[0])
    with intervene(bundle.model, gates=OFF["gates"]):
        with torch.no_grad(), capture(bundle.model) as maps:
            bundle.model(source, torch.tensor([[BOS, *ids[:-1]]]))
        expected = explain(bundle.model, source, torch.tensor([ids]), "alti")
    shown = next(one for one in found["explanations"] if one["method"] == "alti")
    true = expected.source[0].detach().numpy()
    assert np.allclose(unpacked(shown["source"]), true, atol=1e-4)
    plain = explain(bundle.model, source, torch.tensor([ids]), "alti").source[0].detach().numpy()
    assert np.abs(plain - true).max() > 1e-3
    later = "decoder.layers.0.self_attention"
    assert np.allclose(weights(found, later), maps[later][0][0], atol=1e-5)


def test_a_weight_that_is_set_shows_in_its_row_alone_and_the_others_share_what_is_left(client):
    plain = weights(look(client, generation="greedy"))
    edit = {"attention": CROSS, "head": 2, "step": 1, "key": 3, "weight": 0.75}
    asked = {"generation": "greedy", "intervene": {"weights": [edit]}}
    row = weights(look(client, **asked))[2, 1]
    before = np.delete(plain[2, 1], 3)
    assert row[3] == pytest.approx(0.75, abs=1e-4)
    assert np.allclose(np.delete(row, 3), before / before.sum() * 0.25, atol=1e-4)
    assert np.allclose(weights(look(client, **asked))[:, 0], plain[:, 0], atol=1e-5)


def test_permuted_weights_are_the_same_for_every_method_and_map(client):
    found = look(client, intervene={"permuted": ["*"], "seed": 4})
    shown = {one["method"]: one for one in found["explanations"]}
    cross = weights(found).mean(axis=0)
    by_attention = unpacked(shown["attention"]["source"])
    assert np.allclose(by_attention, cross, atol=1e-4)


def test_a_stream_tells_tokens_and_ends_in_the_document(client):
    keys = {"text": TEXT, "generation": "greedy", "prefix": "a"}
    *told, (name, last) = events(client, PATH, **keys)
    assert name == "done"
    assert last == ask(client, PATH, **keys)
    assert {name for name, _ in told} == {"token"}
    assert [data["token"] for _, data in told] == last["looks"][0]["target"][: len(told)]
    assert last["looks"][0]["output"].startswith("a")


def test_the_one_attention_of_a_recurrent_model_is_edited_too(recurrent):
    name = "decoder.cross_attention"
    edit = {"attention": name, "step": 2, "key": 1, "weight": 0.5}
    with client_of(recurrent) as client:
        found = look(client, generation="greedy")
        even = look(client, generation="greedy", intervene={"uniform": [name]})
        one = look(client, generation="greedy", intervene={"weights": [edit]})
    assert weights(found, name).shape == (1, len(found["target"]), len(found["source"]))
    rows = weights(even, name)
    assert np.allclose(rows, 1 / rows.shape[2], atol=1e-4)
    assert weights(one, name)[0, 2, 1] == pytest.approx(0.5, abs=1e-4)
    assert np.allclose(weights(one, name)[0, :2], weights(found, name)[0, :2], atol=1e-4)


def test_a_question_is_answered_with_its_context_and_nobody_scores_it(spans, writing):
    asked = {"text": "the cat", "context": "a dog sees the cat by the tree"}
    with client_of(spans) as client:
        found = look(client, **asked)
        keys = {"question": asked["text"], "context": asked["context"]}
        best = ask(client, "/v1/answer", **keys)["results"][0]
        assert found["output"] == best["answers"][0]["text"]
        assert found["score"] is None
        even = look(client, **asked, intervene={"uniform": ["question_attention"]})
        rows = weights(even, "question_attention")
        assert np.allclose(rows, 1 / rows.shape[2], atol=1e-4)
        assert even["tokens"] != found["tokens"]
        *told, (name, last) = events(client, PATH, **asked)
        assert (told, name, last["looks"]) == ([], "done", [found])
    with client_of(writing) as client:
        found = look(client, **asked)
        assert [found["output"]] == writing.answer(asked["text"], asked["context"])
        assert "".join(found["source"]).count("▁cat") == 2


QUESTION = {"text": "who", "context": "a dog"}
SET = {"weights": [{"attention": "question_attention", "step": 0, "key": 0, "weight": 1}]}


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"text": ""}, "text should have at least 1 character"),
        ({"text": TEXT, "context": "a dog"}, "this bundle takes no context"),
        ({"text": TEXT, "intervene": {"uniform": ["x"]}}, "unknown attention x; choose from"),
        ({"text": TEXT, "generation": "spans"}, "this bundle needs a generation setting for text"),
        ({"text": TEXT, "prefix": "a " * 40, "generation": {"limit": {"extra": 1, "ratio": 0}}},
         "prefix has "),
        ({"text": TEXT * 30}, "a request may have at most 60 tokens"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said_in_one_line(small, keys, line):
    status = 413 if "60 tokens" in line else 422
    assert refusal(small, PATH, status, **keys).startswith(line)


@pytest.fixture(scope="module")
def small(bundle):
    with client_of(bundle, SMALL) as made:
        yield made


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"text": "who"}, "missing required key: context"),
        ({**QUESTION, "prefix": "a"}, "this bundle answers with spans and generates no"),
        ({**QUESTION, "intervene": SET}, "intervene.weights requires a bundle that generates"),
    ],
)
def test_what_does_not_fit_spans_is_said_in_one_line(spans, keys, line):
    with client_of(spans) as client:
        assert refusal(client, PATH, **keys).startswith(line)


@pytest.mark.parametrize("content", [None, b"", b"\xff", b"step,1\n"])
def test_without_samples_the_validation_split_gives_examples(bundle, tmp_path, content):
    file = tmp_path / "samples" / "samples.csv"
    if content is not None:
        file.parent.mkdir()
        file.write_bytes(content)
    where = {"root": str(tmp_path), "source_suffix": "en", "target_suffix": "de"}
    own = {"data": choices("data")["parallel_text"] | where}
    bundle = replace(bundle, path=tmp_path / "model", config={**bundle.config, **own})
    assert examples_for(bundle) == []
    (tmp_path / "val.en").write_text("A dog.\n\nA cat.\n")
    (tmp_path / "val.de").write_text("Ein Hund.\n\nEine Katze.\n")
    assert [one["text"] for one in examples_for(bundle)] == ["A dog.", "A cat."]


def test_a_search_of_its_own_is_the_first_of_the_page(bundle):
    mbr = replace(bundle, config={**bundle.config, "generation": choices("generation")["mbr"]})
    with client_of(mbr) as asked:
        live = asked.get("/v1/page").json()
    assert (live["search"], live["searches"][0]) == ("own", "own")
