"""A report holds what its bundles say, and the true arrays."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import seqattn
from seqattn.analysis import capture
from seqattn.analysis.word_alignment import words_of
from seqattn.errors import UserError
from seqattn.extras.explain.explanations import Explanation, explain
from seqattn.extras.explain.lens import lens
from seqattn.extras.report.contributions import source_measure, source_use
from seqattn.generation import GreedySearch, LengthLimit
from seqattn.tokens import BOS, EOS
from tests.extras.report.samples import (
    NASTY,
    SOURCES,
    Pairs,
    documents,
    of_questions,
    report,
    unpacked,
)

HALF = 0.5 / 65_535 * 1.001


def passed(bundle, text):
    """The best output of a bundle as ids, and the ids that the model reads for it."""
    search = {"generation": "beam", "beam_size": 3}
    best = bundle.hypotheses([text], limit=LengthLimit(extra=3), **search)[0][0]
    source = torch.tensor([bundle.encode([text])[0][0]])
    return source, torch.tensor([[*best.ids, EOS]])


@pytest.mark.parametrize("number", [0, 1, 2])
def test_weights_of_every_layer_and_head_are_those_that_capture_sees(homes, shown, number):
    bundle = seqattn.load(homes / "mha" / "model")
    source, target = passed(bundle, SOURCES[number])
    with torch.no_grad(), capture(bundle.model) as maps:
        bundle.model(source, torch.cat((torch.tensor([[BOS]]), target[:, :-1]), dim=1))
    look = shown[1][number]["looks"][0]
    assert {one["name"] for one in look["attentions"]} == set(maps)
    for one in look["attentions"]:
        true = maps[one["name"]][0][0].numpy()
        assert np.abs(unpacked(one["weights"]) - true).max() <= HALF
        assert len(look["source"]) == source.shape[1]
        assert len(look["target"]) == target.shape[1]


def test_contributions_are_those_that_explain_gives(homes, shown):
    bundle = seqattn.load(homes / "mha" / "model")
    source, target = passed(bundle, SOURCES[0])
    found = shown[1][0]["looks"][0]["explanations"]
    assert found
    begun = torch.cat((torch.tensor([[2]]), target[:, :-1]), dim=1)
    second = bundle.model(source, begun).topk(2, dim=2).indices
    others = torch.where(second[..., 0] == target, second[..., 1], second[..., 0])
    for one in found:
        what = (one["method"],)
        if one["instead"] is not None:
            assert one["instead"] == bundle.tokenizer.target_pieces(others[0].tolist())
            what = ("occlusion", others)
        true = explain(bundle.model, source, target, *what)
        for name in ("source", "prefix", "rest"):
            expected = getattr(true, name)[0].detach().numpy()
            off = np.abs(unpacked(one[name]) - expected).max()
            assert off <= one[name]["step"] * 0.51 + 1e-6, (one["method"], name)


def test_the_lens_is_that_of_the_model(homes, shown):
    bundle = seqattn.load(homes / "mha" / "model")
    source, target = passed(bundle, SOURCES[0])
    true, found = lens(bundle.model, source, target), shown[1][0]["looks"][0]["lens"]
    probability = unpacked(found["probability"])
    assert np.abs(probability - true.probability[0].numpy()).max() < 1e-4
    assert found["rank"] == true.rank[0].tolist()
    assert found["likeliest"][1] == bundle.tokenizer.target_pieces(true.likeliest[0, 1].tolist())


def test_a_bundle_says_what_it_says_elsewhere_with_its_score(homes, shown):
    run, sentences = shown
    bundle = seqattn.load(homes / "mha" / "model")
    said = bundle.generate(SOURCES, "beam", beam_size=3, limit=LengthLimit(extra=3))
    assert [one["looks"][0]["output"] for one in sentences] == said
    assert [row["scores"] for row in run["sentences"]] == [
        [look["score"] for look in one["looks"]] for one in sentences
    ]
    best = sentences[0]["looks"][0]["hypotheses"]
    assert best[0]["text"] == said[0]
    assert [one["score"] for one in best] == sorted((one["score"] for one in best), reverse=True)


def test_bundles_of_different_vocabularies_show_their_own_pieces(shown):
    run, sentences = shown
    assert [bundle["name"] for bundle in run["bundles"]] == ["mha", "other"]
    first, second = sentences[2]["looks"]
    assert first["source"] != second["source"]
    texts = ["".join(look["source"][:-1]).replace("▁", " ").strip() for look in (first, second)]
    assert texts == [SOURCES[2], SOURCES[2]]


def test_a_mechanism_without_weights_and_a_method_that_cannot_be_had_give_reasons(shown):
    look = shown[1][0]["looks"][1]
    own = [one for one in look["attentions"] if one["slot"] == "encoder"]
    assert [one["weights"] for one in own] == [None]
    assert "no weights over keys" in own[0]["reason"]
    assert all(one["weights"] for one in look["attentions"] if one not in own)
    refused = [one for one in look["explanations"] if one["source"] is None]
    assert refused
    assert all(one["reason"] and one["prefix"] is None for one in refused)


def test_an_empty_source_has_an_empty_output_and_nothing_to_look_at(shown):
    look = shown[1][SOURCES.index("")]["looks"][0]
    assert (look["output"], look["attentions"], look["source_use"]) == ("", [], None)


def test_what_would_end_a_script_is_text(page, shown):
    assert shown[1][1]["text"] == NASTY
    head = page.read_text(encoding="utf-8").split('id="run">')[1].split("</script>")[0]
    assert "\\u003c/script>" in head
    assert "<" not in head


def test_long_sides_are_cut_and_said_to_be(homes):
    path = report(homes / "mha" / "model", homes / "cut.html", tokens=4, sentences=1).run()
    look = documents(path)[1][0]["looks"][0]
    assert all(max(one["weights"]["shape"][1:]) <= 4 for one in look["attentions"])
    assert look["notes"] == ["attention maps show the first 4 tokens of each side"]
    assert len(look["source"]) > 4


def test_a_judged_output_has_its_expected_score_and_marked_pieces(judged):
    run, sentences = documents(judged)
    for summary, sentence in zip(run["sentences"], sentences, strict=True):
        look = sentence["looks"][0]
        quality = look["quality"]
        assert summary["expected"] == [quality and quality["expected"]]
        if quality is None:  # of an empty text
            assert look["output"] == ""
            continue
        assert quality["label"] == "review"  # too much is left out
        for side, name in (("target", "unsupported"), ("source", "left_out")):
            words = words_of(look[side])
            told = [any(letter.isalnum() for letter in word) for word, _ in words]
            places = [p for is_told, (_, own) in zip(told, words) if is_told for p in own]
            assert quality[name] == places
    assert sentences[-1]["looks"][0]["quality"] is None


def test_a_recurrent_bundle_and_a_search_without_a_tree(homes):
    search = GreedySearch(LengthLimit(extra=3))
    settings = {"generation": search, "sentences": 1, "methods": ["attention"]}
    path = report(homes / "rnn" / "model", homes / "rnn.html", **settings).run()
    run, [sentence] = documents(path)
    look = sentence["looks"][0]
    assert look["beam"] == []
    assert [one["slot"] for one in look["attentions"]] == ["cross"]
    assert look["attentions"][0]["weights"]["shape"][1:] == [
        len(look["target"]),
        len(look["source"]),
    ]
    assert run["title"] == "rnn"


def test_answers_lie_where_the_probabilities_of_their_tokens_say(answering):
    path = report(answering, answering.parent / "spans.html", **of_questions()).run()
    run, sentences = documents(path)
    assert (run["score"], run["source_use"], len(sentences)) == ("F1", "", 3)
    bundle = seqattn.load(answering)
    for sentence in sentences:
        look = sentence["looks"][0]
        tokens, context = look["tokens"], sentence["context"]
        true = bundle.answer(sentence["text"], context, answers=5, max_answer=3)[0]
        assert [one["text"] for one in look["answers"]] == [one.text for one in true.answers]
        assert sum(tokens["start"]) == pytest.approx(1 - look["no_answer"], abs=1e-4)
        assert sum(tokens["end"]) == pytest.approx(1 - look["no_answer"], abs=1e-4)
        for place, within in enumerate(tokens["within"]):
            before = sum(tokens["start"][: place + 1]) - sum(tokens["end"][:place])
            assert within == pytest.approx(before, abs=1e-4)
        shape = look["attentions"][0]["weights"]["shape"]
        assert shape[1:] == [len(look["context"]), len(look["question"])]


def test_source_use_is_measured_alike_for_all_by_a_method_that_sees_the_output_so_far(homes, shown):
    """The second bundle's encoder has no weights, which the best method needs."""
    models = {name: seqattn.load(homes / name / "model").model for name in ("mha", "other", "rnn")}
    assert source_measure([models["mha"]]) == "alti"
    assert source_measure([models["mha"], models["other"]]) == "input_x_gradient"
    assert source_measure([models["rnn"]]) == "input_x_gradient"
    run, sentences = shown
    assert run["source_use"] == "input_x_gradient"
    for row, sentence in zip(run["sentences"], sentences, strict=True):
        for use, look in zip(row["source_use"], sentence["looks"], strict=True):
            assert use is None if not look["explanations"] else 0 < use < 1


def test_source_use_is_the_sources_share_of_a_token_the_mean_over_the_output():
    source = torch.tensor([[[0.5, -0.25], [0.1, 0.0]]])
    prefix = torch.tensor([[[0.25, 0.0], [-0.2, 0.1]]])
    found = Explanation(source, prefix, torch.zeros(1, 2))
    assert source_use(found) == pytest.approx((0.75 + 0.25) / 2)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"output": "report.txt"}, "output must be a file such as report.html, got report.txt"),
        ({"methods": ["alto"]}, "unknown method alto; did you mean alti?"),
        ({"bundles": ["nowhere"]}, "bundle nowhere does not exist"),
        ({"data": Pairs(0)}, "the val split has no rows to show"),
        (
            {"generation": SimpleNamespace(output="spans", check_scorer=lambda _: None)},
            "this bundle outputs text; use generation=greedy|beam",
        ),
    ],
)
def test_what_cannot_be_reported_is_refused_before_work(homes, tmp_path, settings, text):
    output = settings.pop("output", tmp_path / "r.html")
    with pytest.raises(UserError) as refused:
        report(homes / "mha" / "model", output, **settings).run()
    assert str(refused.value).startswith(text)
    assert not (tmp_path / "r.html").exists()


def test_bundles_of_texts_and_of_spans_are_not_compared(homes, answering, tmp_path):
    others = [str(answering)]
    with pytest.raises(UserError, match="bundles must have the same type of output"):
        report(homes / "mha" / "model", tmp_path / "r.html", bundles=others).run()
