"""A corpus of sixty pairs and the settings that train on it in a second."""

import csv
import itertools
import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict

from seqattn.cli.error_messages import in_words
from seqattn.cli.main import run_subcommand
from seqattn.config.compose import choices, register_resolvers, resolve_settings
from seqattn.config.overrides import complete
from seqattn.config.subcommand import read_subcommand
from seqattn.installation import CONF
from seqattn.settings.nodes import build_subcommand
from seqattn.training.checkpoint_files import newest_whole
from seqattn.training.run_directory import remove_empty

SUBJECTS = {
    "a dog": "ein Hund",
    "the cat": "die Katze",
    "a man": "ein Mann",
    "the child": "das Kind",
}
VERBS = {"sees": "sieht", "hears": "hört", "finds": "findet"}
OBJECTS = {
    "a ball": "einen Ball",
    "the tree": "den Baum",
    "some bread": "etwas Brot",
    "two birds": "zwei Vögel",
    "the old house": "das alte Haus",
}
SIZES = (
    "tokenizer.vocab_size=60",
    "model.dim=16",
    "model.ffn_dim=20",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "loader.max_tokens=200",
    "loader.max_length=50",
    "schedule=constant",
    "schedule.warmup_steps=3",
    "optimizer.lr=0.01",
    "trainer=cpu",
    "task.validation.sentences=4",
    "generation.beam_size=2",
    "generation.limit.extra=3",
)


def pairs():
    """Sixty sentences on both sides, no two alike."""
    product = itertools.product(SUBJECTS.items(), VERBS.items(), OBJECTS.items())
    for (subject, wer), (verb, tut), (thing, was) in product:
        yield f"{subject} {verb} {thing} .", f"{wer} {tut} {was} ."


def write_split(root, split, rows):
    root.mkdir(parents=True, exist_ok=True)
    for suffix, lines in zip(("en", "de"), zip(*rows)):
        text = "".join(f"{line}\n" for line in lines)
        (root / f"{split}.{suffix}").write_text(text, encoding="utf-8")


def write_corpus(root):
    """Train on sixty pairs, validate on six, test on five of them."""
    rows = list(pairs())
    write_split(root, "train", rows)
    write_split(root, "val", rows[::10])
    write_split(root, "test", rows[3::12])
    return root


NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eve")


def write_documents(root):
    """Twenty-five documents with summaries, as AESLC's files."""
    root.mkdir(parents=True, exist_ok=True)
    rows = [{"document": f"{n} met {m} in town .", "summary": n} for n in NAMES for m in NAMES]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    for split in ("train", "dev", "test"):
        (root / f"{split}.jsonl").write_text(text, encoding="utf-8")
    return root


def write_questions(root, unanswerable=0):
    """Twenty-five questions, as SQuAD's files; the first so many have no answer."""
    root.mkdir(parents=True, exist_ok=True)
    paragraphs = []
    for number, (one, other) in enumerate(itertools.product(NAMES, NAMES)):
        answers = [] if number < unanswerable else [{"text": one, "answer_start": 0}]
        asked = {"id": str(number), "question": f"Who met {other}?", "answers": answers}
        asked |= {"is_impossible": True} if number < unanswerable else {}
        paragraphs.append({"context": f"{one} met {other} in town.", "qas": [asked]})
    content = {"version": "v2.0", "data": [{"title": "towns", "paragraphs": paragraphs}]}
    for split in ("train", "dev", "test"):
        (root / f"{split}.json").write_text(json.dumps(content), encoding="utf-8")
    return root


def data_of(root):
    suffixes = ("data.source_suffix=en", "data.target_suffix=de")
    return ("data=parallel_text", f"data.root={root}", *suffixes)


def train_arguments(root, *overrides, steps=4, every=2, draws=False):
    """Arguments of a training of so many steps, validated and saved every few.

    It draws no attention, which is most of so small a run's time, unless it is asked to.
    """
    given = {override.partition("=")[0] for override in overrides}
    words = (
        *data_of(root),
        *SIZES,
        f"cache_dir={root.parent / 'cache'}",
        f"trainer.max_steps={steps}",
        f"trainer.val_check_interval={every}",
        "trainer.max_epochs=-1",
        *(() if draws else ("~watch",)),
    )
    if "data" in given:  # with none of the keys of the data that it replaces
        words = [word for word in words if not word.startswith("data")]
    return [*(word for word in words if word.partition("=")[0] not in given), *overrides]


def sampled(cases, every):
    """Test parameters: one case of so many; the others, which try the same code, are exhaustive."""
    for number, case in enumerate(cases):
        yield pytest.param(*case, marks=pytest.mark.exhaustive if number % every else ())


def listing(folder):
    """All that is below a folder, with what the files hold."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


class Ended(NamedTuple):
    """How a command ended: its exit code, or minus the signal, and what it printed."""

    code: int
    out: str
    err: str


def run(capfd, subcommand, *arguments):
    """Runs a subcommand in this process."""
    capfd.readouterr()
    code = run_subcommand(subcommand, [str(argument) for argument in arguments])
    return Ended(code, *capfd.readouterr())


def succeed(capfd, subcommand, *arguments):
    """Runs a subcommand that must end well, and gives what it wrote on standard output."""
    ended = run(capfd, subcommand, *arguments)
    assert ended.code == 0, ended.err
    return ended.out


def train(arguments):
    """A training that must end well."""
    assert run_subcommand("train", [str(argument) for argument in arguments]) == 0


def groups():
    """Every group of conf and its choices."""
    folders = sorted(folder for folder in CONF.iterdir() if folder.is_dir())
    names = {folder.name: sorted(f.stem for f in folder.glob("[!_]*.yaml")) for folder in folders}
    return {group: found for group, found in names.items() if found}


def composed(subcommand, *overrides):
    """The settings of a subcommand, as Hydra composes them, and what was chosen in each group."""
    made = register_resolvers()
    try:
        with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
            described = read_subcommand(subcommand)
            config = compose(
                subcommand, complete(described, list(overrides)), return_hydra_config=True
            )
            HydraConfig.instance().set_config(config)
            with open_dict(config):
                del config["hydra"]
            settings = resolve_settings(described, config)
            return settings, choices()
    finally:
        for place in made.values():
            remove_empty(Path(place))


def training(settings, chosen):
    """The training of composed settings."""
    return build_subcommand("seqattn.training.train.Training", {**settings, "choices": chosen})


def check(run):
    """A training, checked as far as it goes without data, with all settings built."""
    from seqattn.training.run import loop_of  # imports Lightning

    run.check()
    run = run.complete()
    loop_of(run)
    return run


def checked_training(*overrides):
    """The training that overrides ask for, checked as the subcommand checks it before any work."""
    return check(training(*composed("train", *overrides)))


def refused_before_work(*overrides):
    """The line that refuses a training before any of its data is read."""
    try:
        checked_training(*overrides)
    except Exception as error:
        line = in_words(error, started=False)
        if line is None:
            raise
        return " ".join(line.split())
    raise AssertionError(f"{' '.join(overrides)} is not refused")


PROGRESS = re.compile(
    r"(training |resuming |out of memory; |skipped |kept all |dropped |epoch |step |job )"
)


def refusal(capfd, subcommand, *arguments):
    """Runs a subcommand that must be refused: exit code 2 and one line. Gives the line's text."""
    ended = run(capfd, subcommand, *arguments)
    assert ended.code == 2, ended
    assert "Traceback" not in ended.err
    *before, last = ended.err.splitlines()
    assert all(PROGRESS.match(line) for line in before), ended.err
    assert last.startswith("error: ")
    return last.removeprefix("error: ")


def checkpoint(run_dir):
    """A run's last checkpoint."""
    return torch.load(newest_whole(run_dir / "checkpoints"), weights_only=True)


def place(saved):
    """Where a checkpoint stands: step, epoch, step of the epoch, and whether it is validated."""
    [loader] = saved["loops"]["fit_loop"]["state_dict"]["combined_loader"]
    return [saved["global_step"], loader["epoch"], loader["step"], saved["validated"]]


def logged(run_dir):
    """The rows that a run's csv logger wrote."""
    with (run_dir / "csv" / "version_0" / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def losses_of(run_dir):
    """A run's validation losses by step."""
    rows = [row for row in logged(run_dir) if row["val/loss"]]
    return {int(row["step"]) + 1: float(row["val/loss"]) for row in rows}


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]
