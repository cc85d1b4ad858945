"""Bounds of what a request may hold, and what is refused costs little."""

import pytest
import torch
from pydantic import ValidationError

from seqattn.analysis import intervene
from seqattn.analysis.capture import makers
from seqattn.analysis.intervene import permuted, uniform
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.schemas import AnswerRequest, GenerateRequest, SearchSettings
from seqattn.extras.serve.searches import search_for
from tests.extras.serve.conftest import TEXT, ask, client_of, refusal

CROSS = "decoder.layers.0.cross_attention"
NAMED = {str(number): None for number in range(2_000)}
MANY = {f"*{number}": [1] for number in range(65)}


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ({"uniform": ["*"] * 65}, "intervene.uniform should have at most 64 items, not 65"),
        ({"permuted": ["*"] * 65}, "intervene.permuted should have at most 64 items, not 65"),
        ({"gates": MANY}, "intervene.gates should have at most 64 names, not 65"),
        ({"without_heads": MANY}, "intervene.without_heads should have at most 64 names, not 65"),
        ({"without_keys": MANY}, "intervene.without_keys should have at most 64 names, not 65"),
        ({"without_keys": {CROSS: [0] * 1_001}}, f"intervene.without_keys.{CROSS} should have at"),
        ({"without_heads": {CROSS: [0] * 1_001}}, f"intervene.without_heads.{CROSS} should have"),
        ({"uniform": ["*" * 101]}, "intervene.uniform.0 should have at most 100 characters"),
    ],
)
def test_what_is_changed_in_a_model_has_an_end(client, part, line):
    keys = {"inputs": TEXT, "generation": "greedy", "intervene": part}
    assert refusal(client, **keys).startswith(line)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"return": ["tokens"] * 65}, "return should have at most 64 items, not 65"),
        ({"generation": "x" * 101}, "generation should have at most 100 characters"),
        ({"prefix": "x" * 100_001}, "prefix should have at most 100000 characters"),
    ],
)
def test_lists_and_texts_of_a_request_have_an_end(client, keys, line):
    assert refusal(client, inputs=TEXT, **keys).startswith(line)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (GenerateRequest, {f"key{number}": 1 for number in range(2_000)}),
        (GenerateRequest, {"inputs": [1] * 2_000}),
        (GenerateRequest, {"inputs": TEXT, "return": ["x"] * 2_000}),
        (GenerateRequest, {"inputs": TEXT, "prefix": [1] * 2_000}),
        (GenerateRequest, {"inputs": TEXT, "generation": {str(n): 1 for n in range(2_000)}}),
        (GenerateRequest, {"inputs": TEXT, "intervene": {"weights": [1] * 2_000}}),
        (GenerateRequest, {"inputs": TEXT, "intervene": {"gates": NAMED}}),
        (GenerateRequest, {"inputs": TEXT, "intervene": {"gates": {"*": ["x"] * 2_000}}}),
        (GenerateRequest, {"inputs": TEXT, "intervene": {"uniform": [1] * 2_000}}),
        (AnswerRequest, {"question": [1] * 2_000, "context": [1] * 2_000}),
    ],
)  # fmt: skip
def test_of_many_mistakes_few_errors_are_made(kind, keys):
    with pytest.raises(ValidationError) as refused:
        kind.model_validate(keys)
    assert refused.value.error_count() < 8


def test_edits_of_one_name_act_in_turn_and_take_memory_once_each(bundle):
    pairs = [("*", permuted(1)), (CROSS, uniform)] * 50
    with intervene(bundle.model, pairs):
        edits = {name: part.edits for name, part in makers(bundle.model)}
    assert {name: len(several) for name, several in edits.items()} == {
        name: 100 if name == CROSS else 50 for name in edits
    }
    assert edits[CROSS] == tuple(edit for _, edit in pairs)
    assert not any(part.edits for _, part in makers(bundle.model))


def test_hypotheses_have_so_many_tokens_together(bundle):
    sizes = [len(bundle.encode([TEXT])[0][0])] * 2
    search = bundle.search("beam", beam_size=3)
    most = 3 * int(search.limit.of(*_memory(bundle, sizes)).sum())
    keys = {"inputs": [TEXT] * 2, "generation": {"name": "beam", "beam_size": 3}}
    with client_of(bundle, Limits(target_tokens=most)) as client:
        assert ask(client, **keys)
        line = refusal(client, status=413, **{**keys, "n_best": 4, "generation": {"beam_size": 4}})
    assert line.startswith(f"the hypotheses of a request may have {most:,} tokens, these ")
    with client_of(bundle, Limits(target_tokens=most - 1)) as client:
        assert f"these {most:,}; split it" in refusal(client, status=413, **keys)


def _memory(bundle, sizes):
    with torch.no_grad():
        memory = bundle.model.encode(torch.tensor(bundle.encode([TEXT] * len(sizes)))[:, 0])
    return memory, bundle.model.max_target_length


@pytest.mark.parametrize("beams", [1, 5, 100])
def test_a_step_extends_so_many_hypotheses_at_once(bundle, beams):
    made = search_for(bundle, SearchSettings(beam_size=beams), 1)
    assert 900 / 5 < made.batch_size * beams <= 1_024 or beams == 1
    assert made.batch_size <= bundle.search().batch_size


def test_attention_of_all_outputs_is_bounded_together(bundle):
    keys = {"inputs": [TEXT] * 3, "generation": "greedy", "return": ["attention"]}
    size = len(bundle.encode([TEXT])[0][0]) + len(bundle.hypotheses(TEXT, "greedy")[0][0].ids)
    with client_of(bundle, Limits(shown_tokens=2 * size)) as client:
        assert len(ask(client, **keys)["results"]) == 3
    with client_of(bundle, Limits(shown_tokens=size)) as client:
        line = refusal(client, **keys)
        assert ask(client, **{**keys, "return": ["alignment"]})
    assert line.startswith("the attention of all outputs of a request is as much as that of ")


def test_an_error_shows_the_beginning_of_what_came(client):
    line = client.get("/" + "x" * 5_000).json()["error"]
    assert line == f"Not Found: GET /{'x' * 984}..."


def test_a_form_of_too_many_fields_is_refused(client):
    for sent in ({"content": "a&" * 2_000}, {"params": {"a": ["b"] * 2_000}}):
        response = client.post("/translate", **sent)
        assert response.status_code == 400
        assert (
            response.json()["error"] == "the request cannot be read: Max number of fields exceeded"
        )
