"""The page in a real browser: what is drawn equals the arrays, and nothing else is asked for."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from seqattn.extras.explain.explanations import METHODS
from seqattn.extras.report import single_file
from seqattn.extras.report.arrays import packed
from seqattn.metrics.rouge import RougeScorer
from seqattn.metrics.text import TextScorer
from tests.browser import browser  # noqa: F401
from tests.extras.report.samples import NASTY, SOURCES, Asked, of_questions, report, unpacked

pytestmark = pytest.mark.slow
READY = "return document.documentElement.dataset.shown !== undefined"
FOCUSED = "return document.activeElement.dataset"


@pytest.fixture
def opened(browser, page):  # noqa: F811
    """The report on two bundles, at its first sentence; afterwards nothing may have gone wrong."""
    yield looked_at(browser, page)
    assert browser.errors() == []


def looked_at(browser, path):  # noqa: F811
    browser.open("about:blank")
    browser.resize(1000)
    browser.open(f"{path.as_uri()}#0")
    browser.wait(READY)
    return browser


def test_without_a_number_it_opens_a_sentence_of_the_best_quarter(browser, shown, tmp_path):  # noqa: F811
    run, sentences = json.loads(json.dumps(shown))
    for number, sentence in enumerate(run["sentences"]):
        sentence["scores"] = [10.0 * (number != 2), None]
    for run["sentences"][0]["scores"], number in (([1.0, 2.0], 1), ([10.0, 30.0], 0)):
        (tmp_path / "good.html").write_text(single_file.page(run, sentences))
        browser.open("about:blank")
        browser.open(tmp_path / "good.html")
        browser.wait(READY)
        assert browser.run("return document.documentElement.dataset.shown") == str(number)


def chosen(browser, **controls):  # noqa: F811
    """Sets controls of what to look at, by their names."""
    for name, value in controls.items():
        script = """const select = document.querySelector(`[data-control="${arguments[0]}"]`);
        select.value = arguments[1]; select.dispatchEvent(new Event("change"));"""
        browser.run(script, name, str(value))


def pixels(browser, selector):  # noqa: F811
    """Red, green and blue of a canvas of a pixel a cell, (rows, columns, 3)."""
    script = """const canvas = document.querySelector(arguments[0]);
    const { width, height } = canvas;
    const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
    return [width, height, Array.from(data)];"""
    width, height, data = browser.run(script, selector)
    return np.array(data).reshape(height, width, 4)[..., :3]


def weights(look, slot, layer=0):
    found = (one for one in look["attentions"] if (one["slot"], one["layer"]) == (slot, layer))
    return unpacked(next(found)["weights"])


def test_the_page_opens_without_an_error_and_asks_for_nothing_but_itself(opened, page):
    for name in ("run", "sentences"):
        opened.click(f"#tab-{name}")
    assert opened.requests() == [page.as_uri()]


@pytest.mark.parametrize("head", [0, 3, "mean"])
@pytest.mark.parametrize("slot", ["cross", "encoder", "decoder"])
def test_the_map_that_is_drawn_is_the_array(opened, shown, slot, head):
    chosen(opened, slot=slot, head=head)
    true = weights(shown[1][0]["looks"][0], slot)
    true = true.mean(axis=0) if head == "mean" else true[head]
    seen = pixels(opened, ".grid-map canvas")
    assert seen.shape[:2] == true.shape
    script = "return arguments[0].map((share) => $colors.heat(share))"
    expected = opened.run(script, (true / true.max()).flatten().tolist())
    assert np.abs(seen - np.array(expected).reshape(seen.shape)).max() <= 1
    assert (seen[true == true.max()] == [8, 48, 107]).all()


def test_every_layer_and_head_has_its_small_map_and_one_that_is_clicked_is_drawn_large(
    opened, shown
):
    look = shown[1][0]["looks"][0]
    count = "return document.querySelector('.small-maps').querySelectorAll('.head').length"
    assert opened.run(count) == len(weights(look, "cross"))
    small = pixels(opened, '[data-head="0 2"] canvas')
    opened.click('[data-head="0 2"]')
    assert (pixels(opened, ".grid-map canvas") == small).all()
    pressed = "return document.querySelector('[data-head=\"0 2\"]').getAttribute('aria-pressed')"
    assert opened.run(pressed) == "true"


def test_links_of_a_word_that_is_pointed_at_are_its_row(opened, shown):
    look = shown[1][0]["looks"][0]
    chosen(opened, slot="cross", head=1)
    opened.hover('[data-side="said"][data-place="1"]')
    true = weights(look, "cross")[1]
    script = """const panel = document.querySelector(".panel");
    return Array.from(panel.querySelectorAll(".link"), (link) =>
      [link.dataset.row, link.dataset.column, link.getAttribute("stroke-opacity")].map(Number));"""
    links = opened.run(script)
    row = true[1] / true.max()
    assert {column for _, column, _ in links} == set(np.flatnonzero(row > 0.005))
    for at, column, opacity in links:
        assert at == 1
        assert opacity == pytest.approx(row[column], abs=1e-3)


def test_a_word_of_the_source_is_pointed_at_in_both_bundles(opened, shown):
    chosen(opened, slot="cross", head="mean")
    opened.hover('[data-side="read"][data-place="0"]')
    script = """return Array.from(document.querySelectorAll("#sentence .panels .panel"), (panel) =>
      Array.from(panel.querySelectorAll(".token.pointed"), (token) => token.title).join(""));"""
    first, second = opened.run(script)
    whole = "".join(shown[1][0]["looks"][1]["source"]).split("▁")[1]
    assert first
    assert second == whole == SOURCES[0].split()[0]


def test_shares_of_source_and_output_add_up_and_are_the_explanations(opened, shown):
    run, sentences = shown
    look = sentences[0]["looks"][0]
    found = next(one for one in look["explanations"] if one["method"] == run["source_use"])
    parts = [np.abs(unpacked(found[name])) for name in ("source", "prefix", "rest")]
    parts = np.stack([parts[0].sum(axis=1), parts[1].sum(axis=1), parts[2]], axis=1)
    script = """const panel = document.querySelector(".panel");
    return Array.from(panel.querySelectorAll(".share-row"), (row) =>
      Array.from(row.querySelectorAll(".share"), (share) => Number(share.dataset.share)));"""
    drawn = np.array(opened.run(script))
    assert drawn == pytest.approx(parts / parts.sum(axis=1, keepdims=True), abs=2e-4)


def test_words_to_check_are_colored_and_said_in_words(browser, judged):  # noqa: F811
    looked_at(browser, judged)
    texts = """return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)"""
    assert browser.run(texts, ".quality .left-out")[:2] == ["a", "dog"]
    assert browser.run(texts, ".quality .aloud") == [" (left out) "]
    assert browser.run(texts, ".output .aloud") == [" (not supported by the source) "]
    assert "review" in browser.run(texts, ".quality .explained")[0]
    found = json.loads(json.dumps(browser.run(texts, "#sort option")))
    assert "expected score, lowest first" in found
    assert browser.errors() == []


def test_a_source_that_would_end_the_script_stays_text(opened):
    opened.click('[data-number="1"]')
    opened.wait("return document.documentElement.dataset.shown === '1'")
    assert opened.run("return document.querySelector('.sentence h2').textContent") == NASTY
    assert opened.run("return document.querySelectorAll('b b, h2 b').length") == 0


def test_the_list_is_filtered_sorted_and_walked_with_keys(opened, shown):
    texts = (
        "return Array.from(document.querySelectorAll('.sentences .text'), (one) => one.textContent)"
    )
    opened.click("#filter")
    opened.press("b", "r", "e", "a", "d")
    assert opened.run(texts) == [SOURCES[2]]
    opened.press(*["\ue003"] * 5)
    opened.press("Tab")
    assert opened.run(FOCUSED)["number"] == "0"
    opened.press("ArrowDown", "ArrowDown")
    opened.wait("return document.documentElement.dataset.shown === '2'")
    assert opened.run("return document.querySelector('.sentence h2').textContent") == SOURCES[2]
    script = "sort.value = 'score'; sort.dispatchEvent(new Event('change'))"
    opened.run(script)
    scores = [min(row["scores"]) for row in shown[0]["sentences"]]
    expected = [SOURCES[n] for n in sorted(range(len(scores)), key=lambda n: (scores[n], n))]
    assert opened.run(texts) == expected


def test_the_chosen_sentence_stands_in_sight_in_its_list(opened):
    opened.resize(400)
    opened.run("document.querySelector('.sentences').style.maxHeight = '5rem'")
    for number in (len(SOURCES) - 1, 0):
        opened.run(f"document.querySelector('li[data-number=\"{number}\"]').click()")
        opened.wait(f"return document.documentElement.dataset.shown === '{number}'")
        script = """const of = (name) => document.querySelector(name).getBoundingClientRect();
        const [item, list] = [of("[aria-selected=true][data-number]"), of(".sentences")];
        return item.top >= list.top - 1 && item.bottom <= list.bottom + 1;"""
        assert opened.run(script)
        assert opened.run("return window.scrollY") == 0


def test_words_and_the_map_are_walked_with_arrow_keys(opened, shown):
    look = shown[1][0]["looks"][0]
    chosen(opened, slot="cross", head=0)
    opened.run("document.querySelector('[data-side=\"read\"]').focus()")
    opened.press("ArrowDown", "ArrowRight")
    focused = opened.run(FOCUSED)
    assert (focused["side"], focused["place"]) == ("said", "1")
    opened.run("document.querySelector('.grid-map canvas').focus()")
    opened.press("ArrowDown", "ArrowRight", "ArrowRight")
    told = opened.run(
        "return document.querySelector('.grid-map').closest('.part').lastChild"
        ".querySelector('output').textContent"
    )
    value = weights(look, "cross")[0][1, 2]
    assert told.split(": ")[1] == opened.run("return $dom.rounded(arguments[0])", value)


def test_tabs_are_switched_with_arrow_keys(opened):
    opened.run("document.getElementById('tab-sentences').focus()")
    opened.press("ArrowRight")
    closed = "return document.getElementById(arguments[0]).classList.contains('closed')"
    assert opened.run(closed, "sentences-panel")
    assert not opened.run(closed, "run-panel")


def test_numbers_of_a_table_have_the_places_that_they_have_and_three_at_most(opened):
    script = """const table = $tables.tableOf({ title: "", columns: ["a"], rows: arguments[0] });
    return Array.from(table.querySelectorAll("td"), (cell) => cell.textContent);"""
    told = opened.run(script, [[83.11], [0.25], [7], [0.12345], [234.567], [0.00004]])
    assert told == ["83.11", "0.25", "7", "0.123", "234.6", "0.00004"]


def test_what_has_no_weights_says_so(opened):
    chosen(opened, slot="encoder")
    script = "return document.querySelectorAll('.panel')[1].querySelector('.reason').textContent"
    assert "no weights over keys" in opened.run(script)


def test_dark_and_light_follow_the_system_and_the_switch(opened):
    paper = "return getComputedStyle(document.body).backgroundColor"
    opened.prefer("dark")
    dark = opened.run(paper)
    opened.click("#theme")
    assert opened.run(paper) == "rgb(255, 255, 255)" != dark
    opened.prefer("light")


def test_a_dark_page_is_light_on_paper_and_dark_again_afterwards(opened):
    paper = "return getComputedStyle(document.body).backgroundColor"
    opened.prefer("dark")
    dark, white = opened.run(paper), "rgb(255, 255, 255)"
    opened.run("dispatchEvent(new Event('beforeprint'))")
    assert opened.run(paper) == white
    assert (pixels(opened, ".grid-map canvas") == [8, 48, 107]).all(axis=2).any()
    opened.run("dispatchEvent(new Event('afterprint'))")
    assert opened.run(paper) == dark != white
    opened.prefer("light")


@pytest.mark.parametrize("width", [400, 1000, 2000])
def test_no_width_scrolls_the_page_sideways(opened, width):
    opened.resize(width)
    for name in ("run", "sentences"):
        opened.click(f"#tab-{name}")
        wide = opened.run("return document.documentElement.scrollWidth")
        assert wide <= width


def test_a_chart_has_both_splits_or_all_layers_of_a_slot(opened):
    opened.click("#tab-run")
    script = """return Array.from(document.querySelectorAll(".charts figure"), (chart) => [
      chart.querySelector("figcaption").textContent,
      Array.from(chart.querySelectorAll(".curve-key"), (key) => key.textContent.split(", ")[1]),
      Array.from(chart.querySelectorAll("path, circle"), (mark) => mark.tagName)]);"""
    loss, bleu, heads = opened.run(script)
    assert loss == ["loss", ["train", "val"], ["path", "path"]]
    assert bleu == ["bleu", ["final val"], ["circle"]]
    slot = "decoder.cross_attention/uniform_heads"
    assert heads == [slot, ["layer 1", "layer 2"], ["path", "path"]]
    zero = opened.run("return document.querySelector('#run-view .charts').nextSibling.textContent")
    assert zero == "always 0, not drawn: encoder.self_attention/dead_heads"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_of_all_layers_and_bundles_contrast_with_the_page(opened, scheme):
    opened.prefer(scheme)
    script = """const canvas = document.createElement("canvas");
    const paint = canvas.getContext("2d", { willReadFrequently: true });
    const rgb = (color) => {
      paint.fillStyle = color;
      paint.fillRect(0, 0, 1, 1);
      return Array.from(paint.getImageData(0, 0, 1, 1).data.slice(0, 3));
    };
    const curve = $dom.drawn("path", { class: "curve" });
    document.querySelector(".charts svg").append(curve);
    const colors = [0, 1, 2, 3, 4, 5].flatMap((number) => [15, 60, 100].map((share) => {
      curve.setAttribute("style", `--color:var(--mark-${number});--share:${share}%`);
      return rgb(getComputedStyle(curve).stroke);
    }));
    curve.remove();
    return [rgb(getComputedStyle(document.body).backgroundColor), colors];"""
    paper, colors = opened.run(script)
    opened.prefer("light")
    assert len({tuple(color) for color in colors}) == len(colors)
    bright = [luminance(color) + 0.05 for color in (paper, *colors)]
    assert min(max(one, bright[0]) / min(one, bright[0]) for one in bright[1:]) >= 3


def luminance(color):
    """Relative luminance by WCAG 2."""
    share = np.array(color) / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_labels_are_large_enough_at_any_width_and_what_scrolls_sideways_says_so(opened):
    for width in (400, 1000):
        opened.resize(width)
        script = """return ["grid-map", "beam", "role", "figures", "note"].map((name) =>
          parseFloat(getComputedStyle(document.querySelector(`.${name}`)).fontSize));"""
        assert min(opened.run(script)) >= 11
    opened.resize(400)
    hint = "const box = document.querySelector('.scroll:has(.beam)'); return "
    opened.wait(f"{hint}!box.previousSibling.hidden && box.classList.contains('after')")
    opened.run(f"{hint}box.scrollLeft = 9999")
    opened.wait(f"{hint}box.classList.contains('before') && !box.classList.contains('after')")
    opened.resize(4000)
    opened.wait(f"{hint}box.previousSibling.hidden && box.className === 'scroll'")


def test_a_narrow_page_shows_one_bundle_at_a_time(opened, shown):
    visible = """return Array.from(document.querySelectorAll("#sentence .panels > .panel"),
      (panel) => panel.checkVisibility());"""
    assert opened.run(visible) == [True, True]
    opened.resize(400)
    assert opened.run(visible) == [True, False]
    opened.click(".front-choice button:last-child")
    assert opened.run(visible) == [False, True]
    told = opened.run("return document.querySelector('.front-choice').lastChild.textContent")
    assert told == f"other {shown[1][0]['looks'][1]['output'] or '(empty)'}"


def test_signs_methods_and_measurements_are_explained_in_words(opened):
    text = "return document.querySelector(arguments[0]).textContent"
    assert "‿ joins the pieces of a word" in opened.run(text, "#sentence > .legend")
    use = "const use = document.querySelector('.figures .explained'); return "
    opened.run(f"{use}use.focus()")
    told = opened.run(f"{use}[use === document.activeElement, use.title, use.ariaLabel]")
    about = opened.run(text, ".about-use")
    assert told[0]
    assert told[1] == about
    assert told[2].endswith(about)
    chosen(opened, show="rollout")
    assert "multiplied through all layers" in opened.run(text, ".panel .note:has(+ div .grid-map)")
    loss = opened.run("return document.querySelector('figcaption').nextSibling.textContent")
    assert loss == "what training minimizes, in nats; lower is better"


def test_a_word_names_the_one_that_it_is_compared_with_and_the_lens_its_rank(opened, shown):
    look = shown[1][0]["looks"][0]
    [contrast] = [one for one in look["explanations"] if one["method"] == "contrast"]
    chosen(opened, show="contrast")
    script = "return document.querySelector('.panel [data-side=said]').textContent"
    own, other = opened.run(script).split(", not ")
    assert own.strip("‿") == look["target"][0].strip("▁")
    assert other.strip("‿") == contrast["instead"][0].strip("▁")
    script = """const map = document.querySelector('.panel .lens canvas'); map.focus();
    map.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown'}));
    return [map.height, map.width, document.querySelector('.panel .lens .readout').textContent]"""
    rows, columns, told = opened.run(script)
    assert [rows, columns] == look["lens"]["probability"]["shape"]
    assert f"rank {look['lens']['rank'][1][0]}; likeliest: " in told


def test_every_method_and_every_logged_value_has_a_sentence(opened):
    methods, measurements = opened.run(
        "return [$terms.METHODS, $terms.MEASUREMENTS].map((one) => Object.keys(one))"
    )
    assert set(methods) == {*METHODS, "contrast"}
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
    table = page.partition("## Logged values")[2].partition("*Attention health*")[0]
    named = re.findall(r"`(?:train|val|attention)/(?:NAME/)?(\w+)`", table)
    scores = [name for scorer in (TextScorer, RougeScorer) for name in scorer.logged]
    assert {*named, *scores} - {"cross"} <= set(measurements)


def test_the_best_way_through_the_beam_spells_the_output(opened, shown):
    look = shown[1][0]["looks"][0]
    script = """const panel = document.querySelector(".panel");
    return Array.from(panel.querySelectorAll(".node.best title"), (one) => one.textContent);"""
    best = [one for one in look["beam"] if one["best"]]
    told = opened.run(script)
    assert [one.split(", log")[0].lstrip("‿") for one in told] == [
        one["token"].removeprefix("▁") or "␣" for one in best
    ]


def test_maps_of_the_same_pieces_are_subtracted(browser, shown, tmp_path):  # noqa: F811
    run, sentences = json.loads(json.dumps(shown))
    first, second = sentences[0]["looks"]
    for name in ("source", "target"):
        second[name] = first[name]
    second["attentions"] = json.loads(json.dumps(first["attentions"]))
    for one in second["attentions"]:
        flipped = np.flip(unpacked(one["weights"]), axis=1).copy()
        one["weights"] = packed(torch.from_numpy(flipped))
    path = tmp_path / "two.html"
    path.write_text(single_file.page(run, sentences), encoding="utf-8")
    looked_at(browser, path)
    chosen(browser, slot="cross", head=0)
    true = weights(first, "cross")[0]
    seen = pixels(browser, ".panels + div canvas")
    apart = true - true[::-1]
    expected = browser.run(
        "return arguments[0].map((share) => $colors.heat(share))",
        (apart / np.abs(apart).max()).flatten().tolist(),
    )
    assert np.abs(seen - np.array(expected).reshape(seen.shape)).max() <= 1


def test_a_question_shows_its_context_whole_with_each_tokens_probability(browser, answering):  # noqa: F811
    path = report(answering, answering.parent / "asked.html", **of_questions()).run()
    looked_at(browser, path)
    browser.click('[data-number="1"]')
    browser.wait("return document.documentElement.dataset.shown === '1'")
    context = Asked().load("val")["context"][1]
    assert browser.run("return document.querySelector('.context').textContent") == context
    tokens = "document.querySelectorAll('.context-token')"
    within = browser.run(f"return Array.from({tokens}, (one) => Number(one.dataset.within))")
    assert len(within) > 5
    assert 0 < max(within) <= 1
    assert browser.run("return document.querySelectorAll('.answers li').length") > 1
    assert browser.errors() == []
