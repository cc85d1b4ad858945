"""`seqattn explain` on a small bundle: its tables, its file, and one sentence."""

import json

import pytest
import torch

import seqattn
from seqattn.analysis.intervene import intervene, uniform
from seqattn.analysis.word_alignment import align
from seqattn.data.base import Texts
from seqattn.errors import UserError
from seqattn.extras.explain.explain import Explaining
from seqattn.extras.explain.explanations import METHODS, explain
from seqattn.extras.explain.method_scores import ExplainedBundle
from seqattn.subcommands.run_tables import run_tables
from tests.cli.fork import run_forked
from tests.cli.small import pairs, refusal, succeed

GOLD = list(pairs())[3::12]
"""The pairs of the test split: words of both sides one by one."""


@pytest.fixture(scope="module")
def gold(tmp_path_factory):
    path = tmp_path_factory.mktemp("gold") / "test.align"
    lines = (" ".join(f"{n}-{n}" for n in range(len(source.split()))) for source, _ in GOLD)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_no_explanations_replace_others():
    one, two = {"bundle": "a/model"}, {"bundles": ["a/model", "b/model"]}
    outputs, text = {"targets": "outputs"}, {"text": "a dog"}
    places = [
        str(Explaining(data=None, generation=None, **keys).directory)
        for keys in (one, one | {"split": "test"}, one | outputs, one | text, two, two | text)
    ]
    names = ["val", "test", "val-outputs", "text", "val-bundles", "text-bundles"]
    assert places == [f"a/explanations/{name}" for name in names]


@pytest.fixture(scope="module")
def explained(trained, gold, tmp_path_factory):
    """What the subcommand says and writes of the test split."""
    output = tmp_path_factory.mktemp("explained") / "out"
    words = ["split=test", f"data.alignments={gold}", f"output={output}", "replaced=[uniform]"]
    words += [f"bundle={trained}/model", "methods=[attention]"]
    ended = run_forked("explain", words, output.parent)
    assert ended.code == 0, ended.err
    return ended.out, output


def test_the_table_is_in_its_json_and_the_curves_in_a_picture(explained, trained):
    out, output = explained
    assert {file.name for file in output.iterdir()} == {"explanations.json", "removal.png"}
    written = json.loads((output / "explanations.json").read_text())
    (found,) = written["bundles"].values()
    assert (written["split"], written["targets"], found["sentences"]) == ("test", "references", 5)
    assert found["bundle"] == f"{trained}/model"
    assert list(found["methods"]) == ["attention", "random"]
    for name, row in found["methods"].items():
        (line,) = [line for line in out.splitlines() if f"│ {name} " in line]
        shown = [f"{row['alignment_error_rate']:.1f}", f"{row['comprehensiveness']:.3f}"]
        shown += [f"{row['sufficiency']:.3f}", f"{row['correlation']:.3f}"]
        assert [cell.strip() for cell in line.split("│")[2:6]] == shown
        assert row["aligned_sentences"] == 5
        curve = sum(row["removed"]) / len(written["percents"])
        assert row["comprehensiveness"] == pytest.approx(found["probability"] - curve)
    assert "seconds_per_sentence" not in found["methods"]["random"]


def test_the_report_has_the_rows_that_are_printed(explained, trained):
    out, output = explained
    tables = {table["title"]: table for table in run_tables(trained)}
    written = json.loads((output / "explanations.json").read_text())
    (found,) = written["bundles"].values()
    methods = tables["Explanations: test"]
    assert [row[0] for row in methods["rows"]] == list(found["methods"])
    for name, *values in methods["rows"]:
        row = found["methods"][name]
        assert values[:2] == [
            pytest.approx(row["alignment_error_rate"], abs=0.05),
            pytest.approx(row["comprehensiveness"], abs=5e-4),
        ]
    assert methods["rows"][1][5] is None
    replaced = tables["Scores on test with replaced attention weights"]
    parts = {name: values for name, *values in replaced["rows"]}
    assert parts["cross"][0] == round(found["replaced"]["uniform"]["cross"]["log-probability"], 2)
    for table in (methods, replaced):
        for name, *values in table["rows"]:
            (line,) = [line for line in out.splitlines() if f"│ {name} " in line]
            shown = [cell.strip() for cell in line.split("│")[2:-1]]
            assert [None if cell == "-" else float(cell) for cell in shown] == values


def test_alignment_error_is_that_of_the_words_that_the_method_links(explained, trained):
    bundle, right, total = seqattn.load(f"{trained}/model"), 0, 0
    for source, target in GOLD:
        ids = bundle.encode([source])[0], bundle.tokenizer.encode_target([target])
        weights = explain(bundle.model, *map(torch.tensor, ids), "attention").source[0]
        tokenizer = bundle.tokenizer
        pieces = tokenizer.source_pieces(ids[0][0]), tokenizer.target_pieces(ids[1][0])
        links = align(weights, *pieces).links
        right += 2 * sum(i == j for j, i in enumerate(links))
        total += len(links) + len(source.split())
    (found,) = json.loads((explained[1] / "explanations.json").read_text())["bundles"].values()
    rate = found["methods"]["attention"]["alignment_error_rate"]
    assert rate == pytest.approx(100 * (1 - right / total))


def test_scores_as_trained_are_those_of_evaluate_and_under_uniform_attention_those_within_it(
    explained, scored, trained
):
    (found,) = json.loads((explained[1] / "explanations.json").read_text())["bundles"].values()
    evaluated = json.loads((scored / "scores.json").read_text())["scores"]
    replaced = found["replaced"]
    for name in ("BLEU", "chrF"):
        assert replaced["as_trained"][name] == pytest.approx(evaluated[name]["value"])
    assert set(replaced["uniform"]) == {"all", "encoder", "decoder", "cross"}
    bundle, said = seqattn.load(f"{trained}/model"), []
    with torch.no_grad(), intervene(bundle.model, {"decoder.*.cross_attention": uniform}):
        for source, target in GOLD:
            ids = bundle.tokenizer.encode_target([target])[0]
            read = torch.tensor([[2, *ids[:-1]]])
            logits = bundle.model(torch.tensor(bundle.encode([source])[0]), read)[0]
            said.append(logits.log_softmax(dim=1)[range(len(ids)), ids])
    mean = float(torch.cat(said).mean())
    assert replaced["uniform"]["cross"]["log-probability"] == pytest.approx(mean, abs=1e-5)
    assert "│ cross " in explained[0]


def test_several_bundles_and_own_outputs_have_a_row_each_and_no_alignment_error(
    capfd, trained, gold, tmp_path
):
    other = tmp_path / "other" / "model"
    other.parent.mkdir()
    other.symlink_to(trained / "model")
    words = [f"bundles=[{trained}/model,{other}]", "split=test", "sentences=2", "targets=outputs"]
    words += [f"data.alignments={gold}", "methods=[attention]", "replaced=[]"]
    out = succeed(capfd, "explain", *words, f"output={tmp_path}/out")
    written = json.loads((tmp_path / "out" / "explanations.json").read_text())
    assert len(written["bundles"]) == 2
    one, two = ({**found, "bundle": ""} for found in written["bundles"].values())
    for found in (one, two):
        assert found["sentences"] == 2
        assert "alignment_error_rate" not in found["methods"]["attention"]
        del found["methods"]["attention"]["seconds_per_sentence"]
    assert one == two
    assert all(f"{name}  attention" in out for name in written["bundles"])
    assert not (other.parent / "tables").exists()  # it is no run's directory


def test_sentences_with_an_empty_side_or_too_long_a_one_are_left_out(trained, monkeypatch):
    bundle = seqattn.load(f"{trained}/model")
    sources, targets = ["a dog", "", "a man", "a cat sees"], ["ein Hund", "x", "", "eine Katze"]
    texts = Texts(sources, targets, [[target] for target in targets], None)
    explained = ExplainedBundle("it", bundle, bundle.search("greedy"), texts)
    assert explained.sample().rows == [0, 3]
    longest = len(bundle.encode(["a dog"])[0][0])
    monkeypatch.setattr(bundle.model, "max_source_length", longest)
    assert explained.sample().rows == [0]
    monkeypatch.setattr(bundle.model, "max_source_length", 1)
    with pytest.raises(UserError, match="it cannot explain any sentence"):
        explained.sample()


def test_one_sentence_is_read_by_every_method(capfd, trained, tmp_path):
    words = ["text=a dog sees a ball .", "target=ein Hund", f"output={tmp_path}/out"]
    out = succeed(capfd, "explain", f"bundle={trained}/model", *words)
    assert "output:  ein Hund" in out
    (found,) = json.loads((tmp_path / "out" / "explanations.json").read_text())["bundles"].values()
    assert set(found["methods"]) <= set(METHODS)
    slow = ["flow", "integrated_gradients"]
    assert f"skipped, because they take seconds per sentence: {', '.join(slow)}; to include" in out
    for name, one in found["methods"].items():
        assert f"\n{name} ({METHODS[name].cites})\n" in out
        assert len(one["source"]) == len(one["rest"]) == len(found["output"])
        assert len(one["source"][0]) == len(found["source"])
    assert set(METHODS) - set(found["methods"]) - set(slow) == {
        line.partition(" ")[0] for line in out.splitlines() if " is not available: " in line
    }


def test_one_sentence_is_explained_as_the_given_search_says_it(capfd, trained, tmp_path):
    bundle, text = seqattn.load(f"{trained}/model"), "a dog sees a ball ."
    words = [f"bundle={trained}/model", f"text={text}", "methods=[attention]"]
    for size in (2, 3):
        searched = ["generation=greedy", f"generation.limit={{extra:{size},ratio:0}}"]
        out = succeed(capfd, "explain", *words, *searched, f"output={tmp_path}/{size}")
        limit = {"extra": size, "ratio": 0}
        (found,) = bundle.hypotheses(text, "greedy", limit=limit)[0]
        said = bundle.generate(text, "greedy", limit=limit)
        assert f"output:  {said}\n" in out
        written = json.loads((tmp_path / f"{size}" / "explanations.json").read_text())
        (one,) = written["bundles"].values()
        assert one["output"] == bundle.tokenizer.target_pieces(bundle.with_end_mark(found.ids))


def test_alignments_that_do_not_fit_the_split_are_refused_with_their_line(
    capfd, trained, gold, tmp_path
):
    wrong = tmp_path / "wrong"
    wrong.write_text(gold.read_text().replace("0-0", "0-9", 1))
    words = [f"bundle={trained}/model", f"output={tmp_path}/out", f"data.alignments={wrong}"]
    assert refusal(capfd, "explain", *words, "split=test").startswith(
        f"{wrong}, line 1: 0-9 refers to word 9 of the target, which has "
    )
    assert "got 5 lines for 6 pairs" in refusal(capfd, "explain", *words, "split=val")
    assert not (tmp_path / "out").exists()
    outputs = ["split=test", "targets=outputs", "sentences=1", "methods=[attention]", "replaced=[]"]
    succeed(capfd, "explain", *words, *outputs)  # which have no links to be wrong


def test_a_bundle_is_named_once_and_a_target_needs_its_text(capfd, trained):
    told = refusal(capfd, "explain", f"bundles=[{trained}/model,{trained}/./model]")
    assert told == "bundles contains a bundle twice; list each bundle once"
    told = refusal(capfd, "explain", f"bundle={trained}/model", "target=ein Hund")
    assert told == "target requires text; add text=... or remove target"


def test_two_outputs_are_compared_where_they_first_differ(capfd, trained, tmp_path):
    words = [f"bundle={trained}/model", "text=a dog sees a ball .", "target=ein Hund"]
    out = succeed(capfd, "explain", *words, "instead=ein Ball", f"output={tmp_path}/out")
    assert "instead: ein Ball\n" in out
    assert " nats likelier than " in out
    (found,) = json.loads((tmp_path / "out" / "explanations.json").read_text())["bundles"].values()
    assert {*found["methods"]} == {
        "relevance", "attention_x_gradient", "input_x_gradient", "occlusion",
    }  # fmt: skip
    assert found["output"][-1] != found["instead"]
    for one in found["methods"].values():
        assert not any(map(any, one["source"][:-1]))
        assert any(one["source"][-1])
    told = refusal(capfd, "explain", *words, "instead=ein Hund")
    assert told == "instead=ein Hund has the tokens of the output; give another text"
    told = refusal(capfd, "explain", *words, "instead=ein Ball", "methods=[alti]")
    assert told.startswith("method=alti does not depend on the predicted token")


def test_a_bundle_that_answers_by_spans_is_refused(capfd, answering):
    told = refusal(capfd, "explain", f"bundle={answering}/model")
    assert told.startswith("explain needs a bundle that outputs text, ")
