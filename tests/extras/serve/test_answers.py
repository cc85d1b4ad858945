"""`/v1/answer` and `/v1/explain`."""

import pytest
import torch

from seqattn.extras.explain import explanations
from seqattn.extras.explain.explanations import Explanation, Method
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.metrics import Metrics
from seqattn.extras.serve.questions import Spans
from seqattn.extras.serve.schemas import AnswerRequest
from seqattn.extras.serve.searches import Gone
from tests.extras.serve.conftest import TEXT, ask, client_of, refusal

QUESTION, CONTEXT = "who sees the cat", "a dog sees the cat by the old tree"


@pytest.fixture(scope="module")
def asked(spans):
    with client_of(spans, Limits(inputs=3, tokens=90)) as client:
        yield client


@pytest.fixture(scope="module")
def writer(writing):
    with client_of(writing) as client:
        yield client


def test_spans_are_those_of_the_bundle(asked, spans):
    questions, contexts = [QUESTION, "the tree"], [CONTEXT, "two birds"]
    found = ask(asked, "/v1/answer", question=questions, context=contexts, n_best=2)["results"]
    for result, expected in zip(found, spans.answer(questions, contexts, answers=2)):
        assert result["no_answer"] == pytest.approx(expected.no_answer, abs=1e-6)
        assert [one["text"] for one in result["answers"]] == [a.text for a in expected.answers]
        for one, context in zip(result["answers"], contexts):
            assert context[one["start"] : one["end"]] == one["text"] or one["start"] is not None
    one = ask(asked, "/v1/answer", question=QUESTION, context=CONTEXT)["results"]
    assert one[0]["answers"] == found[0]["answers"][:1]
    short = {"max_answer": 1}
    best = ask(asked, "/v1/answer", question=QUESTION, context=CONTEXT, generation=short)
    (expected,) = spans.answer(QUESTION, CONTEXT, max_answer=1)
    assert best["results"][0]["answers"][0]["text"] == expected.answers[0].text


def test_a_context_serves_all_questions(asked):
    each = ask(asked, "/v1/answer", question=[QUESTION, "a dog"], context=[CONTEXT] * 2)
    assert ask(asked, "/v1/answer", question=[QUESTION, "a dog"], context=CONTEXT) == each


def test_a_bundle_that_writes_answers_them_in_its_words(writer, writing):
    found = ask(writer, "/v1/answer", question=QUESTION, context=CONTEXT)["results"]
    assert [one["text"] for one in found[0]["answers"]] == writing.answer(QUESTION, CONTEXT)


@pytest.mark.parametrize(
    ("whom", "path", "status", "keys", "line"),
    [
        ("client", "/v1/answer", 422, {}, "this bundle takes texts; use /v1/generate"),
        ("asked", "/v1/generate", 422, {}, "this bundle takes questions; use /v1/answer"),
        ("writer", "/v1/generate", 422, {}, "this bundle takes questions; use /v1/answer"),
        ("asked", "/v1/answer", 422, {"context": ["a"] * 2}, "context must be one text, or one"),
        ("asked", "/v1/answer", 413, {"question": ["a"] * 4}, "a request may have at most 3 ques"),
        ("asked", "/v1/answer", 413, {"context": "a dog " * 99}, "a request may have at most 90 t"),
        ("asked", "/v1/answer", 422, {"generation": "beam"}, "this bundle needs a generation"),
        (
            "asked",
            "/v1/answer",
            422,
            {"generation": {"limit": {}}},
            "unknown key generation.l",
        ),
        ("asked", "/v1/explain", 422, {}, "this bundle answers with spans and generates no"),
        ("writer", "/v1/explain", 422, {"context": None}, "missing required key: context"),
        ("client", "/v1/explain", 422, {"context": "a"}, "this bundle takes no context"),
        ("client", "/v1/explain", 422, {"text": " "}, "text contains no words"),
        ("client", "/v1/explain", 422, {"method": "x"}, "unknown method x; choose from"),
        ("client", "/v1/explain", 422, {"text": ""}, "text should have at least 1 character"),
    ],
)
def test_what_a_bundle_cannot_do_is_refused_in_words(request, whom, path, status, keys, line):
    usual = {
        "/v1/generate": {"inputs": TEXT},
        "/v1/answer": {"question": QUESTION, "context": CONTEXT},
        "/v1/explain": {"text": TEXT, "method": "even"},
    }[path]
    if path == "/v1/explain" and whom != "client":
        usual["context"] = CONTEXT
    keys = {key: value for key, value in {**usual, **keys}.items() if value is not None}
    assert refusal(request.getfixturevalue(whom), path, status, **keys).startswith(line)


class Numbered(Method):
    """Contributions that say where they stand."""

    name, cites = "numbered", ""

    def why_not(self, model):
        return None

    def explain(self, model, source, target):
        rows, columns = target.shape[1], source.shape[1]
        numbers = torch.arange(rows * columns).view(1, rows, columns) / 8
        return Explanation(numbers, torch.ones(1, rows, rows).tril(), source.new_zeros(1, rows))


@pytest.fixture
def numbered(monkeypatch):
    monkeypatch.setattr(explanations, "METHODS", {"numbered": Numbered()})


@pytest.mark.parametrize("output", [None, "the tree"])
def test_an_explanation_has_a_row_for_each_token_and_its_pieces(client, bundle, numbered, output):
    keys = {"text": TEXT, "output": output, "method": "numbered"}
    found = ask(client, "/v1/explain", **keys)
    assert found["text"] == (bundle.generate(TEXT) if output is None else output)
    rows, columns = len(found["tokens"]), len(found["source_tokens"])
    assert columns == len(bundle.encode(TEXT)[0][0])
    assert found["tokens"][-1] == found["source_tokens"][-1] == "</s>"
    assert found["source"] == (torch.arange(rows * columns).view(rows, columns) / 8).tolist()
    assert found["prefix"] == torch.ones(rows, rows).tril().tolist()
    assert found["rest"] == [0.0] * rows
    assert found["method"] == "numbered"


def test_an_output_is_compared_with_another_where_they_first_differ(client, bundle):
    keys = {"text": TEXT, "output": "the tree", "method": "occlusion"}
    alone = ask(client, "/v1/explain", **keys)
    found = ask(client, "/v1/explain", instead="the dog", **keys)
    assert "instead" not in alone
    assert found["tokens"] == alone["tokens"][: len(found["tokens"])]
    assert found["instead"] != found["tokens"][-1]
    assert any(found["source"][-1])
    assert not any(map(any, found["source"][:-1]))
    told = refusal(client, "/v1/explain", instead="the tree", **keys)
    assert told == "instead=the tree has the tokens of the output; give another text"


def test_a_question_is_explained_with_its_context(writer, writing, numbered):
    keys = {"text": QUESTION, "context": CONTEXT, "method": "numbered"}
    found = ask(writer, "/v1/explain", **keys)
    assert [found["text"]] == writing.answer(QUESTION, CONTEXT)


def test_a_search_of_spans_ends_when_its_clients_leave(spans):
    reader = Spans(spans, Limits(), Metrics())
    job = reader.answer(AnswerRequest(question=QUESTION, context=CONTEXT)).jobs[0]
    assert len(reader.search(job.search, [job.item] * 2, lambda: False)) == 2
    with pytest.raises(Gone):
        reader.search(job.search, [job.item], lambda: True)
