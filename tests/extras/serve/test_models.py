"""Several bundles behind one server: which answers, which are in memory, what becomes of damage."""

import asyncio
import json
import shutil
import sys
import time
from contextlib import ExitStack
from threading import Timer
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

import seqattn
from seqattn.errors import UserError
from seqattn.extras.serve import language_pairs
from seqattn.extras.serve import models as models_module
from seqattn.extras.serve.app import make_app
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.models import Model, Models, models_in
from seqattn.extras.serve.schemas import GenerateRequest
from seqattn.installation import install
from tests.extras.serve.conftest import TEXT, ask, outputs, refusal

NAMES = ("one", "two", "three", "four")
PAIRS = {"one": ["en", "de"], "two": ["fr", "de"], "three": ["en", "fr"], "four": ()}
"""Those of the last one are of its configuration: en and de."""


def vary(path, seed):
    """Change the weights of a bundle."""
    file = path / "model.safetensors"
    torch.manual_seed(seed)
    weights = {name: torch.randn_like(tensor) for name, tensor in load_file(file).items()}
    save_file(weights, file, metadata={"format": "seqattn bundle 2"})


@pytest.fixture
def folder(home, tmp_path):
    """A folder of four bundles, one of them in a run, and of what is none."""
    for seed, name in enumerate(NAMES):
        path = tmp_path / name / "model" if name == "four" else tmp_path / name
        shutil.copytree(home, path)
        vary(path, seed)
    (tmp_path / "notes").mkdir()
    (tmp_path / "two.ctranslate2").mkdir()
    (tmp_path / "around").symlink_to("around")
    return tmp_path


def models_of(folder, count=2.5, limits=None, languages=PAIRS):
    size = Model("", "").check(folder / "one")
    each = [Model(name, path, (), languages[name]) for name, path in models_in(f"{folder}").items()]
    return Models(each, limits or Limits(), count * size)


def client_of(models):
    return TestClient(make_app(models), base_url="http://localhost", raise_server_exceptions=False)


@pytest.fixture
def models(folder):
    return models_of(folder)


@pytest.fixture
def client(models):
    with client_of(models) as made:
        yield made


def loaded(client):
    return {one["id"] for one in client.get("/v1/models").json()["data"] if one["loaded"]}


def metric(client, name):
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def best(client, name, **keys):
    return outputs(client, inputs=TEXT, model=name, **keys)[0]["text"]


def expected(folder, name):
    return seqattn.load(folder / name).generate(TEXT)


def test_the_named_bundle_answers_and_the_least_recently_used_is_evicted(client, models, folder):
    texts = {name: expected(folder, name) for name in NAMES}
    assert len({*texts.values()}) == 4
    for name in ("one", "two", "one", "three", "four", "one"):
        assert best(client, name) == texts[name]
        assert metric(client, "seqattn_loaded_bytes ") <= models.memory
    assert loaded(client) == {"one", "four"}
    assert metric(client, "seqattn_loads_total") == 5
    assert metric(client, "process_resident_memory_bytes ") > models.memory
    assert client.get("/health").json() == {"status": "ok", "models": 4, "loaded": 2, "waiting": 0}


def request():
    """A request that no client leaves, and what ends with it."""
    return SimpleNamespace(scope={"at_end": ExitStack()}, receive=asyncio.Event().wait)


def test_clients_at_the_same_time_get_the_answers_of_their_bundles(folder):
    texts = {name: expected(folder, name) for name in NAMES}

    async def answer(models, name):
        with (one := request()).scope["at_end"]:
            service = await models.select(name, one)
            generate, body = service.writer(asks=False).generate, GenerateRequest(inputs=TEXT)
            assert models._loaded_bytes() <= models.memory
            return (await service.respond(generate, body, one)).results[0].outputs[0].text

    async def answers(models, names):
        return await asyncio.gather(*(answer(models, name) for name in names))

    models = models_of(folder)
    assert asyncio.run(answers(models, NAMES * 4)) == [texts[name] for name in NAMES * 4]
    models.close()


def test_a_bundle_in_use_stays_until_its_last_request_ends(folder):
    async def run():
        models = models_of(folder, 1.5)
        (first := request()).scope["at_end"].__enter__()
        service = await models.select("one", first)
        models.limits = Limits(timeout=0.3)
        with pytest.raises(HTTPException) as late, request().scope["at_end"]:
            await models.select("two", request())
        line = "loading took longer than 0.3 seconds"
        assert (late.value.status_code, late.value.detail) == (504, line)
        assert service.bundle.generate(TEXT) == expected(folder, "one")
        assert models._loaded_bytes() <= models.memory
        del service
        first.scope["at_end"].close()
        models.limits = Limits()
        two = await models.select("two", request())
        assert two.bundle.generate(TEXT) == expected(folder, "two")
        models.close()

    asyncio.run(run())


UNKNOWN = "choose from four, one, three, two"


@pytest.mark.parametrize(
    ("name", "status", "line"),
    [
        ("five", 404, f"unknown model 'five'; {UNKNOWN}"),
        ("../one", 404, f"unknown model '../one'; {UNKNOWN}"),
        ("", 404, f"unknown model ''; {UNKNOWN}"),
        ("öne\n", 404, f"unknown model 'öne\\n'; {UNKNOWN}"),
        (None, 422, f"missing required key: model; {UNKNOWN}"),
        (5, 422, "model should be a valid string"),
        ("x" * 101, 422, "model should have at most 100 characters"),
        ("\ud800", 422, "model contains an unpaired surrogate; send valid Unicode"),
    ],
)
def test_what_is_no_model_is_said_with_the_known_ones(client, name, status, line):
    content = json.dumps({"inputs": TEXT, "model": name})
    kind = {"Content-Type": "application/json"}
    response = client.post("/v1/generate", content=content, headers=kind)
    assert (response.status_code, response.json()) == (status, {"error": line})
    assert "five" not in client.get("/metrics").text


def test_a_damaged_bundle_touches_no_other_and_is_tried_again_when_mended(folder, home, capfd):
    file = folder / "two" / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-8])
    line = "cannot read two/model.safetensors (Error while deserializing header"
    with client_of(models_of(folder)) as client:
        told = capfd.readouterr().err
        others = "serve: not bundles, left out: around, notes\n"
        assert told.startswith(f"{others}serve: model two: {line}")
        for _ in range(2):
            said = refusal(client, status=503, inputs=TEXT, model="two")
            assert said.startswith(f"model two cannot be loaded: {line}")
        assert capfd.readouterr().err == ""
        [two] = [one for one in client.get("/v1/models").json()["data"] if one["id"] == "two"]
        assert (two["loaded"], two["error"][: len(line)]) == (False, line)
        assert best(client, "one") == expected(folder, "one")
        file.write_bytes(whole)
        assert best(client, "two") == expected(folder, "two")


def test_a_bundle_that_is_being_written_is_waited_for(client, folder):
    file, wanted = folder / "two" / "model.safetensors", expected(folder, "two")
    whole = file.read_bytes()
    file.write_bytes(whole[:1_000])
    later = [Timer(0.3, file.write_bytes, [whole[:9_000]]), Timer(0.7, file.write_bytes, [whole])]
    for timer in later:
        timer.start()
    assert best(client, "two") == wanted


def test_changed_files_are_loaded_and_half_written_or_missing_ones_are_not(client, folder, capfd):
    before, file = best(client, "one"), folder / "one" / "model.safetensors"
    file.touch()
    assert best(client, "one") == before
    assert metric(client, "seqattn_loads_total") == 1  # by its digest it is the same
    vary(folder / "one", 9)
    whole = file.read_bytes()
    file.write_bytes(whole[:1_000])
    assert best(client, "one") == before
    assert "(the one loaded before is used)\n" in capfd.readouterr().err
    file.write_bytes(whole)
    assert best(client, "one") == (after := expected(folder, "one")) != before
    shutil.rmtree(folder / "one")
    assert best(client, "one") == after
    told = "serve: model one: bundle one does not exist; training writes one to RUN/model"
    assert capfd.readouterr().err == f"{told} (the one loaded before is used)\n"


def test_a_bundle_that_another_load_evicts_at_once_answers_its_request(folder, monkeypatch):
    def slow_free():
        time.sleep(0.3)
        free()

    async def name(models, named):
        with (one := request()).scope["at_end"]:
            return (await models.select(named, one)).bundle.path.name

    async def names(models):
        return await asyncio.gather(name(models, "one"), name(models, "two"))

    models, free = models_of(folder, 1.5), models_module._free
    monkeypatch.setattr(models_module, "_free", slow_free)
    assert asyncio.run(names(models)) == ["one", "two"]
    models.close()


@pytest.mark.parametrize("damage", ["x: [", "choices: {task: translation}"])
def test_a_damaged_configuration_is_said_and_its_given_languages_lead_to_it(folder, damage):
    config = folder / "two" / "config.yaml"
    whole = config.read_text()
    config.write_text(damage)
    with client_of(models_of(folder)) as client:
        keys = {"q": TEXT, "source": "fr", "target": "de"}
        assert "two/config.yaml" in refusal(client, "/translate", 503, **keys)
        config.write_text(whole)
        assert ask(client, "/translate", **keys) == {"translatedText": expected(folder, "two")}


def test_no_error_names_a_folder_of_the_server(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    (folder / "one" / "config.yaml").rename(folder / "one" / "config.json")
    (folder / "two" / "model.safetensors").unlink()
    models = Models([Model("a", "~/one"), Model("b", "~/two")], Limits(), 1e9)
    with client_of(models) as client:
        for name in ("a", "b"):
            refusal(client, status=503, inputs=TEXT, model=name)
        listed = client.get("/v1/models").text
    assert str(folder) not in listed
    assert "a/config.json" in listed


def test_a_changed_bundle_replaces_the_one_in_memory_where_both_do_not_fit(folder):
    with client_of(models_of(folder, 1.5)) as client:
        before = best(client, "one")
        vary(folder / "one", 9)
        assert best(client, "one") == expected(folder, "one") != before


def test_a_bundle_of_more_than_the_memory_is_refused(folder):
    with pytest.raises(UserError, match="the weights of four take 0 MB, more than memory=0MB"):
        models_of(folder, 0.9)


def test_names_are_those_of_folders_or_runs(folder, home, monkeypatch):
    named = {name: str(folder / name) for name in sorted(NAMES)}
    assert models_in(f"{folder}") == named
    assert models_in(f"{folder}/one") == {"one": f"{folder}/one"}
    assert [*models_in([f"{folder}/four/model", f"{folder}/one/"])] == ["four", "one"]
    for paths, line in (
        ([f"{folder}/one", f"{folder}/x/../one"], "'one' of bundles is there twice; rename"),
        (["a..b"], "'a..b' of bundles cannot be a model's name; rename the folder"),
        (["/"], "'' of bundles cannot be a model's name; rename the folder"),
        (f"{folder}/notes", "has no bundles in it; use their folder, or a list"),
        (f"{folder}/nowhere", "cannot read .*nowhere: No such file or directory"),
    ):
        with pytest.raises(UserError, match=line):
            models_in(paths)


TEXTS = {"en": "The children play in the garden.", "fr": "Les enfants jouent dans le jardin."}


def test_languages_choose_the_first_bundle_that_has_them(client, models, folder):
    pairs = [("en", ["de", "fr"]), ("fr", ["de"]), ("de", [])]
    languages = client.get("/languages").json()
    assert [(one["code"], one["targets"]) for one in languages] == pairs
    for source, target, name in (("en", "de", "four"), ("fr", "de", "two"), ("en", "fr", "three")):
        output = expected(folder, name)
        keys = {"q": TEXT, "source": source, "target": target}
        assert ask(client, "/translate", **keys) == {"translatedText": output}
        keys = {"text": [TEXT], "source_language": source, "target_language": target}
        assert ask(client, "/v1/translations", **keys) == {
            "object": "translation",
            "model": name,
            "translated_text": [output],
            "source_language": source,
            "target_language": target,
        }
    two = ask(client, "/translate", q=TEXT, model="two")
    assert two == {"translatedText": expected(folder, "two")}
    models.models["one"].pair = ()
    for keys, status, line in (
        ({"source": "it"}, 400, "source must be en or fr or auto, got 'it'"),
        ({"source": "fr", "target": "en"}, 400, "target must be de from fr, got 'en'"),
        ({"model": "two", "source": "en"}, 400, "source must be fr or auto, got 'en'"),
        ({"model": 5}, 404, f"unknown model 5; {UNKNOWN}"),
        ({"model": "one"}, 404, "start the server with languages={one: [en,de]}"),
    ):
        assert refusal(client, "/translate", status, q=TEXT, **keys).endswith(line)


def test_the_source_language_is_told_by_the_text(client, folder):
    pytest.importorskip("py3langid")
    for code, name in (("en", "four"), ("fr", "two")):
        text = TEXTS[code]
        response = ask(client, "/translate", q=text, source="auto", target="de")
        assert response["translatedText"] == seqattn.load(folder / name).generate(text)
        assert response["detectedLanguage"] == {"confidence": 100, "language": code}
        response = ask(client, "/v1/translations", text=text, target_language="de")
        assert (response["model"], response["source_language"]) == (name, code)
    response = client.post("/translate", json={"q": TEXTS["fr"], "source": "auto", "target": "fr"})
    assert response.json() == {"error": "target must be de from fr, got 'fr'"}
    line = refusal(client, "/translate", 400, q="12", source="auto", target="de")
    assert line == "cannot tell the source language (en 0.50, fr 0.50); send source"


def test_without_its_package_no_language_is_told(client, monkeypatch):
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    language_pairs._identifier.cache_clear()
    line = refusal(client, "/translate", 400, q=TEXT, source="auto", target="de")
    assert line == f"source=auto needs py3langid; {install('detect')}, or send source"


SUBTITLES = {"file": ("a.srt", f"1\n00:00:01,000 --> 00:00:02,000\n{TEXT}\n".encode())}


def test_files_are_of_the_named_bundle_or_of_their_languages(client, folder):
    pytest.importorskip("seqattn.extras.files")
    for name, keys in (("two", {"model": "two"}), ("three", {"source": "en", "target": "fr"})):
        path = "/v1/file" if "model" in keys else "/translate_file"
        response = client.post(path, files=SUBTITLES, data=keys)
        if path == "/translate_file":
            response = client.get(response.json()["translatedFileUrl"].partition("localhost")[2])
        assert response.text.splitlines()[2] == expected(folder, name)
        assert f"a.{PAIRS[name][1]}.srt" in response.headers["content-disposition"]
    assert client.post("/v1/file", files=SUBTITLES).status_code == 422
    pytest.importorskip("py3langid")
    numbers = {"file": ("a.srt", SUBTITLES["file"][1].replace(TEXT.encode(), b"ok"))}
    response = client.post("/translate_file", files=numbers, data={"source": "auto"})
    assert response.json()["error"].startswith("cannot tell the source language (en 0.50")


def test_a_file_of_a_bundle_that_cannot_be_loaded_ends(client, folder):
    pytest.importorskip("seqattn.extras.files")
    (folder / "two" / "model.safetensors").unlink()
    response = client.post("/translate_file", files=SUBTITLES, data={"model": "two"})
    assert response.status_code == 503
    assert response.json()["error"].startswith("model two cannot be loaded: cannot read two/model")


def test_a_page_for_each_bundle_and_a_list_of_them(client):
    listed = client.get("/")
    assert [f'<a href="models/{name}/">{name}</a>' in listed.text for name in NAMES] == [True] * 4
    assert "English to German" in listed.text
    page = client.get("/?model=two")
    assert page.url.path == "/models/two/"
    assert "<title>two</title>" in page.text
    assert client.get("/models/two/v1/page").json()["run"]["title"] == "two"
    assert client.post("/models/two/v1/sentence", json={"text": TEXT}).json()["text"] == TEXT
    assert client.get("/models/two/docs").url.path == "/docs"
    assert client.get("/models/five/").status_code == 404
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    assert "model" in schemas["GenerateRequest"]["properties"]
