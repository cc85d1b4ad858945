"""Files of clients: what `generate` writes, whatever they are named, within limits."""

import asyncio
import tempfile
import threading
import time
import zipfile
from dataclasses import replace
from io import BytesIO

import pytest

from seqattn.bundle.bundle import Bundle
from seqattn.extras.serve import files as serve_files
from seqattn.extras.serve.app import make_app
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.model_thread import ModelThread
from seqattn.extras.serve.service import Service
from tests.absent import has_extra, printed_without
from tests.cli.small import run as cli
from tests.extras.serve.conftest import SMALL, TEXT, ask, client_of
from tests.extras.test_deletion import BUNDLE

pytestmark = pytest.mark.skipif(
    not (has_extra("files") and has_extra("align")), reason="an extra is deleted"
)
TEXTS = ["a <i>dog</i> sees the cat", "two birds", TEXT, "the old house by the tree", "a cat"]
FORM = {"source": "en", "target": "de", "api_key": "x"}


def subtitles(texts):
    cues = [f"{n}\n00:00:{n:02},000 --> 00:00:{n:02},900\n{one}.\n" for n, one in enumerate(texts)]
    return "\n".join(cues).encode()


def document():
    content = BytesIO()
    runs = "<r><t>a dog </t></r><r><rPr><b/></rPr><t>sees</t></r><r><t> the cat</t></r>"
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("word/document.xml", f"<a><p>{runs}</p><p><r><t>birds</t></r></p></a>")
        archive.writestr("word/media/a.png", b"\x89PNG")
    return content.getvalue()


SRT = subtitles(TEXTS)


def send(client, content=SRT, name="a.srt", path="/v1/file", **fields):
    return client.post(path, files={"file": (name, content)}, data=fields)


def refused(response, status):
    assert (response.status_code, [*response.json()]) == (status, ["error"]), response.text
    return response.json()["error"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.srt", SRT), ("B.DOCX", document()), ("c.html", b"<p>a <b>dog</b><script>x</script>")],
)
def test_a_file_is_what_generate_writes(client, home, tmp_path, capfd, name, content):
    path, output = tmp_path / name, tmp_path / "output"
    path.write_bytes(content)
    assert cli(capfd, "generate", f"bundle={home}", f"input={path}", f"output={output}").code == 0
    response = send(client, content, name)
    assert response.content == output.read_bytes() != content
    stem, suffix = name.split(".")
    assert response.headers["content-disposition"] == f'attachment; filename="{stem}.de.{suffix}"'
    assert response.headers["x-content-type-options"] == "nosniff"


def test_broken_units_stay_as_they_are_if_told(client):
    broken = SRT.replace(b"00:00:01,000", b"00:00:0x,000")
    line = refused(send(client, broken), 400)
    assert line.startswith("a.srt, line 6: the times of the cue are not readable; add skip_broken")
    assert TEXTS[1] in send(client, broken, skip_broken="true").text
    catalog = b'msgid "two birds"\nmsgstr "x"\n'
    assert send(client, catalog, "a.po").content == catalog
    assert send(client, catalog, "a.po", everything="true").content != catalog


def test_libretranslates_clients_fetch_their_files(client):
    url = send(client, path="/translate_file", **FORM).json()["translatedFileUrl"]
    assert url.startswith("http://localhost/download_file/")
    assert url.endswith(".srt")
    for _ in range(2):
        assert client.get(url).content == send(client).content
    assert send(client, path="/translate_file", **FORM).json()["translatedFileUrl"] != url
    files = {"file": ("a.srt", SRT)}
    behind = {"X-Forwarded-Proto": "https"}  # a proxy
    response = client.post("/translate_file", files=files, data=FORM, headers=behind)
    assert response.json()["translatedFileUrl"].startswith("https://localhost/download_file/")
    line = refused(send(client, path="/translate_file", source="fr", target="de"), 400)
    assert line == "source must be en or auto, got 'fr'"
    shown = client.get("/frontend/settings").json()
    assert shown["filesTranslation"]
    assert {".srt", ".docx"} <= {*shown["supportedFilesFormat"]}
    assert shown["language"]["target"] == {"code": "de", "name": "German"}


def test_files_to_fetch_are_dropped_with_time_and_by_size(bundle):
    limits = Limits(download_bytes=250_000, download_seconds=0.5)
    with client_of(bundle, limits, languages=["en", "de"]) as client:

        def url():
            content = subtitles(TEXTS[-1:])
            return send(client, content, path="/translate_file").json()["translatedFileUrl"]

        first, second, third = url(), url(), url()
        assert [client.get(one).status_code for one in (first, second, third)] == [404, 200, 200]
        for _ in range(100):
            if client.get(third).status_code == 404:
                break
            time.sleep(0.05)
        line = refused(client.get(third), 404)
        assert line == "there is no such file, or no longer; translate it again"


TMX = (
    b'<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>two birds</seg>'
    b"</tuv></tu></body></tmx>"
)


def test_languages_choose_in_files_that_have_several(client):
    line = refused(send(client, TMX, "a.tmx"), 400)
    assert line.startswith("a.tmx may have any languages; set target to the code ")
    for path in ("/v1/file", "/translate_file"):
        response = send(client, TMX, "a.tmx", path, source="auto", target="de")
        if path == "/translate_file":
            response = client.get(response.json()["translatedFileUrl"])
        assert b'<tuv xml:lang="de"><seg>' in response.content
    line = refused(send(client, TMX, "a.tmx", target='"><x>'), 422)
    assert line.startswith("target should match pattern ")


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("../../etc/é.srt", "*=utf-8''%C3%A9.de.srt"),
        ("..\\..\\a.srt", '="a.de.srt"'),
        ("/a\x00\r\nb.srt", None),
        ("\u202etrs.\u200b.srt", '="trs..de.srt"'),
        ("犬" * 300 + ".srt", f"*=utf-8''{'%E7%8A%AC' * 96}.de.srt"),
        ('"; filename="/x.sh"; a=".srt', None),
    ],
)
def test_names_of_files_are_harmless(client, tmp_path, monkeypatch, name, sent):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    response = send(client, name=name)
    assert response.status_code == 200
    assert [*tmp_path.iterdir()] == []
    disposition = response.headers["content-disposition"]
    assert disposition.startswith("attachment; filename")
    assert not {*"/\\"} & {*disposition}
    assert sent is None or disposition == f"attachment; filename{sent}"


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("/x/a.pdf", b"", "the name of a file must end in one of .srt, .vtt, "),
        (".srt", b"", "the name of a file must end in one of .srt, .vtt, "),
        ("a.srt.gz", b"", "the name of a file must end in one of .srt, .vtt, "),
        ("a.srt", b"\xe9", "a.srt is not valid UTF-8 at byte 0; convert it to UTF-8"),
        ("x/a.docx", b"PK", "a.docx is not a document of Word: "),
        ("a.xlf", b"<xliff><a></xliff>", "a.xlf is not well-formed XML: "),
        ("a.xlf", b"<!DOCTYPE a [<!ENTITY b 'c'>]><a/>", "a.xlf declares entities; "),
        ("a.xlf", b"<a>" * 1_000, "a.xlf nests deeper than 256 elements"),
    ],
)
def test_files_that_cannot_be_read_are_said_by_the_name_that_they_came_with(
    client, tmp_path, monkeypatch, name, content, line
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said = refused(send(client, content, name), 400)
    assert said.startswith(line)
    assert not {"seqattn-", str(tmp_path)} & {*said.split("/"), said}
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    "sent",
    [
        {}, {"json": {"file": "a"}}, {"data": {"file": "a"}}, {"files": {"other": ("a.srt", SRT)}},
        {"content": b"--b\r\nx", "headers": {"Content-Type": "multipart/form-data; boundary=b"}},
    ],
)  # fmt: skip
def test_requests_without_a_file_are_said(client, sent):
    line = refused(client.post("/v1/file", **sent), 422)
    assert line == "send a file as the field file of multipart/form-data"
    line = refused(client.post("/v1/generate", json={"inputs": TEXT, "file": "a"}), 422)
    assert line.startswith("unknown key file")


def test_forms_that_cannot_be_read_are_said_to_the_client_alone(client, caplog):
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    response = client.post("/v1/file", content=b"--b\r\n\x01: x\r\n", headers=headers)
    assert refused(response, 400) == "Invalid multipart data."
    assert caplog.messages == []


def test_a_bundle_of_questions_has_no_files(spans):
    with client_of(spans) as client:
        assert refused(send(client), 422) == "this bundle takes questions; use /v1/answer"


@pytest.fixture
def submitted(monkeypatch):
    """The numbers of texts that are submitted together."""
    counts, submit = [], ModelThread.submit

    def counted(self, jobs, reader):
        counts.append(len(jobs))
        submit(self, jobs, reader)

    monkeypatch.setattr(ModelThread, "submit", counted)
    return counts


def test_texts_are_submitted_in_batches_that_fit(bundle, client, submitted):
    content = subtitles(TEXTS * 8)
    expected = send(client, content).content
    assert submitted == [32, 8]
    submitted.clear()
    with client_of(bundle, replace(SMALL, file_bytes=10_000), languages=["en", "de"]) as small:
        assert send(small, content).content == expected
        assert sum(submitted) == 40
        assert max(submitted) < SMALL.inputs  # as many have too many tokens
        line = refused(send(small, subtitles(["a cat " * 40])), 413)
        assert line.startswith("a request may have at most 60 tokens, got ")


def test_a_full_queue_delays_a_file(client, submitted, monkeypatch):
    expected, counted = send(client).content, ModelThread.submit
    submitted.clear()

    def full_at_first(self, jobs, reader):
        limits = Limits(queue=1) if len(submitted) < 3 else Limits()
        monkeypatch.setattr(self, "_limits", limits)
        counted(self, jobs, reader)

    monkeypatch.setattr(serve_files, "_PAUSE", 0)
    monkeypatch.setattr(ModelThread, "submit", full_at_first)
    assert send(client).content == expected
    assert submitted == [5, 2, 1, 2, 2]


def test_others_are_answered_while_a_file_is_translated(bundle, monkeypatch):
    reached, go, encode = threading.Event(), threading.Event(), Bundle.encode

    def waiting(self, texts):
        if "two birds." in texts:
            reached.set()
            go.wait(30)
        return encode(self, texts)

    monkeypatch.setattr(Bundle, "encode", waiting)
    with client_of(bundle, Limits(inputs=2, files=1, file_bytes=2_000)) as client:
        content, statuses = subtitles(["a cat", "a dog", "two birds"]), []
        thread = threading.Thread(target=lambda: statuses.append(send(client, content).status_code))
        thread.start()
        assert reached.wait(30)
        assert ask(client, inputs=TEXT)
        response = send(client, content)
        assert refused(response, 503) == "the server translates other files; try again in a second"
        assert response.headers["retry-after"] == "1"
        go.set()
        thread.join()
        assert statuses == [200]
        assert send(client, content).status_code == 200
        line = refused(send(client, b" " * 2_000), 413)
        assert line == "a request body may have at most 2,000 bytes; split it"


def test_a_file_has_so_much_time(bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with client_of(bundle, Limits(file_seconds=1e-4)) as client:
        line = refused(send(client, subtitles(TEXTS * 20)), 504)
        assert line == "the file took longer than 0.0001 seconds; split it"
        assert ask(client, inputs=TEXT)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("stops", [False, True])
def test_the_work_ends_with_its_client_or_the_server(
    bundle, submitted, tmp_path, monkeypatch, stops
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.srt"\r\n\r\n'
    body = head + subtitles(["a cat"] * 40) + b"\r\n--b--\r\n"
    waiting, statuses = [{"type": "http.request", "body": body}], []
    headers = {b"host": b"localhost", b"content-type": b"multipart/form-data; boundary=b"}
    scope = {
        "type": "http", "method": "POST", "path": "/v1/file", "query_string": b"",
        "headers": [*headers.items()],
    }  # fmt: skip
    service = Service(bundle, Limits(inputs=2))

    async def receive():
        while not waiting and (stops or len(submitted) < 2):
            await asyncio.sleep(0.001)
        return waiting.pop() if waiting else {"type": "http.disconnect"}

    async def send(message):
        statuses.append(message.get("status"))

    async def request():
        task = asyncio.create_task(make_app(service)(scope, receive, send))
        while stops and len(submitted) < 2:
            await asyncio.sleep(0.001)
        if stops:
            task.cancel()
        await task

    asyncio.run(request())
    service.thread.close()
    assert statuses[0] == (503 if stops else 499)
    assert len(submitted) < 5
    assert [*tmp_path.iterdir()] == []


WITHOUT = f"""
import seqattn
from starlette.testclient import TestClient
from seqattn.extras.serve.app import make_app
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.service import Service

app = make_app(Service(seqattn.load({str(BUNDLE)!r}), Limits()), languages=["en", "de"])
with TestClient(app, base_url="http://localhost") as client:
    for path in ("/v1/file", "/translate_file"):
        print(client.post(path, files={{"file": ("a.srt", b"")}}).json()["error"])
    print([path for path in client.get("/openapi.json").json()["paths"] if "file" in path])
    print(client.get("/frontend/settings").json()["supportedFilesFormat"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["files", "align"])
def test_without_an_extra_there_are_no_files(extra):
    lines = printed_without([f"seqattn.extras.{extra}"], WITHOUT).splitlines()
    assert lines == [
        "Not Found: POST /v1/file", "Not Found: POST /translate_file", "[]", "[]",
    ]  # fmt: skip
