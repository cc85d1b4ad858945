"""What the README offers is there, and its commands run."""

import json
import re
import shlex
from pathlib import Path

import pytest

from seqattn.cli.config import groups
from seqattn.cli.main import run_verb
from seqattn.cli.support import BEGIN, END, support_table
from tests.cli.small import write_documents, write_questions

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
TINY = [
    "trainer.max_steps=2",
    "loader.max_tokens=256",
    "model.dim=16",
    "model.ffn_dim=16",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "task.validation.every=0",
    "tokenizer.vocab_size=null",
    "generation.limit.extra=2",
    "generation.limit.ratio=0.2",
]


def commands(beginning: str) -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith(beginning) and "--help" not in line]


def write_corpus(folder: Path) -> None:
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    for split, count in (("train", 60), ("val", 8), ("test", 8), ("test_2016_flickr", 8)):
        rows = [" ".join(words[(n * 3 + k) % 10] for k in range(2 + n % 5)) for n in range(count)]
        for side in ("en", "de", "fr"):
            (folder / f"{split}.{side}").write_text("".join(f"{row}\n" for row in rows))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    write_corpus(folder)
    write_documents(folder)
    write_questions(folder)
    text = "Ann met Dan in town."
    row = {"document": text, "question": "Who met?", "context": text}
    (folder / "FILE.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "FILE").write_text("one two\n\nthree\n")
    where = [f"run_dir={folder / 'RUN'}", "data=parallel_text", f"data.root={folder}"]
    suffixes = ["data.source_suffix=en", "data.target_suffix=fr"]
    assert run_verb("train", [*where, *suffixes, *TINY]) == 0
    asking = ["task=qa", "data=squad", f"data.root={folder}", f"run_dir={folder / 'QA'}"]
    assert run_verb("train", [*asking, *tiny_of("span_rnn")]) == 0
    for name in ("DIR1", "DIR2"):
        words = [f"bundle={folder / 'RUN' / 'model'}", "lengths=[3]", f"output={folder / name}"]
        assert run_verb("evaluate", words) == 0
    return folder


def tiny_of(command: str) -> list[str]:
    """Settings that make the model of a command tiny."""
    left_out: tuple[str, ...] = ()
    more = []
    if "rnn" in command:
        left_out = ("model.ffn_dim",)
    if "task=qa " in command or "span_" in command:
        left_out = ("model.ffn_dim", "model.decoder_layers", "generation")
        more = ["loader.window=64", "loader.stride=32", "loader.max_question=32"]
    if "task=summarization" in command:
        more = ["loader.max_length=64", "loader.max_source_length=64"]
    return [*(word for word in TINY if not word.startswith(left_out or "-")), *more]


def test_every_choice_of_the_configuration_is_named_in_the_readme():
    missing = [
        f"{group}={choice}"
        for group, choices in groups().items()
        for choice in choices
        if f"`{choice}`" not in README and group != "task"
    ]
    assert missing == []


def test_the_support_table_is_what_the_attentions_declare():
    table = README.split(BEGIN)[1].split(END)[0]
    assert table == support_table(), "stale: run python scripts/support.py"


def test_the_readme_has_commands_of_each_kind():
    assert len(commands("python train.py")) >= 4
    assert len(commands("python scripts/")) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("command", commands("python train.py"))
def test_a_training_command_of_the_readme_runs(command, run, tmp_path, capfd):
    arguments = shlex.split(command)[2:]
    if any(argument.startswith("resume=") for argument in arguments):
        arguments = [f"resume={run / 'RUN'}", "trainer.max_epochs=2"]
    else:
        arguments = [a.replace("=DIR", f"={run}") for a in arguments]
        overridden = {a.partition("=")[0] for a in TINY}
        arguments = [a for a in arguments if a.partition("=")[0] not in overridden]
        vocabulary = [] if "data.root" in command else ["tokenizer.vocab_size=300"]
        tiny = [a for a in tiny_of(command) if not (vocabulary and a.startswith("tokenizer"))]
        if any(a.startswith("experiment=") for a in arguments):
            tiny.append("schedule.warmup_steps=1")
        arguments += [*tiny, *vocabulary, f"run_dir={tmp_path / 'run'}"]
    assert run_verb("train", arguments) == 0, capfd.readouterr().err


@pytest.mark.parametrize("command", commands("python scripts/"))
def test_a_command_of_the_readme_runs_on_a_bundle(command, run, tmp_path, capfd, monkeypatch):
    script, *arguments = shlex.split(command)[1:]
    verb = Path(script).stem
    if verb in ("demo", "benchmark"):
        pytest.skip("a program of minutes")
    places = {
        "=RUN": f"={run / 'RUN'}",
        "=QA": f"={run / 'QA'}",
        "input=FILE": f"input={run / 'FILE'}",
        "[DIR1,DIR2]": f"[{run / 'DIR1'},{run / 'DIR2'}]",
    }
    places |= {
        "output=DIR2": f"output={tmp_path / 'converted'}",
        "output=FILE": f"output={tmp_path / 'out'}",
        "output=DIR": f"output={tmp_path}",
    }
    for placeholder, place in places.items():
        arguments = [argument.replace(placeholder, place) for argument in arguments]
    if verb == "generate" and not any(a.startswith("input=") for a in arguments):
        arguments.append(f"input={run / 'FILE'}")
    assert run_verb(verb, arguments) == 0, capfd.readouterr().err
