"""`engine=ctranslate2` and `auto`: the same hypotheses, or a line that says why not."""

import re
import shutil
import threading
from string import ascii_lowercase

import pytest
from safetensors.torch import load_file, save_file
from starlette.testclient import TestClient

import seqattn
from seqattn.analysis.intervene import intervene, uniform
from seqattn.errors import UserError
from seqattn.extras.exchange import engine
from seqattn.extras.exchange.engine import CTranslate2
from seqattn.generation.constraints import Constraints
from seqattn.subcommands.provenance import Provenance
from seqattn.subcommands.tuning import AllFinished
from seqattn.tokens import EOS, UNK
from tests.absent import of_extra
from tests.cli.small import listing, pairs, refusal, run, succeed

pytest.importorskip("ctranslate2")
SENTENCES = [source for source, _ in pairs()]
TEXTS = [" ".join(SENTENCES[n : n + 1 + n % 4]).replace(" .", "") for n in range(0, 60, 3)]
NGRAM = "seqattn.generation.processors.NoRepeatNgram"
BEAM = {"generation": "beam", "beam_size": 4, "n_best": 3}
SEARCHES = {
    "greedy": {"generation": "greedy"},
    "greedy, short": {"generation": "greedy", "limit": {"ratio": 0.3, "extra": 1}},
    "greedy, long": {"generation": "greedy", "limit": {"minimum": 9}},
    "beam": BEAM,
    "beam, short": {**BEAM, "limit": {"ratio": 0.3, "extra": 1}},
    "beam, length penalty": {**BEAM, "length_penalty": 0.4},
}
FORCED = "seqattn.generation.processors.ForcedPrefix"
REFUSED = {
    "forced first tokens": {"processors": {"begin": {"_target_": FORCED, "ids": [5]}}},
    "Sampling": {"generation": "sampling"},
    "NoRepeatNgram": {"processors": {"bigrams": {"_target_": NGRAM, "size": 2}}},
    "generation.early_stopping=false": {"early_stopping": False},
    "generation.coverage_penalty": {"coverage_penalty": 0.1},
    "generation.limit.minimum with a beam": {"limit": {"minimum": 3}},
}


@pytest.mark.parametrize("settings", SEARCHES.values(), ids=SEARCHES)
def test_hypotheses_equal_those_of_pytorch(bundle, settings):
    plain = seqattn.load(bundle)
    attached = CTranslate2().attach(plain)
    results = zip(*(one.hypotheses(TEXTS, **settings) for one in (attached, plain)), strict=True)
    for outputs, expected in results:
        assert [one.ids for one in outputs] == [one.ids for one in expected]
        for one, other in zip(outputs, expected, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-3)


@pytest.mark.parametrize("settings", SEARCHES.values(), ids=SEARCHES)
def test_outputs_with_first_tokens_equal_those_of_pytorch(bundle, settings):
    plain = seqattn.load(bundle)
    attached = CTranslate2().attach(plain)
    words = [" ".join(target.split()[: n % 4]) for n, (_, target) in enumerate(pairs())]
    ids = [row[:-1] for row in plain.tokenizer.encode_target(words[: len(TEXTS)])]
    own, sources = [Constraints(tuple(row)) for row in ids], [one for [one] in plain.encode(TEXTS)]
    outputs, expected = (
        one.generator(**settings).generate(sources, constraints=own) for one in (attached, plain)
    )
    for several, others in zip(outputs, expected, strict=True):
        assert [one.ids for one in several] == [one.ids for one in others]
        for one, other in zip(several, others, strict=True):
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-3)


def test_the_word_that_ends_a_prefix_is_not_continued(bundle):
    """CTranslate2 cannot forbid it; PyTorch searches where it occurs."""
    plain = seqattn.load(bundle)
    attached = CTranslate2().attach(plain)
    rows = zip(ascii_lowercase, plain.tokenizer.encode_target([*ascii_lowercase]), strict=True)
    letters = [letter for letter, ids in rows if UNK not in ids]
    texts, prefixes = TEXTS[: len(letters)], [f"{one} " for one in letters]
    outputs, expected = (
        one.generate(texts, "greedy", prefix=prefixes) for one in (attached, plain)
    )
    assert outputs == expected
    assert not any(text[1:2].isalpha() for text in outputs)
    free = [Constraints(tuple(row[:-1])) for row in plain.tokenizer.encode_target([*letters])]
    sources = [one for [one] in plain.encode(texts)]
    continued = attached.generator("greedy").generate(sources, constraints=free)
    texts = plain.tokenizer.decode_target([best.ids for [best] in continued])
    assert any(text[1:2].isalpha() for text in texts)


def test_prefixes_that_end_within_a_word_are_left_to_pytorch(bundle, capsys):
    plain, prefix = seqattn.load(bundle), "the ca"
    line = "engine=ctranslate2 does not support prefixes that end within a word; use engine=auto"
    with pytest.raises(UserError, match=line):
        CTranslate2().attach(plain).generate(TEXTS[:3], prefix=prefix)
    attached = CTranslate2(required=False).attach(plain)
    assert attached.generate(TEXTS[:3], prefix=prefix) == plain.generate(TEXTS[:3], prefix=prefix)
    assert "(CTranslate2 does not support prefixes that end within a" in capsys.readouterr().err


def test_outputs_that_still_grow_at_the_limit_of_their_source_are_found(bundle):
    """Beside a longer source, whose limit is higher, with ends that are likely at each step."""
    file = bundle / "model.safetensors"
    weights = load_file(file)
    end = weights["source_embedding.table.weight"][EOS]
    weights["decoder.norm.bias"] += 3 * end / end.norm()
    save_file(weights, file)
    test_hypotheses_equal_those_of_pytorch(bundle, {**BEAM, "limit": {"ratio": 0.2, "extra": 0}})


def test_greedy_search_never_generates_padding(trained, tmp_path):
    """The bundle of a few steps gives padding some probability."""
    shutil.copytree(trained / "model", tmp_path / "model")
    plain = seqattn.load(tmp_path / "model")
    both = [one.hypotheses(TEXTS, "greedy") for one in (CTranslate2().attach(plain), plain)]
    outputs, expected = ([best for (best,) in several] for several in both)
    assert [one.ids for one in outputs] == [one.ids for one in expected]
    scores = [one.score for one in expected]
    assert [one.score for one in outputs] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("reason", REFUSED)
def test_other_searches_are_refused_or_left_to_pytorch(bundle, reason, capsys):
    plain, settings = seqattn.load(bundle), {"generation": "beam", **REFUSED[reason]}
    with pytest.raises(UserError, match=re.escape(f"does not support {reason}; use engine=auto")):
        CTranslate2().attach(plain).hypotheses(TEXTS[:3], **settings)
    attached = CTranslate2(required=False).attach(plain)
    assert attached.hypotheses(TEXTS[:3], **settings) == plain.hypotheses(TEXTS[:3], **settings)
    assert capsys.readouterr().err == f"engine: PyTorch (CTranslate2 does not support {reason})\n"


def test_a_subclass_of_a_search_is_left_to_pytorch(bundle, capsys):
    """Tuning and the report read more than the best hypotheses."""
    plain = seqattn.load(bundle)
    attached = CTranslate2(required=False).attach(plain)
    for _ in range(2):
        outputs = attached.hypotheses(TEXTS[:2], AllFinished(beam_size=3))
        assert outputs == plain.hypotheses(TEXTS[:2], AllFinished(beam_size=3))
    line = "engine: PyTorch (CTranslate2 does not support AllFinished)\n"
    assert capsys.readouterr().err == line  # once


def test_interventions_are_left_to_pytorch(bundle, capsys):
    attached = CTranslate2(required=False).attach(seqattn.load(bundle))
    with intervene(attached.model, weights=[("decoder*cross*", uniform)]):
        attached.generate(TEXTS[:2], "greedy", sentences=None)
    assert (
        capsys.readouterr().err == "engine: PyTorch (CTranslate2 does not support interventions)\n"
    )


def test_a_bundle_is_exported_once_and_again_after_a_change(bundle, capfd):
    words = ("generate", f"bundle={bundle}", f"text={TEXTS[1]}", "sentences=none")
    expected = succeed(capfd, *words)
    told = []
    for _ in range(2):
        code, out, err = run(capfd, *words, "engine=ctranslate2")
        assert (code, out) == (0, expected)
        told.append(err)
    assert told[0] == told[1]
    assert re.fullmatch(r"engine: CTranslate2 [\d.]+ \(float32\)\n", told[0])
    export = bundle.with_name("model.ctranslate2")
    written = (export / "model.bin").stat().st_mtime_ns
    file = bundle / "model.safetensors"
    weights = load_file(file)
    weights["decoder.norm.bias"] += 1
    save_file(weights, file)
    assert run(capfd, *words, "engine=ctranslate2")[1] == succeed(capfd, *words)
    assert (export / "model.bin").stat().st_mtime_ns != written
    assert sorted(one.name for one in bundle.parent.iterdir()) == ["model", "model.ctranslate2"]


def test_what_stands_at_the_place_of_the_cache_and_is_not_one_stays(bundle, tmp_path, capfd):
    words = ("generate", f"bundle={bundle}", f"text={TEXTS[1]}", "generation=greedy")
    place = tmp_path / "model.ctranslate2"
    writers = {
        "a folder": lambda: (place.mkdir(), (place / "precious.txt").write_text("mine")),
        "a file": lambda: place.write_text("mine"),
        "an export": lambda: succeed(capfd, "export", f"bundle={bundle}", f"output={place}"),
        "a link to a file": lambda: place.symlink_to(bundle / "config.yaml"),
    }
    for name, write in writers.items():
        write()
        before = listing(tmp_path)
        line = f"{place.resolve()} is not a cache of engine=ctranslate2; move or remove it, or use"
        assert refusal(capfd, *words, "engine=ctranslate2").startswith(line), name
        assert "is not a cache" in run(capfd, *words, "engine=auto").err
        assert listing(tmp_path) == before
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    succeed(capfd, *words, "engine=ctranslate2")
    (place / "notes").write_text("mine")
    line = f"{place}/notes is not part of a cache of engine=ctranslate2; move it"
    assert refusal(capfd, *words, "engine=ctranslate2") == line


@pytest.mark.parametrize("file", ["model.bin", "shared_vocabulary.json"])
def test_a_damaged_cache_is_written_again(bundle, file, capfd):
    words = ("generate", f"bundle={bundle}", f"text={TEXTS[1]}", "engine=ctranslate2")
    expected = succeed(capfd, *words)
    damaged = bundle.with_name("model.ctranslate2") / file
    content = damaged.read_bytes()
    for wrong in (b"", content[:100], content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]):
        damaged.write_bytes(wrong)
        assert succeed(capfd, *words) == expected
        assert damaged.read_bytes() == content
    damaged.unlink()
    assert succeed(capfd, *words) == expected


def test_an_interrupted_export_leaves_a_cache_and_a_new_one_has_only_its_files(
    bundle, capfd, monkeypatch
):
    words = ("generate", f"bundle={bundle}", f"text={TEXTS[1]}", "engine=ctranslate2")
    expected = succeed(capfd, *words)
    place, write = bundle.with_name("model.ctranslate2"), engine.write_ctranslate2
    record = Provenance.read(place)
    (place / "older").write_text("of an older version")
    record.contents["cache"].append("older 21 of an older bundle")
    record.write(place)
    before = listing(place)

    def interrupted(*given):
        write(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "write_ctranslate2", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine._exported(seqattn.load(bundle))
    assert listing(place) == before
    monkeypatch.setattr(engine, "write_ctranslate2", write)
    assert succeed(capfd, *words) == expected
    assert listing(place).keys() == before.keys() - {place / "older"}


def test_an_export_waits_for_that_of_another_process(bundle):
    loaded, place = seqattn.load(bundle), bundle.with_name("model.ctranslate2")
    waiting = threading.Thread(target=engine._exported, args=[loaded], daemon=True)
    with engine._locked(place):
        waiting.start()
        waiting.join(0.3)
        assert not place.exists()
    waiting.join(60)
    assert (place / "model.bin").is_file()


def test_evaluation_gives_the_same_outputs(bundle, corpus, capfd, tmp_path):
    for name in ("torch", "auto"):
        words = (f"bundle={bundle}", f"output={tmp_path / name}", f"engine={name}")
        succeed(capfd, "evaluate", *words, f"data.root={corpus}")
    texts = [(tmp_path / name / "hypotheses.txt").read_text() for name in ("torch", "auto")]
    assert texts[0] == texts[1]


def test_bundles_without_an_export_are_refused_or_left_to_pytorch(bundle, answering, capfd):
    words = ("generate", f"bundle={bundle}", f"text={TEXTS[0]}", f"ensemble=[{bundle}]")
    assert refusal(capfd, *words, "engine=ctranslate2") == "CTranslate2 does not support ensembles"
    assert run(capfd, *words, "engine=auto")[1] == succeed(capfd, *words)
    words = ("generate", f"bundle={answering}/model", "question=Who?", "context=A dog runs.")
    assert "outputs spans" in refusal(capfd, *words, "engine=ctranslate2")
    assert run(capfd, *words, "engine=auto")[1] == succeed(capfd, *words)


def test_a_server_answers_by_the_engine_and_refuses_what_needs_pytorch(bundle, capsys):
    plain, limits = seqattn.load(bundle), of_extra("serve.limits").Limits()
    make_app, service = of_extra("serve.app").make_app, of_extra("serve.service").Service
    clients = {
        name: TestClient(make_app(service(one, limits)), base_url="http://localhost")
        for name, one in (
            ("torch", plain),
            ("ctranslate2", CTranslate2().attach(plain)),
            ("auto", CTranslate2(required=False).attach(plain)),
        )
    }
    texts = {"inputs": TEXTS[:4]}
    expected, *others = (one.post("/v1/generate", json=texts).json() for one in clients.values())
    for other in others:
        for result, best in zip(other["results"], expected["results"], strict=True):
            assert result["outputs"][0]["text"] == best["outputs"][0]["text"]
            assert result["outputs"][0]["score"] == pytest.approx(best["outputs"][0]["score"])
    needing = {"attention weights": {"return": ["attention"]}, "streams": {"stream": True}}
    for needs, body in needing.items():
        body = {"inputs": TEXTS[0], **body}
        assert clients["auto"].post("/v1/generate", json=body).status_code == 200
        answer = clients["ctranslate2"].post("/v1/generate", json=body).text
        assert f"engine=ctranslate2 does not support {needs}; use engine=auto" in answer
