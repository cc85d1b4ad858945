"""Every bad value, unknown name and impossible combination ends in one line, before any work."""

import math

import pytest

from seqattn.cli.error_messages import in_words
from tests.cli import bad_values
from tests.cli.fork import run_forked
from tests.cli.small import composed, refused_before_work, sampled, train_arguments, training

TRAINING = [
    case
    for kind in (bad_values.NUMBERS, bad_values.KINDS, bad_values.NAMES, bad_values.COMBINATIONS)
    for case in kind
]


def without(words, others):
    """Arguments without those that others give anew, the keys of a group with the group."""
    given = {other.partition("=")[0].lstrip("~+") for other in others}
    given |= {"schedule.warmup_steps"} if "schedule" in given else set()
    return [word for word in words if word.partition("=")[0] not in given]


@pytest.mark.parametrize(
    ("words", "text"), sampled((case[1:] for case in TRAINING if case[0] == "train"), every=2)
)
def test_a_training_that_cannot_be_is_refused_before_its_data_is_read(corpus, words, text):
    others = words.split()
    given = without(train_arguments(corpus, "run_dir=nowhere"), others)
    assert refused_before_work(*given, *others).startswith(text)


def test_heads_of_a_span_model_are_named_in_full():
    words = ("task=qa", "data=demo_qa", "model=span_transformer", "attention.num_heads=7")
    text = "attention.num_heads must divide model.dim (128), got 7"
    assert refused_before_work(*words) == text


@pytest.mark.parametrize(
    ("verb", "words", "text"), sampled((case for case in TRAINING if case[0] != "train"), every=4)
)
def test_a_verb_that_cannot_be_run_writes_one_line_and_no_file(verb, words, text, places):
    verb, given = places.usual(verb)
    others = words.split()
    ended = run_forked(verb, [*without(given, others), *others], places.folder)
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended
    assert ended.err.startswith(f"error: {text}"), ended.err
    assert not list(places.folder.iterdir())


BAD = (math.nan, math.inf, -math.inf, -(10**12), 10**12, "\ud800", {"a": 1}, [{}])
CHOICES = (
    "attention=mha", "attention=gqa", "attention=entmax", "attention=fixed", "attention=linear",
    "attention=moa", "attention=performer", "attention=sliding_window", "attention=streaming",
    "attention=strided", "attention@encoder_attention=bigbird",
    "attention@encoder_attention=linformer", "attention@encoder_attention=lsh",
    "attention@encoder_attention=xca", "position=deberta", "position=disentangled",
    "position=learned", "position=rope", "position=shaw", "position=t5", "schedule=noam",
    "generation=greedy", "generation=sampling", "processor=[no_repeat_ngram]",
)  # fmt: skip


def leaves(node, place=()):
    """Every scalar or list below a node with the keys that lead to it."""
    if not isinstance(node, dict):
        yield place, node
        return
    for key, value in node.items():
        if not key.startswith("_"):
            yield from leaves(value, (*place, key))


def put(node, place, value):
    key, *rest = place
    return {**node, key: put(node[key], rest, value) if rest else value}


def is_refused(settings, chosen):
    try:
        training(settings, chosen).check()
    except Exception as error:
        line = in_words(error, started=True)
        if line is None:
            raise
        return True
    return False


@pytest.mark.parametrize("choice", CHOICES)
def test_every_key_of_a_choice_refuses_what_no_key_takes(corpus, choice):
    """Whatever conf can hold: no number without bounds, no text that cannot be written."""
    group = choice.partition("=")[0]
    used = train_arguments(corpus, "run_dir=nowhere")
    used = [word for word in used if not word.startswith((f"{group}.", f"{group}="))]
    settings, chosen = composed("train", *used, choice)
    slot = {"processor": "generation"}.get(group, group.partition("@")[2] or group)
    everything = choice == "attention=mha"
    taken = [
        (".".join(place), bad)
        for place, _ in leaves(settings)
        if everything or place[0] == slot
        for bad in BAD
        if not (place[0] == "logger" and bad == "\ud800")  # Lightning's, below run_dir
        if not (place[0] == "lr_factors" and bad == {"a": 1})  # names are those of the model
        and not is_refused(put(settings, place, bad), chosen)
    ]
    assert not taken
