"""No text of a request takes more time than its length: one would stop the server for all."""

import pytest

from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.schemas import (
    AnswerRequest,
    ExplainRequest,
    GenerateRequest,
    SentenceRequest,
)
from tests.absent import has_extra
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


FORMS = {
    "content": lambda text: {"files": {"file": ("a.srt", text.encode())}},
    "cues": lambda text: {"files": {"file": ("a.vtt", f"00:00.000 --> 00:01.000\n{text}")}},
    "name of the file": lambda text: {"files": {"file": (f"{text}.srt", b"")}},
    "name of a field": lambda text: {"files": {text: ("a.srt", b"")}},
    "field": lambda text: {"files": {"file": ("a.srt", b"")}, "data": {"source": text}},
    "boundary": lambda text: {
        "content": b"--b",
        "headers": {"Content-Type": f"multipart/form-data; boundary={text}".encode()},
    },
    "parts": lambda text: {
        "content": f"--b\r\n{text}".encode(),
        "headers": {"Content-Type": "multipart/form-data; boundary=b"},
    },
}


@pytest.mark.skipif(not has_extra("files"), reason="the extra is deleted")
@pytest.mark.parametrize("name", FORMS)
def test_a_form_takes_no_more_time_than_its_length(small, name):
    signs = (*SIGNS, "\r\n--b", "--b\r\n\r\n\r\n", "; a=")

    def send(text):
        return small.post("/v1/file", **FORMS[name](text))

    assert [sign for sign in signs if grows(send, sign)] == []


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
