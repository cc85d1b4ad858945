"""`publish`: what arrives at a stand-in of the hub is what the bundle is."""

import threading

import pytest
from huggingface_hub import constants

import seqattn
from tests.cli.small import listing, pairs, refusal, run, succeed
from tests.extras.exchange.cards import program
from tests.extras.exchange.hub import TOKEN, Hub

TEXTS = [source for source, _ in pairs()][::20]
FILES = [
    "README.md", "config.json", "generation_config.json", "made_from.json", "model.safetensors",
    "tokenizer.json", "tokenizer_config.json",
]  # fmt: skip


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A stand-in of the hub, which huggingface_hub takes for it, with a token that it accepts."""
    hub = Hub(tmp_path / "hub")
    for name, value in {
        "ENDPOINT": hub.address, "HF_HUB_DISABLE_XET": True, "HF_HUB_CACHE": str(tmp_path / "hf"),
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.address + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_TOKEN_PATH": str(tmp_path / "token"),
    }.items():  # fmt: skip
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # before it tries again
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    yield hub
    hub.shutdown()
    hub.server_close()


def test_what_arrives_says_what_the_bundle_says(hub, trained, capfd):
    pytest.importorskip("transformers")
    before = listing(trained)
    words = f"bundle={trained}", "repo=ann/small", "license=mit", "revision=v1", "private=true"
    out = succeed(capfd, "publish", *words)
    assert out.splitlines()[-1] == f"{hub.address}/ann/small/tree/v1"
    assert "no log-probability differs" in out
    assert "settings of training and data" in out
    assert hub.commits == [("Upload by seqattn", FILES)]
    assert hub.private == {"ann/small": True}
    assert [*hub.files("ann/small")] == [".gitattributes"]
    assert listing(trained) == before
    succeed(capfd, "publish", *words[:2], "commit_message=Mine")
    assert hub.commits[1:] == [("Mine", FILES)]
    folder = hub.root / "ann/small/main"
    for text in TEXTS:
        exec(program(folder, text).replace("ann/small", str(folder)), {})
    outputs = [text.replace("⁇", "") for text in seqattn.load(trained).generate(TEXTS)]
    assert capfd.readouterr().out.splitlines() == outputs


def test_a_repository_keeps_what_is_in_it(hub, trained, capfd):
    words = f"bundle={trained}", "repo=ann/small", "license=mit"
    assert "keeps" not in run(capfd, "publish", *words).err
    folder = hub.root / "ann/small/main"
    for name in ("notes.txt", "config.json"):
        (folder / name).write_text("mine")
    assert run(capfd, "publish", *words).err == "ann/small keeps other files: notes.txt\n"
    assert (folder / "notes.txt").read_text() == "mine"
    assert hub.commits[1][1] == ["config.json"]
    succeed(capfd, "publish", *words)
    assert len(hub.commits) == 2  # nothing had changed
    said = refusal(capfd, "publish", *words, "private=true")
    assert said == "ann/small exists and is public; choose another repo"
    assert len(hub.commits) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("repo=own", "repo must be OWNER/NAME as the hub allows, got 'own'"),
        ("repo=ann/../own", "repo must be OWNER/NAME as the hub allows, got "),
        ("repo='ann/my own'", "repo must be OWNER/NAME as the hub allows, got "),
        ("repo=ann/own.git", "repo must be OWNER/NAME as the hub allows, got "),
        ("license=mine", "unknown license=mine; use one of https://huggingface.co/docs/hub/repo"),
        ("HF_TOKEN=", "not logged in to the hub; run hf auth login, or set HF_TOKEN"),
        ("HF_TOKEN=no", "the token is not valid; run hf auth login, or set HF_TOKEN"),
        ("repo=bob/own", "the token may not write there; use one with write access to it"),
        ("repo=eve/own", "the token sees no such owner, repository or branch; check repo and "),
        ("broken=POST /api/repos", "disconnected without sending a response; repeat the command"),
        ("broken=PUT /lfs", "Error while uploading 'model.safetensors' to the Hub; repeat the "),
        ("broken=POST .*/commit", "disconnected without sending a response; repeat the command"),
        ("broken=.*/preupload", "disconnected without sending a response; repeat the command"),
    ],
)
def test_what_cannot_be_published_ends_in_one_line(words, told, hub, trained, monkeypatch, capfd):
    key, _, value = words.partition("=")
    if key == "HF_TOKEN":
        monkeypatch.setenv(key, value)
    hub.broken = value if key == "broken" else None
    words = [words] if key in ("repo", "license") else []
    words = f"bundle={trained}", "license=mit", "repo=ann/own", *words
    ended = run(capfd, "publish", *words)
    assert ended.code == 2
    last = ended.err.splitlines()[-1]
    assert last.startswith("error: ")
    assert told in last
    assert "form=bundle" not in last
    assert "Traceback" not in ended.err
    assert hub.commits == []


def test_a_bundle_itself_is_loaded_by_its_name(hub, trained, answering, tmp_path, capfd):
    words = f"bundle={trained}", "repo=ann/own", "form=bundle", "license=mit"
    before = listing(trained)
    succeed(capfd, "publish", *words)
    assert listing(trained) == before
    assert [*hub.files("ann/own")] == [
        ".gitattributes",
        *sorted(path.name for path in (trained / "model").iterdir()),
    ]
    again = seqattn.load("hf://ann/own")
    assert again.generate(TEXTS) == seqattn.load(trained).generate(TEXTS)
    card = hub.files("ann/own")["README.md"].decode()
    assert '\nmodel = seqattn.load("hf://ann/own")\n' in card
    assert "\nlibrary_name: seqattn\n" in card
    said = refusal(capfd, "publish", *words[:2], "license=mit")
    assert said == "ann/own has config.yaml of another form; choose another repo"


def test_what_transformers_does_not_have_is_published_itself(hub, answering, capfd):
    words = f"bundle={answering}", "repo=ann/spans"
    said = refusal(capfd, "publish", *words)
    assert said.startswith("publish needs a bundle that outputs text")
    assert said.endswith("; form=bundle publishes the bundle itself")
    assert not (hub.root / "ann").exists()
    succeed(capfd, "publish", *words, "form=bundle")
    assert type(seqattn.load("hf://ann/spans")) is type(seqattn.load(answering))
