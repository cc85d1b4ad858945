"""No text of a request takes more time than its length: one would stop the server for all."""

import pytest

from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.schemas import (
    AnswerRequest,
    ExplainRequest,
    GenerateRequest,
    SentenceRequest,
)
from tests.extras.serve.conftest import TEXT, client_of
from tests.growth import SIGNS, grows

SHORT = {"generation": {"name": "greedy", "limit": {"ratio": 0, "extra": 2}}}
WRITE, SEE, WHY = "/v1/generate", "/v1/sentence", "/v1/explain"
FIELDS = {
    "inputs": (WRITE, lambda text: {"inputs": text, **SHORT}),
    "inputs of a list": (WRITE, lambda text: {"inputs": [TEXT, text], **SHORT}),
    "inputs in HTML": (WRITE, lambda text: {"inputs": text, "format": "html", **SHORT}),
    "inputs with terms": (WRITE, lambda text: {"inputs": text, "terms": {"dog": ["x"]}}),
    "inputs with placeholders": (
        WRITE,
        lambda text: {"inputs": text, "format": "placeholders", **SHORT},
    ),
    "generation": (WRITE, lambda text: {"inputs": TEXT, "generation": text}),
    "prefix": (WRITE, lambda text: {"inputs": TEXT, "prefix": text, **SHORT}),
    "prefix of a list": (WRITE, lambda text: {"inputs": [TEXT], "prefix": [text], **SHORT}),
    "target_language": (WRITE, lambda text: {"inputs": TEXT, "target_language": text}),
    "terms": (WRITE, lambda text: {"inputs": TEXT, "terms": {text: ["x"]}}),
    "terms of the target": (WRITE, lambda text: {"inputs": TEXT, "terms": {"dog": [text]}}),
    "inputs by the sentence": (WRITE, lambda text: {"inputs": text, "sentences": "en", **SHORT}),
    "sentences": (WRITE, lambda text: {"inputs": TEXT, "sentences": text, **SHORT}),
    "a key": (WRITE, lambda text: {"inputs": TEXT, text: 1}),
    "text": (SEE, lambda text: {"text": text, **SHORT}),
    "text to explain": (WHY, lambda text: {"text": text, "output": "x", "method": "attention"}),
    "output": (WHY, lambda text: {"text": TEXT, "output": text, "method": "attention"}),
    "instead": (WHY, lambda text: {"text": TEXT, "instead": text, "method": "occlusion"}),
    "method": (WHY, lambda text: {"text": TEXT, "method": text}),
    "q": ("/translate", lambda text: {"q": text, "source": "en", "target": "de"}),
}
ASKED = {
    "question": lambda text: {"question": text, "context": TEXT},
    "context": lambda text: {"question": TEXT, "context": text},
}


@pytest.fixture(scope="module")
def small(bundle):
    with client_of(bundle, Limits(tokens=200), languages=["en", "de"]) as client:
        yield client


@pytest.mark.parametrize("name", FIELDS)
def test_a_text_takes_no_more_time_than_its_length(small, name):
    path, body = FIELDS[name]
    assert [sign for sign in SIGNS if grows(lambda s: small.post(path, json=body(s)), sign)] == []


@pytest.mark.parametrize("kind", ["spans", "writing"])
@pytest.mark.parametrize("name", ASKED)
def test_a_question_takes_no_more_time_than_its_length(request, kind, name):
    with client_of(request.getfixturevalue(kind), Limits(tokens=200)) as client:

        def ask(text):
            client.post("/v1/answer", json=ASKED[name](text))

        assert [sign for sign in SIGNS if grows(ask, sign)] == []


def test_every_field_with_text_is_tried():
    schemas = (GenerateRequest, AnswerRequest, SentenceRequest, ExplainRequest)
    texts = {
        name
        for schema in schemas
        for name, field in schema.model_fields.items()
        if "str" in str(field.annotation) and "Literal" not in str(field.annotation)
    }
    assert texts <= {*FIELDS, *ASKED}
