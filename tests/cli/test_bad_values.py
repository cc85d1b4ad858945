"""Every bad value, unknown name and impossible combination ends in one line, before any work."""

import math
import re
from itertools import product

import pytest
import yaml

from seqattn.cli.error_messages import in_words
from seqattn.errors import UserError
from seqattn.settings.choices import choices
from seqattn.settings.nodes import TARGET, build
from tests.cli import bad_values
from tests.cli.fork import run_forked
from tests.cli.small import (
    check,
    composed,
    groups,
    refused_before_work,
    sampled,
    train_arguments,
    training,
)

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
    given = without(train_arguments(corpus, "run_dir=nowhere", draws=True), others)
    assert refused_before_work(*given, *others).startswith(text)


def test_heads_of_a_span_model_are_named_in_full():
    words = ("task=qa", "data=demo_qa", "model=span_transformer", "attention.num_heads=7")
    text = "attention.num_heads must divide model.dim (128), got 7"
    assert refused_before_work(*words) == text


@pytest.mark.parametrize(
    ("subcommand", "words", "text"),
    sampled((case for case in TRAINING if case[0] != "train"), every=4),
)
def test_a_subcommand_that_cannot_be_run_writes_one_line_and_no_file(
    subcommand, words, text, places
):
    subcommand, given = places.usual(subcommand)
    others = words.split()
    ended = run_forked(subcommand, [*without(given, others), *others], places.folder)
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended
    assert ended.err.startswith(f"error: {text}"), ended.err
    assert not list(places.folder.iterdir())


BAD = (math.nan, math.inf, -math.inf, -(10**12), 10**12, "\ud800", {"a": 1}, [{}])


def nodes():
    """Test parameters: every object that conf/ describes."""
    for group in sorted(groups().keys() - {"logger"}):  # Lightning's
        for name, node in sorted(choices(group).items()):
            parts = {"": node} if TARGET in node else node  # such as processors, which have names
            for key, part in parts.items():
                if isinstance(part, dict) and TARGET in part:
                    yield pytest.param(part, id=f"{group}={name}{key}")


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


@pytest.mark.parametrize("node", nodes())
def test_every_key_of_a_choice_refuses_what_no_key_takes(node):
    """Whatever conf can hold: no number without bounds, no text that cannot be written."""
    for (*place, key), bad in product((place for place, _ in leaves(node)), BAD):
        if key == "total_steps" and type(bad) is int:
            continue  # of which only a training knows what it takes
        if place == ["files"] and bad == "\ud800":
            continue  # a path, which the command line cannot hold
        with pytest.raises(UserError):
            build(put(node, [*place, key], bad))


def test_every_key_of_a_training_refuses_what_no_key_takes(corpus):
    settings, chosen = composed("train", *train_arguments(corpus, "run_dir=nowhere", draws=True))
    for place, bad in product((place for place, _ in leaves(settings)), BAD):
        if place[0] in groups().keys() - {"logger"} or (place[0], bad) == ("lr_factors", {"a": 1}):
            continue  # choices, as above; and names of the model's
        if place[0] == "logger" and bad == "\ud800":
            continue  # Lightning's, below run_dir
        with pytest.raises(Exception) as caught:  # noqa: PT011
            check(training(put(settings, place, bad), chosen))
        assert in_words(caught.value, started=True), (place, bad)


BEYOND = {
    "attention=mha": "num_heads=0 num_kv_heads=0 dropout=-0.1 dropout=1.0",
    "attention=moa": "num_heads=0 num_experts=0 dropout=1.0 balance.load=-0.1 balance.z=-0.1",
    "attention=entmax": "kernel.alpha=0.9 kernel.alpha=2.1",
    "attention=bahdanau": "dim=0",
    "attention=luong_general": "score=sum",
    "attention=luong_local_m": "window=0",
    "callbacks=gradients": "gradients.every=0",
    "data=words": "word_column=0 features_column=0",
    "data=denoising": "share=1.0 span=0.5 noise=noise",
    "generation=beam": "beam_size=0 beam_size=100000 n_best=0 length_penalty=-0.1 workers=0 "
    "coverage_penalty=-0.5 limit.ratio=-1.0 limit.ratio=101.0 limit.extra=10001 limit.minimum=-1",
    "generation=sampling": "temperature=0 top_p=0 top_p=1.1 top_k=-1 n_best=0",
    "generation=spans": "max_answer=0 answers=0 threshold=1.5",
    "loader=pairs": "max_tokens=0 max_source_length=1 long_sources=cut",
    "loader=spans": "max_tokens=0 max_question=1",
    "model=transformer": "dim=0 dropout=1.0 word_dropout=1.0 drop_heads=1.0 layer_drop=1.0 "
    "norm=batch activation=sin share_embeddings=some",
    "model=rnn": "dim=0 decoder_layers=0 dropout=1.0 word_dropout=1.0 cell=rnn order=between "
    "share_embeddings=some",
    "model=span_rnn": "dropout=1.0 word_dropout=1.0",
    "model=span_transformer": "word_dropout=1.0 drop_heads=1.0 layer_drop=1.0",
    "optimizer=adamw_8bit": "lr=-1.0",
    "optimizer=muon": "momentum=1.5",
    "position=deberta": "max_relative_positions=0",
    "position=shaw": "max_distance=-1",
    "processor=no_repeat_ngram": "no_repeat_ngram.size=0",
    "schedule=inverse_sqrt": "warmup_steps=0",
    "schedule=noam": "warmup_steps=0",
    "task=summarization": "scorer.resamples=-1",
    "task=translation": "label_smoothing=-0.1 label_smoothing=1.0 r_drop=-1.0",
    "tokenizer=unigram": "vocab_size=4 vocab_size=100000000000 character_coverage=0.9 kind=word "
    "normalization=nfc",
}
"""Values just beyond what a key takes, by the choice that has it."""


@pytest.mark.parametrize(("choice", "words"), BEYOND.items())
def test_a_value_just_beyond_its_bounds_is_refused_by_its_name(choice, words):
    group, _, name = choice.partition("=")
    for key, _, value in (word.partition("=") for word in words.split()):
        with pytest.raises(UserError, match=rf"^{re.escape(key)} must be "):
            build(put(choices(group)[name], key.split("."), yaml.safe_load(value)))
