"""Every file of conf/ composes, and a run is made of what it names."""

import re

import pytest
import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from seqattn.cli.help_page import help_page
from seqattn.cli.main import run_subcommand
from seqattn.config.compose import register_resolvers
from seqattn.config.overrides import complete, quoted
from seqattn.config.saved_overrides import parsed
from seqattn.config.subcommand import read_subcommand
from seqattn.installation import CONF
from seqattn.settings.choices import SLOT_NODES, choices
from tests.cli.small import checked_training, composed, groups

NEEDED = {
    ("callbacks", "gradients"): ["logger=[csv,tensorboard]"],
    ("data", "parallel_text"): ["data.root=x", "data.source_suffix=en", "data.target_suffix=de"],
    ("data", "table"): ["data.dataset=x"],
    ("data", "multi30k"): ["data.root=x"],
    ("data", "segments"): ["data.source_language=en", "data.target_language=de"],
    ("data", "aeslc"): ["data.root=x"],
    ("data", "shards"): ["data.root=x"],
    ("data", "denoising"): ["data.files.train=x"],
    ("task", "denoising"): ["data.files.train=x"],
    ("data", "mixture"): ["data@data.sources.one=demo_translation"],
    ("data", "words"): ["data.files.train=x"],
    ("task", "transduction"): ["data.files.train=x"],
    ("data", "squad"): ["task=qa", "data.dataset=x"],
    ("data", "demo_qa"): ["task=qa"],
    ("loader", "spans"): ["task=qa"],
    ("tokenizer", "files"): ["tokenizer.source=x"],
    ("generation", "spans"): ["task=qa"],
    ("model", "span_rnn"): ["task=qa"],
    ("model", "span_transformer"): ["task=qa"],
    ("trainer", "gpu"): ["trainer.accelerator=cpu", "trainer.devices=1"],
    ("schedule", "cosine"): ["trainer.max_steps=1000"],
    ("schedule", "linear"): ["trainer.max_steps=1000"],
}
"""Values that a choice cannot do without."""
LISTS = ("logger", "processor")
ELSEWHERE = [
    "attention",
    "document_lines",
    "document_scores",
    "engine",
    "experiment",
    "file_format",
    "importer",
    "markup",
    "quality",
    "recipe",
    "sentence_splitter",
    "suite",
    "terms",
]
CHOICES = [
    (group, choice)
    for group, choices in groups().items()
    for choice in choices
    if group not in ELSEWHERE
]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "attention.state_dim=8 attention.dropout=0.5 attention.num_heads=2 "
            "++attention.expand=1 attention@encoder_attention=[mha,sliding_window] "
            "encoder_attention.kernel.window=4",
            {
                "attention.state_dim": [8, None],
                "attention.dropout": [None, 0.5],
                "attention.num_heads": [2, 2],
                "attention.expand": [1, None],
                "encoder_attention.kernel.window": [None, 4],
            },
        ),
        (
            "~attention.expand attention@encoder_attention=[moa,mamba2] "
            "encoder_attention.expand=1 encoder_attention.num_experts=6",
            {
                "attention.expand": [None, None],
                "encoder_attention.expand": [None, 1],
                "encoder_attention.num_experts": [6, None],
            },
        ),
    ],
)
def test_members_of_a_list_take_the_keys_that_they_have(words, expected):
    settings, chosen = composed("train", "attention=[mamba2,mha]", *words.split())
    assert chosen["attention"] == "[mamba2,mha]"
    for key, values in expected.items():
        slot, _, path = key.partition(".")
        members = [OmegaConf.create(member) for member in settings[slot]]
        assert [OmegaConf.select(member, path) for member in members] == values, key


@pytest.mark.parametrize(("group", "choice"), CHOICES)
def test_every_choice_makes_a_run_that_can_be_written_down(tmp_path, group, choice):
    (tmp_path / "train.jsonl").write_text("")
    (tmp_path / "dev.jsonl").write_text("")
    words = [word.replace("=x", f"={tmp_path}") for word in NEEDED.get((group, choice), [])]
    name = f"[{choice}]" if group in LISTS else choice
    run = checked_training(*words, f"{group}={name}")
    if group not in LISTS:
        assert run.choices[group] == choice
    assert yaml.safe_load(yaml.safe_dump(run.settings)) == run.settings


@pytest.mark.parametrize(("slot", "name"), zip(SLOT_NODES, ["gqa", "linear", "mamba2"]))
def test_a_slot_of_its_own_is_taken_whole_and_fills_no_other(slot, name):
    words = (f"attention@{slot}={name}", "attention=mha", "attention.dropout=0.7")
    settings = composed("train", *words)[0]
    assert {node: settings.get(node) for node in SLOT_NODES} == {
        **dict.fromkeys(SLOT_NODES),
        slot: choices("attention")[name],
    }


def test_an_attention_takes_nothing_from_outside_its_node():
    for path in (CONF / "attention").glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\$\{(?!\.\w)|@package|(?m:^defaults:)", text), path


@pytest.mark.parametrize("choice", groups()["recipe"])
def test_a_recipe_serves_its_data_and_model(choice):
    data, model = next(
        (choice[: -len(model) - 1], model)
        for model in sorted(groups()["model"], key=len, reverse=True)
        if choice.endswith(f"_{model}")
    )
    recipe = yaml.safe_load((CONF / "recipe" / f"{choice}.yaml").read_text(encoding="utf-8"))
    tasks = {"demo_qa": "qa" if "span" in model else "qa_generative"}
    task = tasks.get(data, data.removeprefix("demo_"))
    settings = composed("train", f"task={task}", f"model={model}")[0]
    assert OmegaConf.merge(settings, recipe) == settings
    assert settings["task"]["validation"]["every"] == 1  # checkpoint.monitor may need its scores


def test_the_user_s_choices_go_before_a_recipe():
    for words, size in (([], 1000), (["tokenizer.vocab_size=77"], 77), (["data=shards"], None)):
        settings = composed("train", "++data.root=x", *words)[0]
        assert settings["tokenizer"]["vocab_size"] == size


@pytest.mark.parametrize(
    ("words", "kind", "position"),
    [
        (["experiment=demo"], "bpe", "Rotary"),
        (["experiment=demo", "tokenizer=unigram"], "unigram", "Rotary"),
    ],
)
def test_choices_have_the_tokenizer_and_positions_that_suit_their_data(words, kind, position):
    settings = composed("train", *words)[0]
    name = settings["position"]["_target_"].rpartition(".")[2].removesuffix("Position")
    assert (settings["tokenizer"]["kind"], name) == (kind, position)


@pytest.mark.parametrize("choice", groups()["experiment"])
def test_an_experiment_overrides_what_it_names_and_the_user_overrides_it(choice):
    text = (CONF / "experiment" / f"{choice}.yaml").read_text(encoding="utf-8")
    root = ["data.root=x"] if re.search(r"override /data: (multi30k|aeslc|squad)", text) else []
    root += ["data.files.train=x"] if "override /task: transduction" in text else []
    words = (f"experiment={choice}", *root, "seed=7", "model.dim=48")
    settings = composed("train", *words)[0]
    assert settings["name"] == choice
    assert (settings["seed"], settings["model"]["dim"]) == (7, 48)


def test_the_files_of_conf_begin_with_what_they_are():
    for path in CONF.rglob("*.yaml"):
        lines = path.read_text(encoding="utf-8").splitlines()
        about = [line for line in lines[:2] if line.startswith("# ") and "@package" not in line]
        assert about, path


def test_the_examples_of_training_compose():
    lines = help_page("train", []).partition("Examples:")[2].splitlines()
    examples = [line.split()[2:] for line in lines if line.startswith("  python train.py ")]
    assert len(examples) > 10
    for words in examples:
        if {"-m", "--config-dir"} & set(words) or words[0].startswith(("resume=", "init_from=")):
            continue
        assert composed("train", *words), words


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
    [override] = complete(read_subcommand("train"), [f"name={quoted(text)}"])
    assert OmegaConf.create({"name": parsed(override).value()}).name == text


def test_a_path_in_a_home_folder_needs_no_quotes(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert composed("train", "cache_dir=~/my cache")[0]["cache_dir"] == "~/my cache"
    composed("train", "run_dir=~/my run")
    assert HydraConfig.get().run.dir == str(tmp_path / "my run")


BEFORE = (
    "generation=beam", "generation.beam_size=8", "generation.limit.extra=20", "logger=[wandb]",
    "+logger.wandb.notes=x", "schedule.floor=0.1", "generation.processors.no_repeat_ngram.size=2",
)  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "gone"),
    [
        ("generation=greedy", {"generation=beam", "generation.beam_size=8"}),
        ("generation=beam", {"generation=beam"}),
        ("generation=mine", {"generation=beam"}),
        ("logger=[]", {"logger=[wandb]", "+logger.wandb.notes=x"}),
        ("logger=[csv,wandb]", {"logger=[wandb]"}),
        ("processor=[]", {"generation.processors.no_repeat_ngram.size=2"}),
        ("processor=[no_repeat_ngram]", set()),
        ("schedule=constant", {"schedule.floor=0.1"}),
        ("schedule=linear", set()),
    ],
)
def test_a_choice_that_a_run_goes_on_with_brings_none_of_the_other_one_s_keys(
    tmp_path, typed, gone
):
    (tmp_path / "overrides.yaml").write_text(yaml.safe_dump(list(BEFORE)))
    found = complete(read_subcommand("train"), [f"resume={tmp_path}", typed])
    assert found[:-3] == [one for one in BEFORE if one not in gone]


def test_a_run_of_before_goes_on_with_a_key_that_has_moved(tmp_path):
    (tmp_path / "overrides.yaml").write_text("[task.validation.attention_health=false]")
    assert complete(read_subcommand("train"), [f"resume={tmp_path}"])[0] == "watch.health=false"


def test_runs_that_begin_in_one_second_get_directories_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def named(path):
        return OmegaConf.create({"run_dir": f"${{unused:{path}}}"}).run_dir

    for name in ("runs/a/1", "runs/a/1_2", "runs/a/1_3"):
        made = register_resolvers()
        assert [named("runs/a/1"), named("runs/a/1")] == [name, name]
        assert made == {"runs/a/1": name}
        assert (tmp_path / name).is_dir()


def test_runs_below_a_link_that_leads_nowhere_end_in_one_line(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").symlink_to("nowhere")
    assert run_subcommand("train", ["--cfg", "job", "--resolve"]) == 2
    error = capfd.readouterr().err
    assert re.fullmatch(
        r"error: cannot create a directory such as runs/\S+; set run_dir=PATH\n", error
    )
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_a_command_that_shows_its_settings_leaves_no_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_subcommand("train", ["--cfg", "job", "--resolve"]) == 0
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("key", ["bundle", "init_from", "input", "output", "run_dir", "data.root"])
@pytest.mark.parametrize(
    "path",
    [
        "p/ünïcødé",
        "漢字/x",
        "a=b",
        "a[b]",
        "a{b}",
        "(a)",
        "a#b",
        "a;b",
        "a&b",
        "it's",
        'a"b',
        "a|b",
        r"C:\new\(x)\[y]\\z",
        r"a\,b",
        r"\[\w+\]\{0",
    ],
)
def test_a_lone_path_is_taken_as_it_is(key, path):
    [override] = complete(read_subcommand("search"), [f"{key}={path}"])
    assert parsed(override).value() == path


def test_what_hydra_can_read_stays_as_it_is_typed():
    words = ["seed=2024", "cache_dir=null", "model.dim=1,2", "name=a b", "data.files=[a,b]"]
    words += [r"name='\[a\]'", r"data.root=C:\a,C:\b", r"data.files=[C:\a,'\(b']", r"name=${x}\(y"]
    assert complete(read_subcommand("search"), words) == words


def test_a_sentence_is_quoted_unless_it_is_quoted_already_or_none_is_given():
    words = ["text=a, b: c", "target='a, b'", "question=null", "output=a"]
    found = complete(read_subcommand("generate"), words)
    assert found == ["text='a, b: c'", *words[1:]]
    assert parsed(found[2]).value() is None


@pytest.mark.parametrize(
    "pattern",
    [
        r"\[\w+\]", r"\(\w+\)", r"\\\w+", r"\{[^{}]*\}", r"\w{0,3}", "[A-Z]{2,5}", "[abc]",
        "(a|b), c", "{a}", "a,b", r"\$\{\w+\}", r"[$]{2}x", "\\", "'a'|'b'", r'"\w+', "é|#;=", "12",
    ],
)  # fmt: skip
def test_an_expression_arrives_as_it_is_typed(pattern):
    [override] = complete(read_subcommand("generate"), [f"markup.pattern={pattern}"])
    assert parsed(override).value() == pattern
    typed = f"markup.pattern={quoted(pattern)}"
    assert complete(read_subcommand("generate"), [typed]) == [typed]


def test_an_interpolation_is_left_to_hydra_whatever_stands_beside_it():
    words = ["output=${name}/ünïcødé", "output=${name}'s"]
    assert complete(read_subcommand("search"), words) == words


def test_a_run_of_another_alphabet_is_found(tmp_path):
    for name in ("ünïcødé", "a=b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "overrides.yaml").write_text("[seed=3]")
        words = complete(read_subcommand("train"), [f"resume={tmp_path / name}"])
        assert words[0] == "seed=3"
        assert parsed(words[1]).value() == str(tmp_path / name)


@pytest.mark.parametrize(
    ("words", "tokens", "workers"),
    [
        (["trainer=auto", "data=shards", "data.root=x"], 4096, 0),
        (["trainer=gpu", "data=shards", "data.root=x"], 16384, 4),
        (["trainer=gpu"], 768, 4),
        (["trainer=gpu", "experiment=demo"], 768, 4),
        (["loader.max_tokens=300", "trainer=gpu", "loader.num_workers=1"], 300, 1),
    ],
)
def test_gpus_take_larger_batches_unless_others_are_chosen(words, tokens, workers):
    settings = composed("train", *words)[0]
    assert (settings["loader"]["max_tokens"], settings["loader"]["num_workers"]) == (
        tokens,
        workers,
    )
    assert settings["trainer"]["precision"] is None
    assert settings["trainer"]["max_epochs"] == (-1 if "experiment=demo" in words else None)


def test_keys_for_a_replaced_logger_are_left_out(tmp_path):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /logger: [wandb]\n"
        "logger:\n  wandb:\n    mode: offline\n"
    )
    place = f"hydra.searchpath=[file://{tmp_path}]"
    assert composed("train", place, "experiment=mine")[0]["logger"]["wandb"]["mode"] == "offline"
    settings, _ = composed("train", place, "experiment=mine", "logger=csv")
    assert list(settings["logger"]) == ["csv"]
