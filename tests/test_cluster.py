"""The programs of docs/cluster.md run where their packages are, and deploy/ fits the server."""

import json
import os
import re
import socket
import subprocess
import sys

import pytest
import yaml

from seqattn.cli.main import run_subcommand
from tests.absent import of_extra
from tests.cli.small import composed
from tests.pages import PAGES, ROOT, blocks, files

DEPLOY = ROOT / "deploy"


@pytest.fixture
def run(tmp_path):
    """Runs a program of the page in a folder that has them all; gives its standard output."""
    for name, text in files("cluster.md").items():
        (tmp_path / name).write_text(text)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}

    def run(*words, code=0):
        words = [sys.executable, *map(str, words)]
        done = subprocess.run(
            words,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr * (code != 0)

    return run


@pytest.fixture
def lines(trained, tmp_path):
    """Words of a command for a bundle and lines, two of them blank, and what it makes of them."""
    source, output = tmp_path / "lines", tmp_path / "one"
    source.write_text("a dog sees a ball\n\nthe cat hears the tree\n" * 5 + "\na man\n")
    words = [f"bundle={trained}/model", f"input={source}", f"output={output}"]
    assert run_subcommand("generate", words) == 0
    return [trained / "model", source, tmp_path / "joined"], output.read_bytes()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("package", "words"),
    [("submitit", ("submitit_decode.py", "local", 3)), ("ray.data", ("ray_decode.py", 1))],
)
def test_parts_are_joined_to_what_one_process_writes(package, words, run, lines):
    pytest.importorskip(package)
    run(*words, *lines[0])
    assert lines[0][-1].read_bytes() == lines[1]


@pytest.mark.exhaustive
def test_ray_is_not_asked_for_more_than_it_has(run, lines):
    pytest.importorskip("ray.data")
    assert "waits forever if its actors take all" in run("ray_decode.py", 9999, *lines[0], code=1)


ASK = """
import json, sys
from urllib.request import Request, urlopen
import ray_serve
from ray import serve
serve.start(http_options={"port": int(sys.argv[2])})
serve.run(ray_serve.build({"bundle": sys.argv[1]}))
body = json.dumps({"inputs": "a dog"}).encode()
url = f"http://127.0.0.1:{sys.argv[2]}/v1/generate"
for _ in range(4):
    print(urlopen(Request(url, body, {"Content-Type": "application/json"})).read().decode())
serve.shutdown()
"""


@pytest.mark.exhaustive
def test_replicas_answer_as_the_server_does(run, trained):
    pytest.importorskip("ray.serve")
    of_extra("serve.app")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    printed = run("-c", ASK, trained / "model", port).splitlines()
    answers = [line for line in printed if line.startswith("{")]  # Ray prints others
    assert len({json.loads(answer)["results"][0]["outputs"][0]["text"] for answer in answers}) == 1
    assert len(answers) == 4


def test_the_files_of_the_page_are_there_and_named():
    named = {*re.findall(r"deploy/([\w.-]*\w)", PAGES["cluster.md"])}
    assert {*named, "Dockerfile.dockerignore"} == {path.name for path in DEPLOY.iterdir()}
    assert any(
        "--array" in block and "part=$part/" in block for block in blocks("cluster.md", "bash")
    )


def test_the_image_copies_what_it_may():
    [allowed] = [(DEPLOY / "Dockerfile.dockerignore").read_text().split()]
    allowed = [line[1:] for line in allowed if line.startswith("!")]
    copied = re.findall(r"(?m)^COPY (.*) \S+$", (DEPLOY / "Dockerfile").read_text())
    for path in " ".join(copied).split():
        assert (ROOT / path).exists()
        assert any(name.partition("/")[0] == path for name in allowed), path
    sdist = (ROOT / "pyproject.toml").read_text()
    assert all(f'"{name}"' in sdist for name in allowed if name.startswith("data/"))


def test_commands_of_the_server_have_keys_that_it_knows():
    of_extra("serve.serve")
    image = json.loads(re.search(r"ENTRYPOINT (.*)", (DEPLOY / "Dockerfile").read_text())[1])
    unit = re.search(r"ExecStart=\S+ (.*)", (DEPLOY / "seqattn.service").read_text())[1].split()
    deployment = next(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    [server] = deployment["spec"]["template"]["spec"]["containers"]
    for name, *words in (unit, [*image[1:], *server["args"]]):
        settings, _ = composed(name, *words)
        assert settings["bundle"].endswith("/model")
    assert server["ports"] == [{"name": "http", "containerPort": settings["port"]}]


def test_alerts_and_the_autoscaler_read_metrics_of_the_server():
    metrics = of_extra("serve.metrics").Metrics()
    metrics.request("/v1/generate", 503, 1.0)
    exposed = {*re.findall(r"(?m)^(\w+)", metrics.text().decode())}
    texts = [(DEPLOY / name).read_text() for name in ("alerts.yaml", "kubernetes.yaml")]
    named = {name for text in texts for name in re.findall(r"\bseqattn_\w+", text)}
    assert "seqattn_queue_length" in named
    assert named <= exposed
    rules = yaml.safe_load(texts[0])["groups"][0]["rules"]
    half = of_extra("serve.limits").Limits().queue // 2
    assert any(f"seqattn_queue_length > {half}" in rule["expr"] for rule in rules)
