"""The page of a server in a real browser: type, watch, look, change the model."""

import asyncio
import itertools
import json
import re

import numpy as np
import pytest

from tests.browser import browser  # noqa: F401
from tests.extras.report.samples import NASTY, unpacked
from tests.extras.report.test_browser import chosen, pixels
from tests.extras.serve.conftest import TEXT
from tests.extras.serve.live import answered, said_so_far, served

pytestmark = pytest.mark.slow
CROSS = "decoder.layers.0.cross_attention"
READY = "return document.documentElement.dataset.ready !== undefined"
WATCH = """window.seen = [];
new MutationObserver(() => window.seen.push(document.querySelector(".arriving").textContent))
  .observe(document.querySelector(".arriving"), { childList: true, characterData: true });"""


@pytest.fixture(scope="module")
def server(home):
    with served(home, "limits.shown_tokens=1600") as (_, port):
        yield port


@pytest.fixture
def opened(browser, server):  # noqa: F811
    """The page before anything is typed; afterwards it has asked its server alone, in peace."""
    browser.resize(1000)
    address = f"http://localhost:{server}/"
    browser.open(address)
    browser.wait(READY)
    yield browser
    assert browser.errors() == []
    assert {one for one in browser.requests() if not one.startswith(address)} == set()


def sentence(server, **keys):
    """What the API gives for a sentence."""
    status, content = asyncio.run(answered(server, {"text": TEXT, **keys}, "/v1/sentence"))
    assert status == 200, content
    return json.loads(content)["looks"][0]


def weights(look):
    return unpacked(next(one for one in look["attentions"] if one["name"] == CROSS)["weights"])


def outputs(browser):  # noqa: F811
    """The output of each panel; the pieces of an untrained model begin with one more sign."""
    script = "return Array.from(document.querySelectorAll('.panel .output'), (p) => p.textContent)"
    return [text.removeprefix("<s> ").replace("‿", "") for text in browser.run(script)]


def wait_for(browser, count):  # noqa: F811
    """Until so many views have been drawn."""
    browser.wait(f"return document.documentElement.dataset.shown === '{count}'")


def send(browser, count=1, text=TEXT, search="greedy"):  # noqa: F811
    """Chooses a search, types a text and presses Enter."""
    script = """const select = document.getElementById("live-search"); select.value = arguments[0];
    select.dispatchEvent(new Event("change")); document.getElementById("live-text").focus();"""
    browser.run(script, search)
    browser.press(*text, "Enter")
    wait_for(browser, count)


def assert_drawn(browser, selector, true):  # noqa: F811
    script = "return arguments[0].map((share) => $colors.heat(share))"
    expected = browser.run(script, (true / true.max()).flatten().tolist())
    seen = pixels(browser, selector)
    assert np.abs(seen - np.array(expected).reshape(seen.shape)).max() <= 1


def test_an_empty_page_says_what_the_model_does_and_an_example_is_sent_by_a_click(opened):
    said = opened.run("return document.querySelector('.welcome').textContent")
    assert "translates English to German" in said
    assert "data=demo_translation" in said
    opened.click(".examples button")
    wait_for(opened, 1)
    assert opened.run("return document.querySelector('.sentence h2').textContent") == TEXT
    assert opened.run("return document.querySelector('.welcome')") is None
    assert opened.run("return document.activeElement.id") == "sentence"
    status = "const status = document.getElementById('live-status'); return "
    assert re.fullmatch(r"done in \d+\.\d s", opened.run(f"{status}status.textContent"))
    assert opened.run(f"{status}parseFloat(getComputedStyle(status).fontSize)") >= 15


def test_a_narrow_page_shows_the_changed_model_first_with_both_outputs_above(opened):
    opened.resize(400)
    send(opened)
    opened.click('[data-change="uniform"]')
    wait_for(opened, 2)
    visible = """return Array.from(document.querySelectorAll("#sentence .panels > .panel"),
      (panel) => panel.checkVisibility());"""
    assert opened.run(visible) == [False, True]
    assert opened.run("return document.activeElement.dataset.focus") == "uniform undefined"
    assert opened.run("return document.activeElement.checkVisibility()")
    names = (
        "return Array.from(document.querySelectorAll('.front-choice b'), (one) => one.textContent)"
    )
    assert opened.run(names) == ["as trained", "changed"]
    opened.click(".front-choice button")
    assert opened.run(visible) == [True, False]


def test_tokens_arrive_one_by_one_and_the_view_is_the_api_s(opened, server):
    for turn in range(5):  # a busy browser may show several tokens at once
        if turn:
            opened.call("POST", "/refresh")
            opened.wait(READY)
        opened.run(WATCH)
        send(opened)
        seen = [text for text in opened.run("return window.seen") if text]
        if len(seen) > 2:
            break
    look = sentence(server, generation={"name": "greedy"})
    assert len(seen) > 2
    assert all(later.startswith(text) for text, later in itertools.pairwise(seen))
    assert outputs(opened) == [look["output"]]
    chosen(opened, slot="cross", head=3)
    assert_drawn(opened, ".grid-map canvas", weights(look)[3])


def test_a_head_is_switched_off_and_on_again(opened, server):
    send(opened, search="beam")
    opened.click('[data-head="0 1"]')
    focus = "return document.activeElement.dataset.focus"
    assert opened.run(focus) == "head 0 1"
    opened.click('[data-change="off"]')
    wait_for(opened, 2)
    assert opened.run(focus) == "off 1"
    gates = {CROSS: [1, 0, 1, 1]}
    texts = [sentence(server)["output"], sentence(server, intervene={"gates": gates})["output"]]
    assert outputs(opened) == texts
    assert texts[0] != texts[1]
    off = "return Array.from(document.querySelectorAll('.head.off'), (one) => one.ariaLabel)"
    assert opened.run(off) == ["layer 1, head 2, switched off"]
    listed = opened.run("return document.querySelector('.changes').textContent")
    assert listed == "source → output, layer 1: head 2 off remove"
    opened.click(".changes button")
    wait_for(opened, 3)
    assert outputs(opened) == texts[:1]
    assert opened.run(off) == []


def test_a_weight_is_set_with_keys_alone(opened, server):
    send(opened)
    chosen(opened, slot="cross", head=2)
    opened.run("document.querySelector('.grid-map canvas').focus()")
    opened.press("ArrowDown", "ArrowRight", "Enter")
    opened.run("document.querySelector('.weight-field input').focus()")
    opened.press(*["\ue003"] * 9, *["\ue017"] * 9, *"0.9", "Enter")
    wait_for(opened, 2)
    edit = {"attention": CROSS, "head": 2, "step": 1, "key": 1, "weight": 0.9}
    asked = {"generation": {"name": "greedy"}, "intervene": {"weights": [edit]}}
    look = sentence(server, **asked)
    assert weights(look)[2, 1, 1] == pytest.approx(0.9, abs=1e-4)
    assert outputs(opened)[1] == look["output"]
    assert_drawn(opened, ".panel:nth-child(2) .grid-map canvas", weights(look)[2])
    send(opened, 3, " a", "greedy")  # of another sentence: its tokens are others
    assert len(outputs(opened)) == 1


def test_a_beginning_is_forced(opened, server):
    opened.click("#live-prefix")
    opened.press(*"the bread")
    send(opened)
    said = outputs(opened)
    assert said == [sentence(server, generation={"name": "greedy"}, prefix="the bread")["output"]]
    assert said[0].startswith("the bread")
    assert said != [sentence(server, generation={"name": "greedy"})["output"]]


def test_a_source_that_would_end_the_script_stays_text(opened):
    send(opened, text=NASTY)
    assert opened.run("return document.querySelector('.sentence h2').textContent") == NASTY
    assert opened.run("return document.querySelectorAll('h2 b').length") == 0


def test_an_error_is_told_in_the_server_s_words(opened):
    opened.click("#live-prefix")
    opened.press("中")
    opened.click("#live-text")
    opened.press("a", "Enter")
    told = "return document.querySelector('#live-status[role=alert]')?.textContent"
    assert (
        opened.wait(told) == "prefix '中' of input 1 contains text that the target vocabulary lacks"
    )
    (logged,) = opened.errors()  # the browser's own line
    assert "422" in logged


@pytest.mark.parametrize("leave", ["stop", "page"])
def test_who_leaves_in_mid_stream_leaves_the_server_free(opened, server, leave):
    before = said_so_far(server)
    script = """document.getElementById("live-text").value = arguments[0].repeat(300);
    document.getElementById("live-send").click()"""
    opened.run(script, f"{TEXT} ")
    opened.wait("return document.querySelector('.arriving').textContent")
    if leave == "stop":
        opened.click("#live-stop")
        told = "return document.querySelector('#live-status').textContent"
        opened.wait(f"{told} === 'stopped'")
    else:
        opened.call("POST", "/url", url="about:blank")
    assert sentence(server)["output"]
    assert said_so_far(server) - before < 200  # of the thousands that it would have said


def test_the_endpoints_fit_a_narrow_page(opened, server):
    opened.resize(400)
    opened.open(f"http://localhost:{server}/docs")
    nodes = "[document.documentElement, ...document.querySelectorAll('.wide')]"
    assert opened.run(f"return {nodes}.filter((node) => node.scrollWidth > node.clientWidth)") == []


@pytest.mark.parametrize("width", [400, 1000, 2000])
def test_no_width_scrolls_the_page_sideways(opened, width):
    send(opened)
    opened.click('[data-change="uniform"]')
    wait_for(opened, 2)
    opened.resize(width)
    assert opened.run("return document.documentElement.scrollWidth") <= width
