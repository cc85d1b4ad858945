"""The subcommand `serve`: what it refuses before it listens."""

import gc
import os
import socket
import subprocess
import sys
from functools import partial

import pytest
import uvicorn
from starlette.testclient import TestClient

from seqattn.errors import UserError
from seqattn.extras.serve.http_server import address_of, bound
from seqattn.extras.serve.serve import Serving
from seqattn.installation import install
from tests.absent import of_extra
from tests.pages import blocks


def test_a_port_that_is_taken_is_said_before_the_bundle_is_read():
    with bound("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert address_of(first) == f"http://127.0.0.1:{port}"
        with pytest.raises(UserError) as refused:
            Serving(bundle="nowhere", port=port).run()
    assert str(refused.value) == (
        f"cannot bind host=127.0.0.1 port={port}: Address already in use; choose another"
    )


def test_an_address_that_is_not_of_this_machine_is_said():
    with pytest.raises(UserError, match=r"cannot bind host=no\.such\.invalid port=8000: "):
        bound("no.such.invalid", 8_000)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_address_of_version_six_stands_in_brackets():
    try:
        made = bound("::1", 0)
    except UserError:
        pytest.skip("no IPv6 here")
    with made:
        assert address_of(made).startswith("http://[::1]:")


_ITS_MODULES = ("app", "files", "http_server")


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn", "prometheus_client", "python_multipart"])
def test_without_the_extra_it_says_what_to_install(monkeypatch, missing):
    for name in [*sys.modules]:
        if name.startswith(tuple(f"seqattn.extras.serve.{one}" for one in _ITS_MODULES)):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UserError) as refused:
        Serving(bundle="nowhere").run()
    assert str(refused.value) == f"serve needs {missing}; {install('serve')}"


def test_variables_of_libraries_do_not_reach_a_server(tmp_path):
    program = """
from seqattn.extras.serve.http_server import server_of
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.metrics import Metrics
metrics, server = Metrics(), server_of(None, Limits())
metrics.request("/x", 200, 0.1)
print(metrics.text().decode().count('seqattn_requests_total{path="/x",status="200"} 1.0'))
"""
    for folder in (tmp_path, tmp_path / "missing"):
        variables = {"PROMETHEUS_MULTIPROC_DIR": f"{folder}", "WEB_CONCURRENCY": "many"}
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True
        )
        assert (done.stdout, done.stderr) == ("1\n", "")
        assert not [*tmp_path.iterdir()]


HTTP_SERVER = "seqattn.extras.serve.http_server"
WORK = {"data": None, "generation": None, "scorer": None, "output": "new", "heads": "mqa"}


@pytest.mark.parametrize("subcommand", ["serve", "convert"])
def test_an_ensemble_that_would_be_ignored_is_refused(subcommand):
    run = Serving
    if subcommand == "convert":
        run = partial(of_extra("convert.convert").Conversion, **WORK)
    with pytest.raises(UserError, match="takes one bundle; "):
        run(bundle="one", ensemble=["other"])


def test_a_bundle_that_is_not_there_is_said_and_its_port_is_free_again():
    with pytest.raises(UserError, match="nowhere"):
        Serving(bundle="nowhere", port=0).run()


def test_the_server_of_a_program_of_ones_own_answers(home, bundle, monkeypatch):
    served = []
    monkeypatch.setattr(uvicorn, "run", lambda app, port: served.append(app))
    [program] = blocks("server.md", "python")
    exec(program.replace("RUN/model", str(home)), {})
    with TestClient(served[0], base_url="http://mt.example.org") as client:
        response = client.post("/v1/generate", json={"inputs": "a dog"})
    assert response.json()["results"][0]["outputs"][0]["text"] == bundle.generate("a dog")


def test_the_public_names_wait_for_no_slow_import_and_others_are_unknown():
    from seqattn.extras import serve

    program = "import seqattn.extras.serve, sys; print(*{'fastapi', 'torch'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"\n"
    assert [getattr(serve, name) for name in serve.__all__]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        serve.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({}, r"missing required key: bundle \(add bundle=RUN/model, or bundles=DIR\)"),
        ({"bundle": "a", "bundles": ["b"]}, "bundle and bundles are mutually exclusive; remove"),
        ({"bundle": "a", "memory": "4GB"}, "bundle and memory are mutually exclusive; remove"),
        ({"bundle": "a", "trust": {"a": ["b"]}}, "trust by name needs bundles=DIR, not bundle"),
        ({"bundles": ["a"], "languages": {"a": ["en"]}}, r"a target language, got \[en\]"),
        ({"bundles": ["a"], "languages": {"b": ["en", "de"]}}, "languages names b, but bundles ha"),
        ({"bundles": ["a"], "memory": "many"}, "memory must be a size such as 4GB, got many"),
        ({"bundles": ["a", "x/a"]}, "'a' of bundles is there twice; rename the folder"),
    ],
)
def test_several_bundles_and_one_are_told_apart(keys, line):
    with pytest.raises(UserError, match=line):
        Serving(**keys, port=0).run()


def test_several_bundles_are_served_with_what_is_given_by_name(home, bundle, tmp_path, monkeypatch):
    (tmp_path / "one").symlink_to(home)
    monkeypatch.setattr(f"{HTTP_SERVER}.serve", lambda app, *rest: served.append(app))
    monkeypatch.setattr(gc, "freeze", lambda: None)  # what other tests have made
    served, pairs = [], {"one": ["en", "de"]}
    words = {"bundles": str(tmp_path), "memory": "1GB", "trust": None, "languages": pairs}
    Serving(**words, port=0).run()
    with TestClient(served[0], base_url="http://localhost") as client:
        response = client.post("/translate", json={"q": "a dog", "source": "en", "target": "de"})
        assert response.json() == {"translatedText": bundle.generate("a dog")}
        response = client.post("/v1/generate", json={"inputs": "a dog"})  # the only model
        assert response.status_code == 200
