"""What the README and docs/ offer is there, and their commands run.

`test_site.py` builds the site, whose other pages show the commands that `conf/` gives as examples.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException

from benchmarks.command import CONF as SUITES
from benchmarks.support import BEGIN, END, support_table
from seqattn.cli.main import run_subcommand
from seqattn.config.compose import plain
from seqattn.installation import CONF
from seqattn.settings.choices import choices
from seqattn.settings.nodes import build
from tests.cli.small import (
    checked_training,
    groups,
    write_corpus,
    write_documents,
    write_questions,
)
from tests.pages import PAGES, ROOT, blocks, commands, examples, subcommand_and_words

PROGRAMS = ("python ", "seqattn ")
DOCS = [page for page in PAGES if page not in ("README.md", "extending.md")]
ON_OURS = [page for page in DOCS if page != "results.md"]
"""Pages whose commands run on texts of ours; those of the results are of other data."""
MADE = ("commands/index.md", "configuration/index.md")
"""Pages that exist only in the site, whose build checks links, too."""
TINY = [
    "trainer.max_steps=2", "loader.max_tokens=256", "model.dim=16", "model.ffn_dim=16",
    "model.encoder_layers=1", "model.decoder_layers=1", "task.validation.every=0",
    "tokenizer.vocab_size=null", "generation.limit.extra=2", "generation.limit.ratio=0.2",
    "schedule.warmup_steps=1",
]  # fmt: skip
TRAIN = ("python train.py", "seqattn train")
TRAININGS = [
    command
    for command in dict.fromkeys(
        [*commands(TRAIN, "README.md", *DOCS), *examples("python train.py")]
    )
    if not re.search(r" --|resume=|init_from=|search=|=\[OUT,OUT2\]", command)
]
PAGES_OF_HELP = [
    command
    for command in commands(PROGRAMS, "README.md", *DOCS)
    if re.search(r" --(help|hydra-help|cfg|info)", command)
]
RUN_ALWAYS = ("train.py resume=", "train attention=sliding_window ", "run_dir=study ")
"""One that goes on, a training, and several; the others run by -m exhaustive."""
MORE = pytest.mark.exhaustive


def kinds(found, often):
    """Parameters: commands, of which only some are tried by default."""
    return [pytest.param(c, id=c, marks=() if often(c) else MORE) for c in found]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus in each format, and inputs to generate from."""
    folder = tmp_path_factory.mktemp("pages")
    write_corpus(folder)
    for split in ("train", "val", "test"):
        shutil.copy(folder / f"{split}.de", folder / f"{split}.fr")
        sources = (folder / f"{split}.en").read_text(encoding="utf-8").splitlines()
        (folder / f"{split}.lemma").write_text("".join(f"{n % 3}\n" for n in range(len(sources))))
    write_documents(folder)
    write_questions(folder)
    text = "Ann met Dan in town."
    row = {"document": text, "question": "Who met?", "context": text}
    (folder / "FILE.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "FILE").write_text("a dog sees a ball .\n\nthe cat\n")
    (folder / "FILE.html").write_text("<p>a <b>dog</b>\n<p>the cat")
    (folder / "FILE.tsv").write_text("a dog sees a ball .\te\nthe cat\td \n")
    (folder / "FILE.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\na dog\n")
    (folder / "FILE.po").write_text('msgid "a dog"\nmsgstr ""\n')
    unit = "<file><body><trans-unit><source>a dog</source></trans-unit></body></file>"
    (folder / "FILE.xlf").write_text(f'<xliff version="1.2">{unit}</xliff>')
    with zipfile.ZipFile(folder / "FILE.docx", "w") as archive:
        archive.writestr("word/document.xml", "<a><p><r><t>a dog</t></r></p></a>")
    (folder / "GLOSSARY.tsv").write_text("dog\td\nsees\td\n")
    pairs = (folder / "val.en").read_text().splitlines()
    (folder / "LINKS").write_text("0-0 1-1\n" * len(pairs))
    stages = "stages: [one]\none: [original 1, until original inf]\nnum_fields: 3\n"
    (folder / "train.yml").write_text(f"datasets:\n  original: corpus.tsv\n{stages}")
    return folder


@pytest.fixture(scope="module")
def run(folder):
    """A training on the corpus; its bundle is RUN/model."""
    assert (
        run_subcommand("train", [*settings(folder, "python train.py"), f"run_dir={folder}/RUN"])
        == 0
    )
    return folder / "RUN"


@pytest.fixture(scope="module")
def answering(folder):
    """A training on the questions; its bundle is QA/model."""
    arguments = settings(folder, "python train.py task=qa")
    assert run_subcommand("train", [*arguments, f"run_dir={folder}/QA"]) == 0
    return folder / "QA"


def settings(folder, command):
    """The arguments of a training command, tiny, on data of ours where it names none."""
    given = [re.sub("=(DIR|data/demo_translation)$", f"={folder}", w) for w in shlex.split(command)]
    given = [word for word in given[2:] if not word.startswith("trainer.max_")]
    chosen = dict(word.split("=", 1) for word in given if "=" in word)
    spans = chosen.get("task") == "qa" or "squad_" in chosen.get("experiment", "")
    sizes = [word for word in TINY if word.partition("=")[0] not in chosen]
    if spans:
        dropped = ("model.ffn_dim", "model.decoder_layers", "generation")
        sizes = [word for word in sizes if not word.startswith(dropped)]
        sizes += ["loader.window=64", "loader.stride=32", "loader.max_question=32"]
    if "rnn" in command:
        sizes = [word for word in sizes if not word.startswith("model.ffn_dim")]
    if "task=summarization" in command:
        sizes += ["loader.max_length=64", "loader.max_source_length=64"]
    data = []
    if not {"data", "experiment"} & chosen.keys():
        task = chosen.get("task", "translation")
        name = {"translation": "parallel_text", "summarization": "aeslc"}.get(task, "squad")
        data = [f"data={name}", f"data.root={folder}"]
        if task == "translation":
            data += ["data.source_suffix=en", "data.target_suffix=de"]
    return [*data, *given, *sizes, f"cache_dir={folder}/cache", "trainer=cpu"]


def test_the_readme_is_short():
    assert len(PAGES["README.md"].splitlines()) <= 90


def test_every_choice_that_changes_a_model_its_data_or_its_search_is_named():
    text = "\n".join(PAGES.values())
    missing = [
        f"{group}={choice}"
        for group in ("attention", "position", "model", "task", "data", "tokenizer", "generation")
        for choice in groups()[group]
        if f"`{choice}`" not in text and f"{group}={choice}" not in text
    ]
    assert missing == []


def keys_of(node):
    """The keys of a node of conf/ and of those in it, but Hydra's own."""
    for key, value in node.items() if isinstance(node, dict) else ():
        if key not in ("defaults", "hydra") and not key.startswith("_"):
            yield key
            yield from keys_of(value)


def test_every_key_of_the_configuration_is_named_in_code():
    code = re.findall(r"```.*?```|`[^`\n]+`", "\n".join(PAGES.values()), re.DOTALL)
    named = set(re.findall(r"\w+", "\n".join(code)))
    missing = [
        f"{path.relative_to(CONF)}: {key}"
        for path in CONF.rglob("*.yaml")
        # loggers have keys of their libraries
        if not {"experiment", "logger", "search"} & {path.parent.name, path.stem}
        for key in keys_of(yaml.safe_load(path.read_text("utf-8")))
        if key not in named
    ]
    assert missing == []


def test_the_keys_of_the_page_for_users_of_other_toolkits_are_there():
    rows = [
        line.split("|")[1] for line in PAGES["coming_from.md"].splitlines() if line[:3] == "| `"
    ]
    words = [word for row in rows for word in re.findall(r"`([\w.]+=\S+)`", row)]
    data = [f"data={word[5:]}" for word in words if word.startswith("data=")]
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        for word in words:
            group = word.partition("=")[0]
            other = ["attention=bahdanau"] if word == "model=rnn" else []
            tried = data if group.startswith("data.") else [None]
            tried += ["model=rnn"] if group == "attention" else []
            assert any(_composes([*filter(None, [one]), word, *other]) for one in tried), word
    assert len(words) > 40


def _composes(words):
    try:
        return compose("train", words)
    except HydraException:
        return None


def test_every_link_leads_somewhere():
    for page, text in PAGES.items():
        home = ROOT if page == "README.md" else (ROOT / "docs" / page).parent
        links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
        links = [link for link in links if link not in MADE]
        assert [link for link in links if not (home / link).exists()] == []


def test_the_home_page_leads_to_every_page():
    links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)", PAGES["index.md"])}
    assert {page for page in PAGES if "/" not in page} - links == {"README.md", "index.md"}


def test_the_support_table_is_what_the_attentions_declare():
    table = PAGES["mechanisms.md"].split(BEGIN)[1].split(END)[0]
    made = support_table(build(choices("attention")), build(choices("position")))
    assert table == made, "run python scripts/support.py"


def test_there_are_commands_of_each_kind():
    names = ["compare", "data", "explanations", "heads", "report", "search", "tasks"]
    pages = ["README.md", *(f"{name}.md" for name in names)]
    named = {subcommand_and_words(command)[0] for command in commands(PROGRAMS, *pages)}
    subcommands = {
        "train",
        "prepare",
        "generate",
        "evaluate",
        "compare",
        "analyze",
        "report",
        "convert",
    }
    assert named >= subcommands | {
        "explain",
        "heads",
        "probe",
        "distil",
        "search",
        "export",
        "serve",
    }
    assert len(TRAININGS) > 20
    assert len(commands("python scripts/benchmark.py", "benchmarks.md")) >= 6


@pytest.mark.parametrize("command", TRAININGS)
def test_the_settings_of_a_training_command_are_there_and_fit(command, folder):
    words = [word.replace("DIR", str(folder)) for word in shlex.split(command)[2:]]
    if "-m" in words:  # the first job
        words = [re.sub(r"^([^\[]*?),.*", r"\1", word) for word in words if word != "-m"]
    checked_training(*(word for word in words if not word.startswith(("hydra/", "hydra.launcher"))))


@pytest.mark.parametrize("command", commands("python scripts/benchmark.py", *DOCS))
def test_the_settings_of_a_benchmark_command_are_there(command, folder):
    words = [word.replace("=DIR", f"={folder}") for word in shlex.split(command)[2:]]
    with initialize_config_dir(config_dir=str(SUITES), version_base="1.3"):
        assert plain(compose("benchmark", [f"hydra.searchpath=[file://{CONF}]", *words]))


@pytest.mark.parametrize("command", PAGES_OF_HELP)
def test_a_command_that_shows_something_does(command):
    words = shlex.split(command)
    words = [sys.executable, *(["-m"] * (words[0] == "seqattn")), *words[words[0] == "python" :]]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    kinds(
        [
            c
            for c in commands(TRAIN, "README.md", *ON_OURS)
            if not re.search(
                r" --|submitit_slurm|devices=2|DIR2|OUT|hydra\.search|data\.files|news|dataset="
                "|opus-mt|=pooled|links=FILE|opustrainer=",
                c,
            )
        ],
        lambda c: any(word in f"{c} " for word in RUN_ALWAYS),
    ),
)
def test_a_training_command_runs(command, folder, run, tmp_path, capfd):
    if launcher := re.search("launcher=([a-z]+)", command):
        pytest.importorskip(f"hydra_plugins.hydra_{launcher[1]}_launcher")
    if "resume=" in command:
        arguments = [f"resume={run}", "trainer.max_steps=3"]
    else:
        arguments = [*settings(folder, command), f"run_dir={tmp_path}/run"]
        bundle = re.compile("=(BUNDLE|RUN/model)")
        arguments = [bundle.sub(f"={run}/model", argument) for argument in arguments]
    assert run_subcommand("train", arguments) == 0, capfd.readouterr().err


OF_SUBCOMMANDS = ("python scripts/", "seqattn ")
NOT_ON_A_BUNDLE = (
    "benchmark.py|demo.py|seqattn se|seqattn tr|dataset=|jsonl.gz|input=DIR"
    "|=R/|RUN1|=.DIR.|=ROOT|TEXT|test.pos|question=.Who runs|choose=true"  # in examples
    "|seqattn im|=marian|deu.dev|data.files|=train.en|instead="  # of other models
    "|word=bank|quality=true|seqattn publish|scheduler="
    "|seqattn clean|document_context="  # `clean` needs a val of its own, the other documents
)
IN_README = commands(OF_SUBCOMMANDS, "README.md")


@pytest.mark.parametrize(
    "command",
    kinds(
        [c for c in dict.fromkeys(
            [*commands(OF_SUBCOMMANDS, "README.md", *ON_OURS), *examples(OF_SUBCOMMANDS)]
        ) if not re.search(NOT_ON_A_BUNDLE, c)],
        lambda c: c in IN_README,
    ),
)  # fmt: skip
def test_a_command_runs_on_a_bundle(command, folder, run, tmp_path, capfd, request, monkeypatch):
    monkeypatch.chdir(tmp_path)  # whose files are no part of the checkout
    subcommand, arguments = subcommand_and_words(command)
    if "=QA" in command:
        request.getfixturevalue("answering")
    words = [line.split() for line in (folder / "test.en").read_text().splitlines()]
    tags = [" ".join(f"L{len(word)}" for word in line) for line in words]
    (tmp_path / "LABELS").write_text("\n".join(tags))
    if subcommand == "compare":  # another seed
        shutil.copytree(run, tmp_path / "RUN2")
        config = (run / "config.yaml").read_text(encoding="utf-8")
        (tmp_path / "RUN2/config.yaml").write_text(re.sub(r"(?m)^seed: .*", "seed: 7", config))
    elif "RUN2" in command:
        (tmp_path / "RUN2").symlink_to(run)
    places = {
        "=RUN": f"={run}",
        "=runs/demo/": f"={run}/",
        "=runs/mine/": f"={run}/",
        "[study]": f"[{run},{tmp_path}/RUN2]",
        "input=data/demo_translation/test.en": f"input={folder}/FILE",
        "[RUN/model,RUN2/model]": f"[{run}/model,{tmp_path}/RUN2/model]",
        "=QA": f"={folder}/QA",
        "=REVERSE": f"={run}",
        "input=FILE": f"input={folder}/FILE",
        "terms.file=GLOSSARY": f"terms.file={folder}/GLOSSARY",
        "links=FILE": f"links={folder}/LINKS",
        "prefix=Sie kau": "prefix=e",  # this vocabulary knows few letters
        "source=FILE": f"source={folder}/FILE",
        "target=FILE2": f"target={folder}/FILE",
        "[RUN,RUN2]": f"[{run},{tmp_path}/RUN2]",
        "[RUN2": f"[{run}",
        "output=DIR2": f"output={tmp_path}/converted",
        "output=FILE": f"output={tmp_path}/out",
        "output=DIR": f"output={tmp_path}/output",
        "data.root=DIR": f"data.root={folder}",
        "=OUT": f"={tmp_path}/OUT",
        "=LABELS": f"={tmp_path}/LABELS",
    }
    for placeholder, place in places.items():
        arguments = [argument.replace(placeholder, place) for argument in arguments]
    if subcommand == "generate" and not re.search("input=|text=|question=", command):
        arguments.append(f"input={folder}/FILE")
    assert run_subcommand(subcommand, arguments) == 0, capfd.readouterr().err


def test_the_python_of_the_pages_runs(folder, run, answering, tmp_path, capfd):
    short = {"trainer.max_steps": 2, "+trainer.lightning.limit_val_batches": 1}
    short |= {"data": "parallel_text", "data.root": folder}
    values = {"short": short | {"data.source_suffix": "en", "data.target_suffix": "de"}}
    replaced = {
        '"RUN/model"': repr(str(run / "model")),
        '"QA/model"': repr(str(answering / "model")),
        '"runs/mine"': repr(str(tmp_path / "mine")),
        '"pictures"': repr(str(tmp_path / "pictures")),
        '"trainer.max_epochs": 4': "**short",
        "model.dim=128": "model.dim=16",
        '"Sie sieht mei"': '"a"',  # this vocabulary knows few letters
    }
    for page in ("explanations.md", "python.md"):
        for block in blocks(page, "python"):
            for written, meant in replaced.items():
                block = block.replace(written, meant)
            exec(block, values)
    assert values["result"].steps == 2
    assert values["maps"]["decoder.layers.0.cross_attention"]
    assert values["network"](values["source"], values["target"]).shape == (2, 5, 100)
    made = f"bundle={values['result'].bundle}"
    words = [made, f"input={folder}/FILE", "generation=greedy", "processor=[no_repeat_ngram]"]
    assert run_subcommand("generate", words) == 0, capfd.readouterr().err
    assert run_subcommand("generate", [made, *words[1:2], words[3]]) == 0, capfd.readouterr().err


def test_nothing_names_the_package_of_that_name_on_the_public_index():
    tops = "README.md CHANGELOG.md CONTRIBUTING.md Makefile .github conf docs scripts seqattn tests"
    another = r"seqattn\[\w+|pip install (?:-\S+ )*'?seqattn(?!-toolkit)"
    files = [path for top in tops.split() for path in [ROOT / top, *(ROOT / top).rglob("*")]]
    texts = [path for path in files if path.suffix in (".md", ".py", ".yaml", "")]
    for path in filter(Path.is_file, texts):
        found = re.findall(another, path.read_text("utf-8"))
        assert not found, f"{path}: {found}; say 'seqattn-toolkit[NAME]'"
