"""What stands around the endpoints: hosts, origins, figures, LibreTranslate's clients, errors."""

import re

import pytest

from seqattn.extras.report import single_file
from tests.extras.serve.conftest import TEXT, ask, client_of, outputs


@pytest.fixture(scope="module")
def named(bundle):
    with client_of(bundle, hosts=["mine.example"]) as made:
        yield made


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("localhost:8000", 200), ("LOCALHOST.", 200), ("127.0.0.1:1", 200),
        ("[::1]:8000", 200), ("[::1]", 200), ("192.168.1.7:80", 200), ("mine.example:80", 200),
        ("other.example", 400), ("localhost.other.example:8000", 400), ("", 400),
        ("127.0.0.1.other.example", 400),
    ],
)  # fmt: skip
def test_only_addresses_and_names_of_its_own_are_answered(named, host, status):
    response = named.get("/health", headers={"Host": host})
    assert response.status_code == status
    if status == 400:
        name = host.partition(":")[0]
        line = f"unknown host name {name!r}; start the server with hosts=[{name}]"
        assert response.json() == {"error": line}


def test_no_page_of_elsewhere_may_ask_unless_told(client, bundle):
    origin = {"Origin": "https://example.org"}
    line = "pages of 'https://example.org' may not ask; start the server with "
    for path, body in (("/v1/generate", {"inputs": TEXT}), ("/translate", FORM)):
        for host in ("http://localhost", "https://LocalHost"):
            assert client.post(path, json=body, headers={"Origin": host}).status_code == 200
        for foreign in (*origin.values(), "null", "http://localhost:1", "http://["):
            response = client.post(path, json=body, headers={"Origin": foreign})
            assert response.status_code == 403
            said = response.json()["error"]
            assert said == (line + "cors=[https://example.org]").replace(origin["Origin"], foreign)
    with client_of(bundle, cors=[*origin.values()], languages=["en", "de"]) as told:
        assert told.post("/translate", json=FORM, headers=origin).status_code == 200
        headers = told.get("/health", headers=origin).headers
        assert headers["access-control-allow-origin"] == "https://example.org"
        other = told.get("/health", headers={"Origin": "https://other.example"}).headers
        assert "access-control-allow-origin" not in other


def test_metrics_count_what_was_asked(bundle):
    with client_of(bundle) as client:
        ask(client, inputs=[TEXT, "two birds"], generation="greedy")
        client.get("/nowhere")
        client.post("/v1/generate", json={})
        text = client.get("/metrics").text
        read = sum(len(windows[0]) for windows in bundle.encode([TEXT, "two birds"]))
        said = bundle.hypotheses([TEXT, "two birds"], "greedy", workers=1)
    for line in (
        'seqattn_requests_total{path="/v1/generate",status="200"} 1.0',
        'seqattn_requests_total{path="/v1/generate",status="422"} 1.0',
        'seqattn_requests_total{path="other",status="404"} 1.0',
        'seqattn_errors_total{status="422"} 1.0',
        'seqattn_request_seconds_count{path="/v1/generate"} 2.0',
        "seqattn_queue_length 0.0",
        f'seqattn_tokens_total{{side="source"}} {float(read)}',
        f'seqattn_tokens_total{{side="target"}} {float(sum(len(h[0].ids) + 1 for h in said))}',
        "seqattn_batch_inputs_sum 2.0",
        'seqattn_batch_inputs_bucket{le="1.0"} 0.0',
        'seqattn_batch_inputs_bucket{le="2.0"} 1.0',
    ):
        assert f"\n{line}\n" in text
    kind = r"# (HELP|TYPE) \w+ .+"
    sample = r'\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? [0-9.]+'
    assert [line for line in text.splitlines() if not re.fullmatch(f"{kind}|{sample}", line)] == []


def test_the_endpoints_are_a_page_that_loads_nothing(client):
    response = client.get("/docs")
    document = client.get("/openapi.json").json()
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    assert not re.search(r"<(script|link|img)|https?://", response.text)
    for path in document["paths"]:
        assert re.search(rf"<h2>(GET|POST) {re.escape(path)}</h2>", response.text), path
    targets = set(re.findall(r'href="#(\w+)"', response.text))
    assert targets == document["components"]["schemas"].keys() & targets
    assert {"GenerateRequest", "SearchSettings", "Problem"} <= targets
    for text in ("<td>n_best</td><td>integer from 1 to 100</td><td>default 1</td>",
                 "<td>inputs</td><td>string or list of string</td><td>required</td>"):  # fmt: skip
        assert text in response.text


def test_health_and_the_page_and_the_document(client, bundle):
    assert client.get("/health").json() == {"status": "ok", "gives": "text", "waiting": 0}
    page = client.get("/")
    document = client.get("/openapi.json").json()
    for path in ("generate", "answer", "explain", "page", "sentence"):
        assert f"/v1/{path}" in document["paths"]
    assert {"/translate", "/languages"} <= document["paths"].keys()
    schemas = document["components"]["schemas"]
    assert schemas["GenerateRequest"]["properties"].keys() >= {"inputs", "return", "intervene"}
    assert schemas["GenerateRequest"]["properties"]["inputs"]["examples"]
    name = bundle.path.parent.name
    assert page.text == single_file.page(title=name)
    assert f"<title>{name}</title>" in page.text
    assert f"<title>{name}</title>" in client.get("/docs").text
    assert document["info"]["title"] == name
    assert "connect-src 'self'" in page.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("method", "place", "status", "line"),
    [
        ("GET", "/nowhere", 404, "Not Found: GET /nowhere"),
        ("GET", "/v1/generate", 405, "Method Not Allowed: GET /v1/generate"),
    ],
)
def test_what_is_not_there_is_said_in_json(client, method, place, status, line):
    response = client.request(method, place)
    assert (response.status_code, response.json()) == (status, {"error": line})


def test_a_fault_of_ours_is_no_traceback(client, bundle, monkeypatch):
    def broken(*given):
        raise RuntimeError("secret")

    monkeypatch.setattr(bundle.model, "encode", broken)
    response = client.post("/v1/generate", json={"inputs": TEXT})
    line = "internal server error; see the output of the server"
    assert (response.status_code, response.json()) == (500, {"error": line})
    response = client.post("/v1/generate", json={"inputs": TEXT, "stream": True})
    assert response.text == f'event: error\ndata: {{"error": "{line}"}}\n\n'
    monkeypatch.undo()
    assert outputs(client, inputs=TEXT)


NINES = "9" * 79 + "..."
FORM = {"q": TEXT, "source": "en", "target": "de", "format": "text", "api_key": "x"}


@pytest.mark.parametrize("how", ["json", "data", "params"])
def test_libretranslates_clients_are_answered(client, bundle, how):
    response = client.post("/translate", **{how: FORM})
    assert response.json() == {"translatedText": bundle.generate(TEXT)}
    text = "a <b>dog</b> sees"
    response = client.post("/translate", **{how: {**FORM, "q": text, "format": "html"}})
    assert response.json() == {"translatedText": bundle.generate(text, markup="html")}


def test_libretranslates_lists_alternatives_and_detection(client, bundle):
    texts = [TEXT, "two birds"]
    keys = {"q": texts, "source": "auto", "target": "de", "alternatives": 2}
    found = client.post("/translate", json=keys).json()
    assert found["translatedText"] == bundle.generate(texts)
    assert [len(others) for others in found["alternatives"]] == [2, 2]
    assert found["detectedLanguage"] == [{"confidence": 100, "language": "en"}] * 2
    for how in ("data", "params"):
        form = client.post("/translate", **{how: {**keys, "alternatives": "2"}}).json()
        assert form == found
    assert client.post("/translate", json={**keys, "q": []}).json()["translatedText"] == []
    languages = client.get("/languages").json()
    assert languages[0] == {"code": "en", "name": "English", "targets": ["de"]}
    assert [one["code"] for one in languages] == ["en", "de"]


@pytest.mark.parametrize(("search", "counts"), [({"beam_size": 3}, (1, 2)), ("greedy", (0,))])
def test_libretranslates_clients_get_as_many_alternatives_as_the_search_has(
    client, bundle, monkeypatch, search, counts
):
    own = bundle.search("greedy") if search == "greedy" else bundle.search(**search)
    plain = bundle.search
    monkeypatch.setattr(bundle, "search", lambda one=None, **s: plain(one or own, **s))
    found = client.post("/translate", json={**FORM, "alternatives": 9}).json()
    assert found["translatedText"] == bundle.generate(TEXT, own)
    assert len(found["alternatives"]) in counts


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"q": None}, "q must be a text or a list of texts"),
        ({"q": 3}, "q must be a text or a list of texts"),
        ({"source": "fr"}, "source must be en or auto, got 'fr'"),
        ({"target": "en"}, "target must be de, got 'en'"),
        ({"format": "xml"}, "format must be text or html, got 'xml'"),
        ({"alternatives": "x"}, "alternatives must be an integer from 0 to 99, got 'x'"),
        (
            {"alternatives": "9" * 5_000},
            f"alternatives must be an integer from 0 to 99, got '{NINES}",
        ),
    ],
)
def test_what_libretranslate_would_take_and_this_does_not_is_said(client, changed, line):
    keys = {key: value for key, value in {**FORM, **changed}.items() if value is not None}
    response = client.post("/translate", json=keys)
    assert (response.status_code, response.json()) == (400, {"error": line})


def test_bodies_that_are_no_form_and_servers_without_languages_say_so(client, bundle):
    sent = client.post("/translate", files={"q": b"x"})
    assert sent.json()["error"].startswith("send JSON or application/x-www-form-url")
    kind = {"Content-Type": "application/json"}
    for body, line in (
        (b"{", "cannot parse the request: "),
        (b"[" * 100_000, "cannot parse the request: "),
        (b"[]", "the body must be an object "),
    ):
        response = client.post("/translate", content=body, headers=kind)
        assert (response.status_code, response.json()["error"][: len(line)]) == (400, line)
    with client_of(bundle) as other:
        for response in (other.get("/languages"), other.post("/translate", json=FORM)):
            assert response.status_code == 404
            assert response.json()["error"].endswith("start the server with languages=[en,de]")
