"""Tiny bundles behind an application, and a client in the same process."""

import pytest
from starlette.testclient import TestClient

import seqattn
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.extras.serve.app import make_app
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.service import Service
from tests.bundle.conftest import configuration, corpus, untrained

TEXT = "a dog sees the cat"
SMALL = Limits(body_bytes=4_000, inputs=8, tokens=60, queue=8, batch_tokens=40)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    options = TokenizerConfig(vocab_size=36)
    return train_tokenizer(corpus(), corpus(), options, tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="session")
def home(tmp_path_factory, tokenizer):
    """A Transformer's bundle, with the samples of its run. Tests leave it as it is."""
    run = tmp_path_factory.mktemp("server")
    (run / "samples").mkdir()
    text = f"step,1,2,3,4\nsource,{TEXT},,{TEXT},{'a ' * 300}\nreference,x,x,x,x\n9,y,y,y,y\n"
    (run / "samples" / "samples.csv").write_text(text)
    return untrained(run / "model", tokenizer, configuration())


@pytest.fixture(scope="session")
def bundle(home):
    return seqattn.load(home)


def other(tmp_path_factory, tokenizer, *names, **chosen):
    home = tmp_path_factory.mktemp("other") / "model"
    return seqattn.load(untrained(home, tokenizer, configuration(*names, **chosen)))


@pytest.fixture(scope="session")
def recurrent(tmp_path_factory, tokenizer):
    return other(tmp_path_factory, tokenizer, "rnn")


@pytest.fixture(scope="session")
def spans(tmp_path_factory, tokenizer):
    return other(tmp_path_factory, tokenizer, "span_rnn")


@pytest.fixture(scope="session")
def writing(tmp_path_factory, tokenizer):
    """A bundle that answers questions in its own words."""
    return other(tmp_path_factory, tokenizer, task="qa_generative", data="demo_qa")


def client_of(bundle, limits=None, **options):
    app = make_app(Service(bundle, limits or Limits()), **options)
    return TestClient(app, base_url="http://localhost", raise_server_exceptions=False)


@pytest.fixture(scope="module")
def client(bundle):
    with client_of(bundle, languages=["en", "de"]) as made:
        yield made


def ask(client, path="/v1/generate", **keys):
    """The body of a response that must be one."""
    response = client.post(path, json=keys)
    assert response.status_code == 200, response.text
    return response.json()


def outputs(client, **keys):
    """The outputs for the first input."""
    return ask(client, **keys)["results"][0]["outputs"]


def refusal(client, path="/v1/generate", status=422, **keys):
    """The line of a request that must be refused."""
    response = client.post(path, json=keys)
    assert (response.status_code, list(response.json())) == (status, ["error"]), response.text
    line = response.json()["error"]
    assert "\n" not in line
    return line
