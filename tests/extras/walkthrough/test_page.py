"""The page in a real browser: its numbers are those of the bundle, for a sentence that is typed."""

import re

import pytest
import torch

import seqattn
from seqattn.analysis.capture import capture
from seqattn.analysis.intervene import intervene
from seqattn.generation.base import inference
from seqattn.tokens import BOS, EOS, PAD
from tests.browser import browser  # noqa: F401

pytestmark = pytest.mark.slow
TEXT = "Perhaps Felix, who zips Ωmega, washes seven green hats."  # of no file
TEXTS = (
    TEXT,
    "my aunt cannot hide the 3 potatoes",
    "Zoë's cake ▁ is ▅ very-very good!",
    "Three kings, whom she admired, were dancing.",
    "x",
)
MINUS = "\N{MINUS SIGN}"
NAMES = "return Array.from(document.querySelectorAll(arguments[0]), (one) => one.textContent)"
NUMBERS = """const found = {};
const select = () => document.querySelector('select[data-focus="query"]');
const maps = document.querySelectorAll(`.walk-map[data-focus^="${arguments[0]} "]`);
for (const focus of Array.from(maps, (one) => one.dataset.focus)) {
  document.querySelector(`[data-focus="${focus}"]`).click();
  found[focus] = Array.from({ length: Math.ceil(select().length / 7) }, (_, n) => {
    select().value = 7 * n;
    select().dispatchEvent(new Event("change"));
    const lines = [...document.querySelectorAll(".walk-math .walk-line[data-key]")];
    return lines.map((line) => Array.from(line.querySelectorAll(
      ".walk-product, .walk-score, .walk-weight"), (cell) => cell.textContent));
  });
}
return found;"""
"""Products, scores and weights of every seventh query, for each head of a slot."""


@pytest.fixture
def opened(browser, home):  # noqa: F811
    """The page at its first example; afterwards nothing may have gone wrong."""
    browser.prefer("light")
    browser.resize(1200)
    browser.open(home / "page.html")
    browser.wait("return document.getElementById('walk')?.dataset.shown !== undefined")
    yield browser
    assert browser.errors() == []
    assert browser.requests() == [(home / "page.html").as_uri()]


def type_in(browser, text):  # noqa: F811
    script = """const field = document.getElementById("walk-text");
    field.value = arguments[0];
    field.dispatchEvent(new Event("input", { bubbles: true }));"""
    browser.run(script, text)


def shown(browser, name):  # noqa: F811
    return browser.run("return document.getElementById(arguments[0]).textContent", f"walk-{name}")


def true_weights(bundle, text):
    """The captured weights of a text and its greedy output, (H, T, S) by "slot layer"."""
    [[best]] = bundle.hypotheses([text], "greedy")
    source = torch.tensor(bundle.tokenizer.encode_source([text]))
    with inference(bundle.model), capture(bundle.model) as maps:
        state = bundle.model.start(bundle.model.encode(source), cached=False)
        bundle.model.features(torch.tensor([[BOS, *best.ids]]), state)
    names = {"encoder": "encoder.layers.{}.self", "decoder": "decoder.layers.{}.self"}
    names["cross"] = "decoder.layers.{}.cross"
    return {
        f"{slot} {layer}": maps[f"{name.format(layer)}_attention"][0][0]
        for slot, name in names.items()
        for layer in range(2)
    }


def test_numbers_read_off_the_page_are_those_of_capture(opened, home):
    type_in(opened, TEXT)
    bundle = seqattn.load(home / "bundle")
    true, read = true_weights(bundle, TEXT), {}
    for slot in ("encoder", "decoder", "cross"):
        read |= opened.run(NUMBERS, slot)
    assert {key.rpartition(" ")[0] for key in read} == {*true}
    for key, queries in read.items():
        place, _, head = key.rpartition(" ")
        assert len(queries) > 1
        for n, lines in enumerate(queries):
            visible = [line for line in lines if "hidden" not in line[2]]
            product, score, weight = (
                torch.tensor([float(line[n].replace(MINUS, "-")) for line in visible])
                for n in range(3)
            )
            expected = true[place][int(head), 7 * n]
            assert weight.tolist() == pytest.approx(expected[: len(weight)].tolist(), abs=1e-3)
            assert expected[len(weight) :].eq(0).all()
            width = bundle.model.encoder.layers[0].self_attention.head_dim if "enc" in key else 6
            assert score.tolist() == pytest.approx((product * width**-0.5).tolist(), abs=0.02)
            assert weight.tolist() == pytest.approx(score.softmax(dim=0).tolist(), abs=0.02)
    spread = torch.cat([weights.amax(dim=-1).flatten() for weights in true.values()])
    assert spread.max() > 0.6  # weights that say something
    assert any("hidden" in line[2] for lines in read["decoder 0 0"] for line in lines)


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_and_greedy_output_are_the_bundles(opened, home, text):
    assert opened.run("return document.title").startswith(f"{home.name}: a translation")
    type_in(opened, text)
    bundle = seqattn.load(home / "bundle")
    [ids] = bundle.tokenizer.encode_source([text])
    pieces = [piece.lstrip("▁") for piece in bundle.tokenizer.source_pieces(ids, text)[:-1]]
    read = opened.run(NAMES, "#walk-encoder .walk-name")
    assert [name.lstrip("-␣") for name in read] == [
        re.sub("^[-␣]+", "", piece.translate({0x10FFFC: "\U0010fffc"}))
        for piece in (*pieces, "end")
    ]
    assert shown(opened, "output") == bundle.generate(text, "greedy").strip()


def test_words_that_training_lacks_are_named_at_once(opened):
    type_in(opened, TEXT)
    assert "knows 6 of 9 words" in shown(opened, "known")
    assert "Never seen in training: zips, Ωmega, seven." in shown(opened, "known")
    type_in(opened, "")
    assert shown(opened, "known") == "Type a sentence."
    type_in(opened, "Maria")
    assert "knows 1 of 1 word, " in shown(opened, "known")


def test_several_sentences_are_noticed_if_single_ones_were_learned(opened):
    hint = "It learned single sentences: type one at a time."
    assert hint not in shown(opened, "known")
    type_in(opened, "The man sleeps. Maria buys two books.")
    assert hint in shown(opened, "known")


def test_a_sentence_that_begins_or_ends_unlike_the_examples_is_noticed(opened):
    whole = shown(opened, "known")
    assert "begin with a capital" not in whole
    for other in ("the man sleeps.", "The man sleeps"):
        type_in(opened, other)
        assert "begin with a capital and end with a mark" in shown(opened, "known")
    type_in(opened, "The man sleeps.")
    assert "begin with a capital" not in shown(opened, "known")


@pytest.mark.parametrize(
    ("text", "said"),
    [(" ", "Type a sentence."), ("qqqq " * 30, "Too long: it reads at most 58 tokens.")],
)
def test_without_a_sentence_to_read_the_parts_fade_and_nothing_is_said(opened, text, said):
    opacity = "return getComputedStyle(document.querySelector('#walk section')).opacity"
    assert opened.run(opacity) == "1"
    type_in(opened, text)
    opened.click('[data-focus="cross 0 1"]')
    opened.click('[data-focus="silence"]')  # nothing is said of a change either
    assert float(opened.run(opacity)) < 0.5
    assert (shown(opened, "output"), shown(opened, "known")) == ("…", said)
    assert shown(opened, "changes") == ""


def test_a_silenced_head_is_silenced_as_by_intervene(opened, home):
    bundle = seqattn.load(home / "bundle")
    outputs = {bundle.generate(TEXT, "greedy")}
    type_in(opened, TEXT)
    for layer in range(2):
        opened.click(f'[data-focus="cross {layer} 1"]')
        opened.click('[data-focus="silence"]')
        name, gates = "decoder.layers.{}.cross_attention", [1.0, 0.0, 1.0, 1.0]
        with intervene(bundle.model, gates={name.format(n): gates for n in range(layer + 1)}):
            outputs.add(bundle.generate(TEXT, "greedy"))
            assert shown(opened, "output") == bundle.generate(TEXT, "greedy").strip()
    assert len(outputs) > 1
    opened.click("#walk-reset")
    assert shown(opened, "output") == bundle.generate(TEXT, "greedy").strip()


def test_a_temperature_divides_log_probabilities_and_a_candidate_can_be_forced(opened, home):
    bundle = seqattn.load(home / "bundle")
    source = torch.tensor(bundle.tokenizer.encode_source([TEXT]))
    with inference(bundle.model):
        state = bundle.model.start(bundle.model.encode(source))
        logs = bundle.model.log_probabilities(torch.tensor([[BOS]]), state)[0][0, 0]
    logs = logs.clone().index_fill(0, torch.tensor(PAD), -torch.inf)
    type_in(opened, TEXT)
    opened.click('[data-focus="first step"]')
    script = """const field = document.getElementById("walk-temperature");
    field.value = 2;
    field.dispatchEvent(new Event("input"));"""
    opened.run(script)
    read = [float(one) for one in opened.run(NAMES, ".walk-candidate .walk-figure")[:5]]
    assert read == pytest.approx((logs / 2).softmax(dim=0).topk(5).values.tolist(), abs=1e-3)
    opened.click("#walk-reset")
    second = int(logs.topk(2).indices[1])
    opened.click(f'[data-focus="candidate {second}"]')
    name = bundle.tokenizer.target_vocabulary()[second] if second != EOS else "end"
    [first, *_] = opened.run(NAMES, '[data-focus^="said"] .walk-name')
    assert first.lstrip("-") == name.lstrip("▁")


def test_tokens_and_steps_are_reached_by_keys(opened):
    opened.run("""document.querySelector('[data-focus="source 0"]').focus()""")
    opened.press("ArrowDown", "ArrowDown")
    pressed = (
        "return document.querySelector('[aria-pressed=true][data-focus^=\"%s\"]').dataset.focus"
    )
    assert opened.run(pressed % "source") == "source 2"
    assert opened.run("return document.activeElement.dataset.focus") == "source 2"
    opened.run("""document.querySelector('[data-focus="next step"]').focus()""")
    before = int(opened.run(pressed % "said").split()[1])
    opened.press("Enter")
    assert opened.run(pressed % "said") == f"said {before + 1}"
    opened.run("""document.querySelector('[data-focus="play"]').focus()""")
    opened.press("Enter")
    opened.wait(
        f"return document.querySelector('[data-focus=\"said {before + 2}\"][aria-pressed=true]')"
    )
    opened.run("document.querySelector('.walk-open').focus()")
    opened.press("Enter")
    assert opened.run("return document.querySelectorAll('.walk-products').length") == 1


@pytest.mark.parametrize("slot", ["encoder", "decoder", "cross"])
def test_the_parts_of_a_sum_add_up(opened, slot):
    opened.run(f"document.querySelector('[data-focus=\"slot {slot}\"]').click()")
    opened.run("document.querySelector('[data-focus=\"open sum\"]').click()")
    script = """return Array.from(document.querySelectorAll(".walk-table tr"), (row) =>
      Array.from(row.querySelectorAll("td:not(.walk-total)"), (cell) => cell.textContent));"""
    table = [[float(one.replace(MINUS, "-")) for one in row] for row in opened.run(script)]
    *parts, total = torch.tensor(table)
    assert len(parts) > 2
    assert torch.stack(parts).sum(dim=0).tolist() == pytest.approx(total.tolist(), abs=0.1)


@pytest.mark.parametrize("width", [400, 900, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_width_scrolls_sideways_and_dark_is_dark(opened, width, scheme):
    opened.prefer(scheme)
    opened.resize(width)
    type_in(opened, TEXT)
    assert opened.run("return document.documentElement.scrollWidth") <= width
    paper = opened.run("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
