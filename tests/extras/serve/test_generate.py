"""`/v1/generate`: what a bundle gives in Python, and why a request gets nothing."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import seqattn
from seqattn.analysis import capture, intervene
from seqattn.analysis.intervene import permuted, uniform, without_heads, without_keys
from seqattn.analysis.pairs import Pair, observed
from seqattn.extras.serve.limits import Limits
from seqattn.generation import GreedySearch, LengthLimit
from seqattn.generation.generator import Generator
from seqattn.generation.processors import ForcedPrefix, NoRepeatNgram
from seqattn.tokens import BOS, EOS
from tests.absent import of_extra
from tests.bundle.conftest import configuration, untrained
from tests.extras.report.samples import calibrated, unpacked
from tests.extras.serve.conftest import SMALL, TEXT, ask, client_of, outputs, refusal

CROSS = "decoder.layers.0.cross_attention"
OWN = "decoder.layers.0.self_attention"
TEXTS = [TEXT, "", "two birds", "the old house by the tree"]
SHORT = {"limit": {"ratio": 0, "extra": 6}}


def texts(found):
    return [result["outputs"][0]["text"] for result in found["results"]]


def test_outputs_are_those_of_the_bundle_with_their_scores(client, bundle):
    found = ask(client, inputs=TEXTS)
    assert texts(found) == bundle.generate(TEXTS)
    for result, (best, *_) in zip(found["results"], bundle.hypotheses(TEXTS)):
        output = result["outputs"][0]
        assert output["score"] == pytest.approx(best.score, abs=2e-5)
        assert output["log_probability"] == pytest.approx(best.log_probability, abs=2e-5)
    assert texts(ask(client, inputs=TEXT)) == texts(found)[:1]
    assert ask(client, inputs=[]) == {"results": []}


@pytest.mark.parametrize(
    ("asked", "settings"),
    [
        ("greedy", {"generation": "greedy"}),
        ({"beam_size": 2}, {"beam_size": 2}),
        ({"name": "greedy", "limit": {"extra": 2}}, None),
        ({"name": "sampling", "seed": 4}, {"generation": "sampling", "seed": 4}),
        ({"no_repeat_ngram": 1}, {"processors": [NoRepeatNgram(1)]}),
    ],
)  # fmt: skip
def test_settings_are_those_of_the_search(client, bundle, asked, settings):
    settings = settings or {"generation": GreedySearch(LengthLimit(extra=2))}
    assert texts(ask(client, inputs=TEXTS, generation=asked)) == bundle.generate(TEXTS, **settings)


def test_a_settings_of_the_bundles_own_limit_keeps_the_others(client):
    ids = outputs(client, inputs=TEXT, generation={"limit": {"ratio": 0}}, **{"return": ["tokens"]})
    assert len(ids[0]["tokens"]) == 10  # the bundle's own extra


@pytest.mark.parametrize("generation", ["beam", "sampling"])
def test_several_outputs_read_differently_and_the_best_stands_first(client, generation):
    found = outputs(client, inputs=TEXT, generation=generation, n_best=4)
    assert len({one["text"] for one in found}) == len(found) > 1
    scores = [one["score"] for one in found]
    assert scores == sorted(scores, reverse=True)
    if generation == "beam":
        assert found[:1] == outputs(client, inputs=TEXT)


@pytest.mark.parametrize("generation", ["greedy", "beam", {"name": "sampling", "seed": 3}])
def test_a_prefix_begins_every_output(client, bundle, generation):
    for prefix in ("the tree", "an old house"):
        found = outputs(client, inputs=TEXT, generation=generation, prefix=prefix)
        assert found[0]["text"].startswith(prefix)
    ids = bundle.tokenizer.encode_target(["the tree"])[0][:-1]
    search = bundle.search("greedy", processors=[ForcedPrefix(ids)])
    found = ask(client, inputs=TEXTS[:1] * 2, generation="greedy", prefix=["the tree", ""])
    assert texts(found) == [bundle.generate(TEXT, search), bundle.generate(TEXT, "greedy")]


def test_tokens_are_the_pieces_of_both_sides(client, bundle):
    result = ask(client, inputs=TEXT, **{"return": ["tokens"]})["results"][0]
    source, (best, *_) = bundle.encode(TEXT)[0][0], bundle.hypotheses(TEXT)[0]
    assert result["tokens"] == bundle.tokenizer.source_pieces(source)
    assert result["outputs"][0]["tokens"] == bundle.tokenizer.target_pieces(best.ids)
    assert "score" not in result["outputs"][0]


def captured(bundle, weights=None, gates=None, ids=None):
    """The weights of a full pass over the text and its output."""
    ids = bundle.hypotheses(TEXT)[0][0].ids if ids is None else ids
    source = torch.tensor(bundle.encode(TEXT)[0])
    with torch.no_grad(), intervene(bundle.model, weights, gates), capture(bundle.model) as maps:
        bundle.model(source, torch.tensor([[BOS, *ids]]))
    return {name: calls[0][0] for name, calls in maps.items()}


def test_attention_is_that_of_a_full_pass_over_the_output(client, bundle):
    expected = captured(bundle)
    found = outputs(client, inputs=TEXT, **{"return": ["attention"]})[0]["attention"]
    assert found["without"] == []
    assert found["maps"].keys() == expected.keys()
    keys = {"return": ["attention"], "attention_as": "uint16"}
    packed = outputs(client, inputs=TEXT, **keys)[0]["attention"]["maps"]
    for name, weights in expected.items():
        assert torch.allclose(torch.tensor(found["maps"][name]), weights, atol=1e-5)
        assert packed[name].keys() == {"shape", "low", "step", "data"}
        assert np.allclose(unpacked(packed[name]), weights, atol=1e-5)


def test_an_output_as_long_as_the_positions_is_looked_into(tmp_path_factory, tokenizer):
    config = configuration(position="learned")
    config["position"] = {**config["position"], "max_length": 8}
    search = config["generation"]
    config["generation"] = {**search, "limit": {**search["limit"], "minimum": 8}}
    home = untrained(tmp_path_factory.mktemp("short") / "model", tokenizer, config)
    with client_of(seqattn.load(home)) as client:
        found = outputs(client, inputs="a dog", **{"return": ["alignment", "tokens"]})[0]
        assert len(found["tokens"]) == 8
        assert found["alignment"]["output"] == found["text"].split()
        ask(client, "/v1/explain", text="a dog", method="attention")


MARKED = [
    "<p>a <b>dog</b> sees</p>\n<ul><li>the <i>cat</i></ul>",
    TEXT,
    "",
    "<br>",
    "<b>犬</b>が a",
]


@pytest.mark.parametrize("kind", ["html", "placeholders"])
def test_markup_is_put_back_as_in_python(client, bundle, kind):
    texts = MARKED if kind == "html" else [f"{TEXT} {{name}}", TEXT, ""]
    expected = bundle.generate(texts, markup=kind)
    found = ask(client, inputs=texts, format=kind)
    assert [result["outputs"][0]["text"] for result in found["results"]] == expected
    lost = [result["outputs"][0].get("lost") for result in found["results"]]
    assert lost in ([None] * len(texts), [["{name}"], None, None])
    several = outputs(client, inputs=texts[0], format=kind, n_best=2)
    assert several[0]["text"] == expected[0]
    assert len(several) <= 2


def test_quality_is_that_of_the_extra_and_needs_a_calibration(client, tmp_path, tokenizer):
    made = of_extra("quality.quality").Quality()
    home = untrained(tmp_path / "model", tokenizer, configuration())
    line = refusal(client, inputs=TEXT, **{"return": ["quality"]})
    assert "quality=true needs a calibration; first run" in line
    calibrated(home)
    loaded = seqattn.load(home)
    with client_of(loaded) as other:
        found = outputs(other, inputs=[TEXT, ""], n_best=2, **{"return": ["quality"]})
        hypotheses = loaded.hypotheses(TEXT, n_best=2)[0]
        for one, hypothesis in zip(found, hypotheses, strict=True):
            ids = loaded.encode(TEXT)[0][0], loaded.with_end_mark(hypothesis.ids)
            expected, told = made.of(loaded).judge_ids(*ids).document(), one["quality"]
            assert told["expected"] == pytest.approx(expected["expected"], abs=0.02)
            assert told["signals"] == pytest.approx(expected["signals"], abs=2e-4)
            for name in ("label", "unsupported", "left_out"):
                assert told[name] == json.loads(json.dumps(expected[name]))
            assert told["left_out"]
        looked = ask(other, "/v1/sentence", text=TEXT)["looks"][0]
        assert looked["quality"]["label"] == found[0]["quality"]["label"]


def test_a_text_has_the_quality_of_its_worst_line_and_the_marks_of_all(tmp_path, tokenizer):
    of_extra("quality.quality")
    calibrated(untrained(tmp_path / "model", tokenizer, configuration()))
    texts = "two birds", f"{TEXT} by the tree", "an old house"
    text = "{}\n 42\n{}\n\n{}".format(*texts)
    with client_of(seqattn.load(tmp_path / "model")) as client:
        keys = {"n_best": 2, "return": ["quality"]}
        found = outputs(client, inputs=text, **keys)
        each = [outputs(client, inputs=line, **keys) for line in texts]
        last = outputs(client, inputs=f"42\n\n{TEXT}", **keys)[0]
        alone = outputs(client, inputs=TEXT, **keys)[0]["quality"]
    for rank, one in enumerate(found):
        lines = [some[rank]["quality"] for some in each]
        assert len({line["expected"] for line in lines}) == 3
        worst = min(lines, key=lambda line: (line["label"] != "unusable", line["expected"]))
        quality = one["quality"]
        for name in ("expected", "label", "signals"):
            assert quality[name] == worst[name]
        for name, side in (("left_out", text), ("unsupported", one["text"])):
            words = [word for line in lines for _, word in line[name]]
            assert [word for _, word in quality[name]] == words
            assert [side.split()[place] for place, _ in quality[name]] == words
    assert found[0]["quality"]["left_out"]
    assert last["quality"]["left_out"] == [[place + 1, word] for place, word in alone["left_out"]]


def test_an_alignment_names_the_source_word_of_each_word(client):
    found = outputs(client, inputs=TEXT, **{"return": ["alignment"]})[0]
    aligned = found["alignment"]
    assert aligned["source"] == TEXT.split()
    assert aligned["output"] == found["text"].split()
    assert len(aligned["links"]) == len(aligned["output"])
    assert set(aligned["links"]) <= set(range(5))
    empty = outputs(client, inputs="", **{"return": ["alignment", "attention", "scores"]})
    assert empty == [{"text": "", "score": 0.0, "log_probability": 0.0}]


@pytest.mark.parametrize(
    ("asked", "weights", "gates"),
    [
        ({"gates": {OWN: [0, 1, 0, -2]}}, None, {OWN: [0, 1, 0, -2]}),
        ({"uniform": ["*"]}, {"*": uniform}, None),
        ({"permuted": [CROSS], "seed": 5}, {CROSS: permuted(5)}, None),
        ({"without_heads": {"decoder.*": [1, 3]}}, {"decoder.*": without_heads(1, 3)}, None),
        ({"without_keys": {CROSS: [0, 2]}}, {CROSS: without_keys(0, 2)}, None),
    ],
)
def test_an_intervention_is_that_of_the_library(client, bundle, asked, weights, gates):
    keys = {"generation": "greedy", "intervene": asked, "return": ["scores", "attention"]}
    found = outputs(client, inputs=TEXT, **keys)[0]
    if "permuted" in asked:  # which draws anew
        weights = {CROSS: permuted(5)}
    with intervene(bundle.model, weights, gates):
        best = bundle.hypotheses(TEXT, "greedy", workers=1)[0][0]
    assert found["score"] == pytest.approx(best.score, abs=2e-5)
    assert found["score"] != outputs(client, inputs=TEXT, generation="greedy")[0]["score"]
    if "permuted" not in asked:
        expected = captured(bundle, weights, gates, best.ids)
        shown = torch.tensor(found["attention"]["maps"][CROSS])
        assert torch.allclose(shown, expected[CROSS], atol=1e-5)


def edited(step, key, weight, head):
    """An edit of a full pass, in words of its own."""

    def edit(weights, visible):
        result = weights.clone()
        for h in range(weights.shape[1]) if head is None else [head]:
            row = result[0, h, step]
            rest = row.sum() - row[key]
            row *= (1 - weight) / rest
            row[key] = weight
        return result

    return edit


@pytest.mark.parametrize(
    ("name", "generation"),
    [
        (CROSS, "greedy"),
        (CROSS, {"beam_size": 3}),
        (OWN, "greedy"),
        ("encoder.layers.0.self_attention", {"beam_size": 3}),
    ],
)
@pytest.mark.parametrize("head", [None, 2])
def test_a_weight_that_is_set_acts_at_its_step_in_searches_and_passes(
    client, bundle, name, head, generation
):
    one = {"attention": name, "head": head, "step": 2, "key": 1, "weight": 0.75}
    keys = {"generation": generation, "intervene": {"weights": [one]}}
    keys["return"] = ["scores", "attention", "tokens"]
    found = outputs(client, inputs=TEXT, **keys)[0]
    shown = torch.tensor(found["attention"]["maps"][name])
    rows = shown[:, 2, 1] if head is None else shown[head, 2, 1]
    assert torch.allclose(rows, torch.tensor(0.75), atol=1e-5)
    # the score of the search is that of a full pass under the same edit
    pieces = bundle.tokenizer.target_pieces(range(bundle.tokenizer.target_size))
    ids = [pieces.index(piece) for piece in found["tokens"]]
    source = torch.tensor(bundle.encode(TEXT)[0])
    with torch.no_grad(), intervene(bundle.model, {name: edited(2, 1, 0.75, head)}):
        logits = bundle.model(source, torch.tensor([[BOS, *ids]]))[0]
    said = [*ids, EOS]
    totals = logits.log_softmax(dim=1)[range(len(said)), said].cumsum(0)
    reached = [totals[-1].item(), totals[-2].item()]  # ended, or cut at its limit
    assert min(abs(found["log_probability"] - total) for total in reached) < 1e-4


def test_a_weight_of_a_recurrent_decoder_is_set_too(recurrent):
    name = "decoder.cross_attention"
    with client_of(recurrent) as client:
        names = outputs(client, inputs=TEXT, **{"return": ["attention"]})[0]["attention"]["maps"]
        (name,) = [name for name in names if name.startswith("decoder")]
        one = {"attention": name, "step": 1, "key": 0, "weight": 1}
        keys = {"intervene": {"weights": [one]}, "return": ["attention"]}
        shown = torch.tensor(outputs(client, inputs=TEXT, **keys)[0]["attention"]["maps"][name])
    assert shown[0, 1, 0] == 1
    assert (shown[0, [0, 2], 0] < 1).all()


@pytest.mark.parametrize(
    ("intervention", "line"),
    [
        ({"gates": {"x": [1]}}, "unknown attention x; choose from"),
        ({"gates": {OWN: [1, 1e38, 1, 1]}}, f"intervene.gates.{OWN}.1 should be less than or equ"),
        ({"gates": {OWN: [1]}}, f"{OWN} has 4 heads, got gates for 1"),
        ({"without_heads": {OWN: [4]}}, "heads must be between 0 and 3, got [4]"),
        ({"weights": [[CROSS, None, 50, 0]]}, f"intervene.weights: step 50 of {CROSS} was not re"),
        ({"weights": [[OWN, None, 1, 3]]}, f"beams share the keys of {OWN}; use generation=greedy"),
        ({"without_keys": {"dec*": [0]}}, f"beams share the keys of {OWN}; use generation=greedy"),
        ({"weights": [["dec*", None, 1, 3]]}, "unknown attention dec*; choose from encoder."),
        (
            {"weights": [[CROSS, 4, 1, 0]]},
            f"intervene.weights of {CROSS}: head must be from 0 to 3",
        ),
        ({"weights": [[CROSS, None, 1, 99]]}, f"intervene.weights of {CROSS}: key must be from 0"),
        ({"weights": [[CROSS, None, 1, 0, 2]]}, "intervene.weights.0.weight should be less than"),
        ({"gate": {}}, "unknown key intervene.gate"),
    ],
)
def test_an_intervention_that_cannot_be_is_refused_in_words(client, intervention, line):
    if "weights" in intervention:
        names = ("attention", "head", "step", "key", "weight")
        rows = [dict(zip(names, [*row, 0.5][:5])) for row in intervention["weights"]]
        intervention = {"weights": rows}
    assert refusal(client, inputs=TEXT, intervene=intervention).startswith(line)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({}, "inputs Field required"),
        ({"inputs": 3}, "inputs should be a valid string or should be a valid list"),
        ({"inputs": [3]}, "inputs.0 should be a valid string"),
        ({"inputs": TEXT, "input": TEXT}, "unknown key input"),
        ({"input": TEXT}, "unknown key input; did you mean inputs?"),
        ({"inputs": TEXT, "generation": "gredy"}, "unknown choice generation=gredy; did you"),
        ({"inputs": TEXT, "generation": "spans"}, "this bundle needs a generation setting "),
        ({"inputs": TEXT, "generation": {"beam_sise": 2}},
         "unknown key generation.beam_sise; did you mean generation.beam_size?"),
        ({"inputs": TEXT, "generation": {"Seed": 2}},
         "unknown key generation.Seed; did you mean generation.seed?"),
        ({"inputs": TEXT, "generation": {"limit": {"ekstra": 2}}},
         "unknown key generation.limit.ekstra; did you mean generation.limit.extra?"),
        ({"inputs": TEXT, "returns": ["tokens"]}, "unknown key returns; did you mean return?"),
        ({"inputs": TEXT, "n_best": 0, "input": TEXT}, "n_best should be greater than or equa"),
        ({"inputs": TEXT, "stream": True, "generation": "mbr"}, "generation=mbr does not support"),
        ({"inputs": TEXT, "generation": {"_target_": "os.abort"}}, "unknown key generation._t"),
        ({"inputs": TEXT, "generation": {"beam_size": 0}}, "generation.beam_size should be greate"),
        ({"inputs": TEXT, "generation": {"name": "greedy", "seed": 1}}, "unknown key generati"),
        ({"inputs": TEXT, "generation": {"name": "sampling", "top_p": 2}}, "generation.top_p sho"),
        ({"inputs": TEXT, "generation": "greedy", "n_best": 2}, "this search returns one "),
        ({"inputs": TEXT, "n_best": 9}, "n_best must be from 1 to generation.beam_size (5), got"),
        ({"inputs": TEXT, "prefix": ["a", "the"]}, "prefix must be one text, or one for each of 1"),
        ({"inputs": TEXT, "prefix": "☃"}, "prefix '☃' of input 1 contains text"),
        ({"inputs": TEXT, "format": "xml"}, "format should be 'text', 'html' or 'placeholders'"),
        ({"inputs": TEXT, "format": "html", "prefix": "a"}, "format=html does not support prefix"),
        ({"inputs": "<b>" * 200, "format": "html"}, "tags nest more than 100 deep; simplify the"),
        ({"inputs": TEXT, "return": ["all"]}, "return.0 should be 'scores', 'tokens', 'alignment'"),
        ({"inputs": TEXT, "generation": {"limit": {"extra": 0, "ratio": 0}}, "prefix": "the tree"},
         "prefix has "),
        ({"inputs": TEXT, "stream": True, "n_best": 2, "generation": "sampling"}, "stream supp"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_is_refused_in_words(client, keys, line):
    assert refusal(client, **keys).startswith(line)


@pytest.mark.parametrize(
    ("body", "status", "line"),
    [
        (b'{"inputs": "a', 400, "the body is not valid JSON: Unterminated string"),
        (b"\xff", 400, "There was an error parsing the body"),
        (b'{"inputs": "\\ud800"}', 422, "text 1 is not valid Unicode: unpaired"),
        (
            b'{"inputs": "a", "generation": "\\ud800"}',
            422,
            "generation contains an unpaired surrogate",
        ),
        (b"3", 422, "the body must be a JSON object, sent with Content-Type: application/json"),
        (b"[" * 100_000, 400, "There was an error parsing the body"),
    ],
)
def test_a_body_that_is_none_is_refused_in_words(client, body, status, line):
    sent = {"content": body, "headers": {"Content-Type": "application/json"}}
    response = client.post("/v1/generate", **sent)
    assert response.status_code == status, response.text
    assert response.json()["error"].startswith(line)


@pytest.mark.parametrize("path", ["generate", "answer", "sentence", "explain"])
@pytest.mark.parametrize("body", [None, b"", b"null", b"[]", b'"x"'])
@pytest.mark.parametrize("kind", ["application/json", "text/plain", None])
def test_a_request_without_an_object_is_told_what_its_body_must_be(client, path, body, kind):
    headers = {} if kind is None else {"Content-Type": kind}
    response = client.post(f"/v1/{path}", content=body, headers=headers)
    line = "the body must be a JSON object, sent with Content-Type: application/json"
    assert (response.status_code, response.json()) == (422, {"error": line})


def test_too_much_at_once_is_refused_in_words(bundle):
    with client_of(bundle, SMALL) as client:
        many = refusal(client, status=413, inputs=[TEXT] * 9)
        assert many == "a request may have at most 8 inputs, got 9; split it"
        long = refusal(client, status=413, inputs=[TEXT * 5] * 4)
        assert long.startswith("a request may have at most 60 tokens, got ")
        response = client.post("/v1/generate", content=b" " * 4_001)
        assert (response.status_code, response.json()["error"]) == (
            413, "a request body may have at most 4,000 bytes; split it",
        )  # fmt: skip
        chunks = client.post("/v1/generate", content=iter([b" " * 3_000] * 2))
        assert chunks.status_code == 413


def test_a_model_that_reads_no_more_says_of_which_input(bundle, monkeypatch):
    monkeypatch.setattr(bundle.model, "max_source_length", 12, raising=False)
    with client_of(bundle) as client:
        line = refusal(client, inputs=["a", "the tree " * 9])
    assert line.startswith("input 2 has ")
    assert line.endswith(", but this model reads at most 12; shorten it")


def test_a_text_in_windows_says_so_and_takes_no_intervention(bundle):
    options = {
        **bundle.config["loader"],
        "long_sources": "window",
        "max_source_length": 5,
        "window_stride": 3,
    }
    windowed = replace(bundle, config={**bundle.config, "loader": options})
    with client_of(windowed) as client:
        found = ask(client, inputs=TEXT, generation=SHORT)["results"][0]
        assert found["windows"] == len(windowed.encode(TEXT)[0]) > 1
        assert found["outputs"][0]["text"] == windowed.generate(
            TEXT, limit=LengthLimit(0.0, 6), workers=1
        )
        line = refusal(client, inputs=TEXT, intervene={"uniform": ["*"]})
    assert line == "intervene supports only texts that fit in one window; shorten them"


def test_what_is_shown_of_a_text_in_windows_is_of_the_one_of_which_the_output_was_made(bundle):
    options = {**bundle.config["loader"], "long_sources": "window", "max_source_length": 5}
    windowed = replace(bundle, config={**bundle.config, "loader": options})
    search = windowed.search("greedy", limit=LengthLimit(0.0, 6), workers=1)
    words = TEXT.split()
    texts = [" ".join(words[n:] + words[:n]) for n in range(len(words))]
    text = next(text for text in texts if windowed.best(text, search).window)
    best, window = windowed.best(text, search)
    windows = windowed.encode(text)[0]
    assert best == Generator(bundle.model, search).generate(windows)[window][0]
    with client_of(windowed) as client:
        asked = {"inputs": text, "generation": {"name": "greedy", **SHORT}}
        output = outputs(client, **asked, **{"return": ["attention", "tokens"]})[0]
        assert output["source_tokens"] == bundle.tokenizer.source_pieces(windows[window])
        maps = observed(bundle.model, Pair(windows[window], bundle.with_end_mark(best.ids)))
        for name, weights in output["attention"]["maps"].items():
            torch.testing.assert_close(torch.tensor(weights), maps[name][0][0], atol=1e-5, rtol=0)
        for text in texts:
            own = windowed.encode(text)[0][windowed.best(text, workers=1).window]
            told = client.post("/v1/explain", json={"text": text, "method": "attention"}).json()
            assert told["source_tokens"] == bundle.tokenizer.source_pieces(own)


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("/v1/generate", {"return": ["attention"]}),
        ("/v1/generate", {"return": ["alignment"]}),
        ("/v1/generate", {"intervene": {"uniform": ["*"]}}),
        ("/v1/sentence", {}),
        ("/v1/explain", {"method": "attention"}),
    ],
)
def test_attention_of_a_long_text_or_output_is_refused(bundle, path, keys):
    size = len(bundle.encode([TEXT])[0][0])
    name = "inputs" if path == "/v1/generate" else "text"
    for most, what, longer in (
        (size - 1, "text has", False),
        (size, "text and its output have", True),
    ):
        if longer and "intervene" in keys:
            continue  # whose output may be as long as the search lets it
        with client_of(bundle, Limits(shown_tokens=most)) as client:
            line = refusal(client, path, **{name: TEXT}, **keys)
            assert line.startswith(f"attention is limited to {most} tokens, but the {what}")
            assert ask(client, inputs=TEXT)


def test_a_stream_says_that_an_output_is_too_long_to_be_shown(bundle):
    size = len(bundle.encode([TEXT])[0][0])
    with client_of(bundle, Limits(shown_tokens=size)) as client:
        response = client.post("/v1/sentence", json={"text": TEXT, "stream": True})
    assert "event: error" in response.text
    assert "the text and its output have" in response.text
