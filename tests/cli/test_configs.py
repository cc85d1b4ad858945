"""Every file of conf/ composes, and what it names is there and takes its keys."""

import inspect
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.utils import get_object

from seqattn.cli.config import CONF, compose_config, groups, plain, quoted, require_values, sweep

ROOT = Path(__file__).parents[2]
NEEDED = {
    ("data", "parallel_text"): ["data.root=x", "data.source_suffix=en", "data.target_suffix=de"],
    ("data", "multi30k"): ["data.root=x"],
    ("data", "aeslc"): ["data.root=x"],
    ("data", "squad"): ["data.root=x"],
}
"""Values that a choice cannot do without."""
CHOICES = [(group, choice) for group, choices in groups().items() for choice in choices]
SLOTS = ("encoder_attention", "decoder_attention", "cross_attention")
LEFT_TO_THE_CALLER = {
    "seqattn.attention.experts.MixtureOfAttention": {"query_dim", "memory_dim"},
    "seqattn.attention.heads.MultiHeadAttention": {"query_dim", "memory_dim"},
    "seqattn.training.optim.adamw": {"model"},
    "lightning.Trainer": set(),
}
"""What a partial leaves open, and whoever calls it gives."""


def needed(group, choice):
    """As `NEEDED`; an experiment needs what its data do."""
    if group == "experiment":
        text = (CONF / group / f"{choice}.yaml").read_text(encoding="utf-8")
        found = re.search(r"override /data: (\w+)", text)
        group, choice = "data", found[1] if found else ""
    return NEEDED.get((group, choice), [])


def is_alignment(target):
    return target.startswith(("seqattn.attention.alignment.", "seqattn.attention.local_alignment."))


def left_to_the_caller(target):
    if is_alignment(target):
        return {"query_dim", "memory_dim"}
    if target.startswith("seqattn.attention.kernels."):
        return {"num_heads", "num_kv_heads", "head_dim"}
    return {"stack"} if target.startswith("seqattn.positions.") else LEFT_TO_THE_CALLER[target]


def composed(*overrides):
    config = compose_config("train", list(overrides))
    require_values(config)
    return plain(config)


def nodes(value, where=""):
    """Every node with a _target_, and where it stands."""
    if isinstance(value, dict):
        if "_target_" in value:
            yield where, value
        for key, inner in value.items():
            yield from nodes(inner, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from nodes(inner, f"{where}[{number}]")


def check_bindings(config):
    found = dict(nodes(config))
    assert {"data", "model", "attention", "trainer"} <= found.keys()
    assert is_alignment(found["attention"]["_target_"]) != ("attention.kernel" in found)
    for where, node in found.items():
        target = get_object(node["_target_"])
        keys = {key for key in node if key not in ("_target_", "_partial_")}
        if not node["_target_"].startswith("seqattn.generation."):
            keys -= {"_convert_"}
        elif where == "generation":
            keys -= {"batch_size", "batch_tokens"}  # the generator's, as the next test says
        signature = inspect.signature(target)
        bound = signature.bind_partial(**dict.fromkeys(keys))
        required = {
            name
            for name, parameter in signature.parameters.items()
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        }
        left = required - bound.arguments.keys()
        partial = node.get("_partial_", False)
        assert left == (left_to_the_caller(node["_target_"]) if partial else set()), where


@pytest.mark.parametrize(("group", "choice"), CHOICES)
def test_every_choice_composes_and_its_targets_take_its_keys(group, choice):
    config = composed(f"{group}={choice}", *needed(group, choice))
    assert config["choices"][group] == choice
    check_bindings(config)


@pytest.mark.parametrize(("slot", "choice"), itertools.product(SLOTS, groups()["attention"]))
def test_every_attention_composes_in_a_slot_of_its_own(slot, choice):
    config = composed(f"attention@{slot}={choice}", "attention=mha")
    check_bindings(config)
    alone = composed(f"attention={choice}")["attention"]
    assert config[slot] == alone
    assert not {other for other in SLOTS if other != slot} & config.keys()


def test_generation_carries_the_batch_sizes_of_the_generator():
    from seqattn.generation import Generator

    for choice in groups()["generation"]:
        node = composed(f"generation={choice}")["generation"]
        search = inspect.signature(get_object(node["_target_"])).parameters
        own = {key for key in node if key not in search} - {"_target_"}
        assert own == (set() if choice == "spans" else {"batch_size", "batch_tokens"})
        assert own <= inspect.signature(Generator).parameters.keys()


@pytest.mark.parametrize("verb", ["generate", "evaluate", "analyze", "convert"])
def test_the_other_verbs_compose_and_say_what_they_need(verb):
    config = compose_config(verb, ["bundle=RUN/model"])
    assert config.bundle == "RUN/model"
    for where, node in nodes(plain(config)):
        assert callable(get_object(node["_target_"])), where


@pytest.mark.parametrize("choice", groups()["experiment"])
def test_an_experiment_overrides_what_it_names_and_the_user_overrides_it(choice):
    words = needed("experiment", choice)
    config = composed(f"experiment={choice}", *words, "seed=7", "model.dim=48")
    assert config["name"] == choice
    assert (config["seed"], config["model"]["dim"]) == (7, 48)


def test_the_files_of_conf_begin_with_what_they_are():
    for path in CONF.rglob("*.yaml"):
        lines = path.read_text(encoding="utf-8").splitlines()
        about = [line for line in lines[:2] if line.startswith("# ") and "@package" not in line]
        assert about or path.stem in ("generate", "evaluate", "analyze"), path


def test_help_names_every_group_and_every_choice():
    command = [sys.executable, "train.py", "--help"]
    shown = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, env=os.environ
    )
    assert shown.stderr == ""
    words = " ".join(shown.stdout.split())
    for group, choices in groups().items():
        assert f" {group} {' '.join(choices)} " in words
    assert shown.stdout.count("  python train.py ") >= 5


def test_the_examples_of_training_compose():
    from seqattn.cli.help import _EXAMPLES

    for example, _ in _EXAMPLES["train"]:
        words = [word for word in example.split() if "=" in word]
        for job in sweep(words):
            assert compose_config("train", job), example


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a, b",
        "it's",
        "''",
        "\\",
        "a\\",
        "a\\'b",
        "\\\\'",
        "C:\\new",
        "${x}",
        "\\${x}",
        "a=b:{c}[d]",
    ],
)
def test_a_quoted_text_comes_back_as_it_is(text):
    config = compose_config("train", [f"name={quoted(text)}"])
    assert plain(config)["name"] == text
