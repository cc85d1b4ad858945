"""Bounds of what a request may hold, and what is refused costs little."""

import math
from dataclasses import dataclass
from typing import Annotated

import pytest
import torch
from annotated_types import Ge, Le
from pydantic import ValidationError

from seqattn.analysis import intervene
from seqattn.analysis.capture import makers
from seqattn.analysis.intervene import permuted, uniform
from seqattn.bundle.bundle import Bundle
from seqattn.checking import in_words, parameters
from seqattn.extras.serve.limits import SEARCH_BOUNDS, SERVER_SETTINGS, Limits
from seqattn.extras.serve.schemas import (
    AnswerRequest,
    GenerateRequest,
    SearchSettings,
    settings_of,
)
from seqattn.extras.serve.searches import search_for
from seqattn.generation.base import Search
from seqattn.settings.choices import choices
from seqattn.settings.nodes import import_path
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


SEARCHES = [import_path(node["_target_"]) for node in choices("generation").values()]


@dataclass(frozen=True)
class Typical(Search):
    """A search of tomorrow."""

    mass: Annotated[float, Ge(0), Le(1)] = 0.9
    beam_size: Annotated[int, Ge(1), Le(5_000)] = 1


def test_a_new_field_of_a_search_is_a_setting_of_requests_within_its_bounds():
    made = settings_of("New", [Typical])
    assert made.model_fields.keys() == {"limit", "mass", "beam_size"}
    given = {"mass": 0.2, "limit": {"extra": 3}}
    assert made(**given).model_dump(exclude_none=True) == given
    for wrong in ({"mass": 2}, {"mass": math.nan}, {"beam_size": 101}, {"limit": {"extra": 1_001}}):
        with pytest.raises(ValidationError):
            made(**wrong)


def test_settings_of_requests_are_those_of_all_searches_and_mean_the_same_in_each():
    fields = [(name, hint) for kind in SEARCHES for name, hint in parameters(kind).items()]
    plain = {name for name, hint in fields if in_words(hint)} - {*SERVER_SETTINGS}
    own = {"name", "limit", "no_repeat_ngram"}
    assert SearchSettings.model_fields.keys() == plain | own
    for name in plain:
        assert len({repr(hint) for other, hint in fields if other == name}) == 1


def test_every_setting_of_a_search_has_an_end():
    document = SearchSettings.model_json_schema()
    properties = {
        **document["properties"],
        **document["$defs"]["LimitSettings"]["properties"],
    }
    assert SEARCH_BOUNDS.keys() <= properties.keys()
    ends = {"integer": "maximum", "number": "maximum", "string": "maxLength", "array": "maxItems"}
    for name, part in properties.items():
        for kind in part.get("anyOf", [part]):
            if kind.get("type") in ends:
                assert ends[kind["type"]] in kind, name


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"generation": {"name": "mbr", "samples": 101}}, "generation.samples should be less"),
        ({"generation": {"name": "mbr", "order": 5}}, "generation.order should be less than"),
        ({"generation": {"beam_size": 101}}, "generation.beam_size should be less than or equal"),
        ({"generation": {"limit": {"extra": 1_001}}}, "generation.limit.extra should be less than"),
        ({"generation": {"length_penalty": 11}}, "generation.length_penalty should be less than"),
        ({"generation": {"workers": 9}}, "unknown key generation.workers"),
        ({"generation": {"batch_size": 9_999}}, "unknown key generation.batch_size"),
        ({"generation": {"processors": {}}}, "unknown key generation.processors"),
        ({"return": ["tokens"] * 65}, "return should have at most 64 items, not 65"),
        ({"generation": "x" * 101}, "generation should have at most 100 characters"),
        ({"prefix": "x" * 100_001}, "prefix should have at most 100000 characters"),
        ({"prefix": ["x" * 100_001]}, "prefix.0 should have at most 100000 characters"),
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
    sizes = torch.tensor([len(bundle.encode([TEXT])[0][0])] * 2)
    search = bundle.search("beam", beam_size=3)
    most = 3 * int(search.limit.of(sizes, bundle.model.max_target_length).sum())
    keys = {"inputs": [TEXT] * 2, "generation": {"name": "beam", "beam_size": 3}}
    with client_of(bundle, Limits(target_tokens=most)) as client:
        assert ask(client, **keys)
        line = refusal(client, status=413, **{**keys, "n_best": 4, "generation": {"beam_size": 4}})
    assert line.startswith(f"the hypotheses of a request may have at most {most:,} tokens, got")
    with client_of(bundle, Limits(target_tokens=most - 1)) as client:
        assert f"got up to {most:,}; split it" in refusal(client, status=413, **keys)


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
    assert line.startswith("together, the attention maps of all outputs may be no larger than ")


def test_an_error_shows_the_beginning_of_what_came(client):
    line = client.get("/" + "x" * 5_000).json()["error"]
    assert line == f"Not Found: GET /{'x' * 984}..."


def test_a_form_of_too_many_fields_is_refused(client):
    for sent in ({"content": "a&" * 2_000}, {"params": {"a": ["b"] * 2_000}}):
        response = client.post("/translate", **sent)
        assert response.status_code == 400
        assert response.json()["error"] == "cannot parse the request: Max number of fields exceeded"


def test_characters_are_counted_before_anything_is_read(bundle, spans, monkeypatch):
    def read(*_):
        raise AssertionError("the text was read")

    reader = type(spans.encoder.reader)
    limits, line = Limits(characters=10), "a request may have at most 10 characters, got 12; split"
    monkeypatch.setattr(Bundle, "lines", read)
    monkeypatch.setattr(reader, "context", read)
    with client_of(bundle, limits, languages=["en", "de"]) as client:
        for form in ("text", "html", "placeholders"):
            line_of = refusal(client, status=413, inputs=["a b c ", "d e f "], format=form)
            assert line_of.startswith(line)
        for path in ("/v1/sentence", "/v1/explain"):
            keys = {"method": "attention"} if "explain" in path else {}
            assert refusal(client, path, 413, text="a b c d e f ", **keys).startswith(line)
        keys = {"q": " " * 12, "source": "en", "target": "de"}
        assert refusal(client, "/translate", 413, **keys).startswith(line)
    with client_of(spans, limits) as client:
        keys = {"question": "a b c ", "context": "d e f "}
        assert refusal(client, "/v1/answer", 413, **keys).startswith(line)
