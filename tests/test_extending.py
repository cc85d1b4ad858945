"""The parts that docs/extending.md shows: written to a folder, trained with, trusted or refused."""

import importlib
import json
import pickle
import re
import shlex
import subprocess
import sys

import pytest
import torch
import yaml

import seqattn
from seqattn.__main__ import main
from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.masks import Mask
from seqattn.cli.main import run_subcommand
from seqattn.errors import UserError
from seqattn.installation import CONF
from seqattn.positions import RotaryPosition, Stack
from seqattn.tokens import EOS
from tests.cli.small import SIZES, checked_training, pairs, run
from tests.pages import PAGES, ROOT, blocks, commands, files

PAGE = "extending.md"
FILES = files(PAGE)
OWN = "--config-dir ./conf"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with the page's package and conf, which is where commands are run."""
    home = tmp_path_factory.mktemp("own")
    for name, text in FILES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    for split in ("train", "val", "test"):
        rows = "".join(f"{source}\t{target}\n" for source, target in pairs())
        (home / f"{split}.tsv").write_text(rows, encoding="utf-8")
    (home / "FILE").write_text("a dog sees a ball .\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.syspath_prepend(home)
        yield home


def train(command, home, *more):
    words = shlex.split(command.replace("=DIR", "=."))[2:]
    data = (
        [] if "data=" in command or "experiment=" in command else ["data=proverbs", "data.path=."]
    )
    given = {word.partition("=")[0] for word in words}
    given |= {"tokenizer.vocab_size"} if "tokenizer" in given else set()  # a key of others
    sizes = [size for size in SIZES if size.partition("=")[0] not in given]
    arguments = [*data, *words, *sizes, f"cache_dir={home}/cache", "trainer.max_steps=2", *more]
    return run_subcommand("train", arguments)


@pytest.fixture(scope="module")
def bundle(home):
    """A bundle in which every part of the page is at work but the position scheme."""
    parts = "task=slogans processor=[no_stutter] logger=[jsonl] checkpoint.monitor=val/brevity"
    command = f"seqattn train {OWN} experiment=mine data.path=. {parts}"
    assert train(command, home, f"run_dir={home}/RUN") == 0
    return home / "RUN" / "model"


def test_the_kernel_is_short():
    assert len(FILES["mine/cosine.py"].splitlines()) <= 40


def test_the_table_counts_the_lines_of_the_page():
    def count(name):
        return sum(not re.match(r"# (mine|conf)/", line) for line in FILES[name].splitlines())

    for part, names in (
        ("a kernel", ("mine/cosine.py", "conf/attention/cosine.yaml")),
        ("a position scheme", ("mine/kerple.py", "conf/position/kerple.yaml")),
        ("a processor", ("mine/stutter.py", "conf/processor/no_stutter.yaml")),
        ("a data source, of pairs or questions", ("mine/proverbs.py", "conf/data/proverbs.yaml")),
        ("a tokenizer", ("mine/words.py", "conf/tokenizer/words.yaml")),
        ("a metric (scorer)", ("mine/brevity.py", "conf/task/slogans.yaml")),
        ("a logger", ("mine/jsonl.py", "conf/logger/jsonl.yaml")),
    ):
        [told] = re.findall(rf"\| {re.escape(part)} \|[^|]*\| (.*?) \|", PAGES[PAGE])
        assert told == " + ".join(str(count(name)) for name in names), part


def test_every_part_is_in_the_bundle_by_its_path(bundle):
    text = (bundle / "config.yaml").read_text(encoding="utf-8")
    config = yaml.safe_load(text)
    assert config["attention"]["kernel"]["_type_"] == "mine.cosine.CosineKernel"
    for name in ("stutter.NoStutter", "proverbs.Proverbs", "brevity.BrevityScorer"):
        assert f"_type_: mine.{name}" in text
    scores = seqattn.load(bundle, trust=["mine"]).scores
    assert 0 < scores["val/brevity"] <= 100


def test_the_logger_is_told_settings_numbers_and_samples(bundle, home):
    lines = map(json.loads, (home / "RUN" / "log.jsonl").read_text("utf-8").splitlines())
    settings, *rows = lines
    assert settings["model"]["dim"] == 16
    assert {"samples", "train/loss", "final/val/brevity"} <= {key for row in rows for key in row}


def test_several_scorers_each_give_their_scores_and_signatures(home, tmp_path, capfd):
    command = f"seqattn train {OWN} task=scored_twice task.scorer.0.tokenize=none"
    assert train(command, home, f"run_dir={tmp_path}/run") == 0
    scores = seqattn.load(tmp_path / "run", trust=["mine"]).scores
    assert scores["val/brevity signature"] == "characters"
    assert "|tok:none|" in scores["val/bleu signature"]
    assert "val brevity " in capfd.readouterr().err
    words = [f"bundle={tmp_path}/run/model", "trust=[mine]", "data.path=.", "generation=greedy"]
    assert run_subcommand("evaluate", [*words, "scorer.0.tokenize=char"]) == 0
    file = tmp_path / "run" / "evaluation" / "test-generation-scorer" / "scores.json"
    evaluated = json.loads(file.read_text(encoding="utf-8"))["scores"]
    assert [*evaluated] == ["BLEU", "chrF", "brevity"]
    assert "|tok:char|" in evaluated["BLEU"]["signature"]
    capfd.readouterr()
    assert run_subcommand("evaluate", [*words, "scorer.tokenize=none"]) == 2
    assert "did you mean scorer.0.tokenize?" in capfd.readouterr().err


def test_a_scorer_that_cannot_be_compared_is_refused_before_any_evaluation(
    bundle, home, tmp_path, capfd
):
    (home / "mine" / "short.py").write_text("class Short:\n    score = logged = ()\n", "utf-8")
    for name in ("config.yaml", "result.yaml"):
        (tmp_path / name).symlink_to(bundle.parent / name)
    (tmp_path / "model").mkdir()
    config = (bundle / "config.yaml").read_text("utf-8")
    config = config.replace("mine.brevity.BrevityScorer", "mine.short.Short")
    (tmp_path / "model" / "config.yaml").write_text(config, "utf-8")
    assert run_subcommand("compare", [f"runs=[{tmp_path}]", "trust=[mine]"]) == 2
    assert capfd.readouterr().err == (
        "error: compare needs a scorer with the method sentences(), which Short lacks; add it, see "
        "Add a metric in docs/extending.md\n"
    )


def test_an_own_tokenizer_is_stored_and_imported_with_trust_alone(home, tmp_path, capfd):
    command = f"seqattn train {OWN} tokenizer=words tokenizer.most=9 run_dir={tmp_path}/run"
    assert train(command, home) == 0
    resumed = f"seqattn train {OWN} resume={tmp_path}/run"
    assert run_subcommand("train", [*shlex.split(resumed)[2:], "trainer.max_steps=3"]) == 0
    model = tmp_path / "run" / "model"
    bundle = seqattn.load(model, trust="mine")
    side = bundle.tokenizer
    assert (side.source_size, side.joint) == (13, True)
    texts = ["a dog sees unheard", "", "a ball"]
    assert [row[-1] for row in side.encode_source(texts)] == [EOS] * 3
    assert side.decode_target(side.encode_target(["a unheard", ""])) == ["a ⁇", ""]
    assert pickle.loads(pickle.dumps(side)).fingerprint == side.fingerprint
    words = [f"bundle={model}", "trust=mine", "data.path=.", "generation=greedy"]
    assert run_subcommand("evaluate", words) == 0
    config = yaml.safe_load((model / "config.yaml").read_text(encoding="utf-8"))
    config["tokenizer"] = {"_type_": "TokenizerConfig"}  # now tokenizer.json alone names the class
    config["data"] = {"_type_": "DemoTranslation"}
    (model / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    with pytest.raises(UserError, match=r"the tokenizer names mine\.words\.WordSide, which is not"):
        seqattn.load(model)
    file = model / "tokenizer.json"
    head = json.loads(file.read_text(encoding="utf-8"))
    for path in ("minefield.WordSide", "mine.words.Words", "mine.words.absent", "mine", ""):
        file.write_text(json.dumps({**head, "side": path}), encoding="utf-8")
        with pytest.raises(UserError, match="the tokenizer names"):
            seqattn.load(model, trust=["mine"])


def test_the_bundle_is_refused_without_trust(bundle):
    with pytest.raises(UserError, match=r"mine\..* is not part of seqattn; load it with trust="):
        seqattn.load(bundle)
    assert run_subcommand("generate", [f"bundle={bundle}", "input=FILE"]) == 2


def test_the_trusted_bundle_generates_in_python(bundle):
    found = seqattn.load(bundle, trust=["mine"])
    kernel = found.model.encoder.layers[0].self_attention.kernel
    assert type(kernel).__name__ == "CosineKernel"
    assert len(found.generate(["a dog sees a ball ."])) == 1


ON_RUNS = tuple(f"seqattn {name}" for name in ("generate", "evaluate", "compare"))


@pytest.mark.parametrize("command", commands(ON_RUNS, PAGE))
def test_the_commands_on_the_bundle_run(command, bundle, capfd):
    subcommand, *words = shlex.split(command)[1:]
    words = [word.replace("RUN", str(bundle.parent)) for word in words]
    assert run_subcommand(subcommand, words) == 0, capfd.readouterr().err


@pytest.fixture
def counting(home, capfd):
    """The page's subcommand, as the command line runs it."""
    [page] = [block for block in blocks(PAGE, "yaml") if "_target_: mine.count." in block]
    (home / "conf" / "count.yaml").write_text(page, encoding="utf-8")

    def count(*words):
        code = main(words)
        return code, *capfd.readouterr()

    return count


def test_a_subcommand_of_ones_own_is_listed_and_explained(counting):
    _, listed, _ = counting("help", *OWN.split())
    assert listed.splitlines()[-3].split(maxsplit=1) == ["count", "Count the words of an output."]
    assert "count" not in counting("help")[1].split()
    _, page, _ = counting("count", "--help", *OWN.split())
    assert page.startswith(
        "usage: seqattn count [key=value ...]\n\nCount the words of an output.\n"
    )


def test_a_subcommand_of_ones_own_runs_on_texts_as_they_are_typed(counting, bundle, capfd):
    words = (*OWN.split(), f"bundle={bundle}", "trust=[mine]")
    code, out, _ = counting("count", *words, "text=a dog, a 'ball'")
    assert (code, out.strip().isdecimal()) == (0, True)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("text=a", "missing required key: bundle (add bundle=RUN/model)"),
        ("text=a bundle=x texts=b", "unknown key texts; did you mean text?"),
        ("text=a bundle=x trust=3", "trust must be a list of texts, got 3"),
    ],
)
def test_bad_input_of_a_subcommand_of_ones_own_is_one_line(counting, words, line):
    assert counting("count", *OWN.split(), *words.split()) == (2, "", f"error: {line}\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "_target_: mine.count.Other",
            "cannot import _target_=mine.count.Other: mine.count has no Other",
        ),
        ("bundle: x", "odd.yaml is no subcommand without _target_: PACKAGE.CLASS"),
        ("- x", "FILE must have lists at defaults and _text_, keys at _from_bundle_"),
        ("_text_: text", "FILE must have lists at defaults and _text_, keys at _from_bundle_"),
    ],
)
def test_a_bad_file_of_a_subcommand_is_one_line(counting, tmp_path, text, line):
    file = tmp_path / "odd.yaml"
    file.write_text(text, encoding="utf-8")
    line = line.replace("FILE", str(file))
    assert counting("odd", "--config-dir", str(tmp_path)) == (2, "", f"error: {line}\n")


def test_a_training_begins_with_a_trusted_bundle(bundle, home, tmp_path, capfd):
    sizes = ("trainer.max_steps=1", "task.final=null", "trainer=cpu", f"cache_dir={home}/cache")
    words = ("data=demo_translation", f"init_from={bundle}", f"run_dir={tmp_path}/run", *sizes)
    assert run_subcommand("train", words) == 2
    assert "load it with trust=[mine]" in capfd.readouterr().err
    assert run_subcommand("train", [*words, "trust=[mine]"]) == 0
    assert "mine.cosine" in (tmp_path / "run" / "model" / "config.yaml").read_text()
    again = [word for word in words if not word.startswith("init_from")]
    assert run_subcommand("train", [*again, f"init_from={bundle}", "trust=[mine,more]"]) == 0


def test_a_package_is_found_in_the_folder_that_one_is_in(bundle, home):
    script = ROOT / "scripts" / "generate.py"  # whose own folder is searched, not this one
    words = [sys.executable, script, f"bundle={bundle}", "input=FILE", "trust=[mine]"]
    done = subprocess.run(words, cwd=home, capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1), done.stderr


def test_a_package_is_found_where_the_choices_are_a_setting(home):
    words = ["attention=cosine", "trainer=cpu", "trainer.max_steps=1", "model.dim=9", "run_dir=no"]
    words = [sys.executable, ROOT / "train.py", f"hydra.searchpath=[file://{home}/conf]", *words]
    done = subprocess.run(words, cwd=home, capture_output=True, text=True, check=False)
    assert "num_heads must divide" in done.stderr  # so it was imported


@pytest.mark.parametrize("command", commands("seqattn train", PAGE))
def test_the_settings_of_a_training_are_there_and_fit(command, home):
    words = [word for word in shlex.split(command.replace("=DIR", "=."))[2:] if "conf" not in word]
    checked_training(f"hydra.searchpath=[file://{home}/conf]", *words)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=() if "-k" in command else pytest.mark.exhaustive)
        for command in commands("python -m pytest", PAGE)
    ],
)
def test_the_laws_are_tried_on_the_kernel(command, home):
    words = shlex.split(command.replace("CHECKOUT", str(ROOT)))[1:]
    few = ("-p", "no:cacheprovider", "-k", "cosine and (make_up or pieces)")
    words = [sys.executable, *words, *few]
    done = subprocess.run(words, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", commands("seqattn train", PAGE))
def test_a_training_runs(command, home, tmp_path, capfd):
    assert train(command, home, f"run_dir={tmp_path}/run") == 0, capfd.readouterr().err


def test_a_position_that_reads_queries_is_refused(home):
    words = ("attention=cosine", "position=deberta")
    with pytest.raises(
        UserError, match="attention=cosine does not support position=deberta; choose from"
    ):
        checked_training(f"hydra.searchpath=[file://{home}/conf]", *words)


def test_the_kernel_attends_by_direction_and_decodes_as_in_one_pass(home):
    kernel = importlib.import_module("mine.cosine").CosineKernel(HeadShape(4, 2, 6)).double()
    position = RotaryPosition(Stack(24, 4)).double()
    query, keys, values = (torch.randn(2, heads, 5, 6).double() for heads in (4, 2, 2))
    places = torch.arange(5)
    whole = kernel(query, KeysValues(keys, values), Mask(places, places, causal=True), position)
    louder = KeysValues(3 * keys, values)
    again = kernel(7 * query, louder, Mask(places, places, causal=True), position)
    torch.testing.assert_close(again.context, whole.context)
    cache = kernel.make_cache(1)
    for step in range(5):
        now = slice(step, step + 1)
        mask = Mask(places[now], places[: step + 1], causal=True)
        new = KeysValues(keys[:, :, now], values[:, :, now])
        found = kernel(query[:, :, now], new, mask, position, cache)
        torch.testing.assert_close(found.context, whole.context[:, :, now])


def test_the_position_falls_with_distance_alone(home):
    kerple = importlib.import_module("mine.kerple").KerplePosition(Stack(24, 4))
    x, places = torch.randn(1, 4, 5, 6), torch.arange(5)
    bias = kerple.score_term(x, x, places, places)
    assert bias.shape == (1, 4, 5, 5)
    torch.testing.assert_close(bias[0, 0, 0], -torch.log1p(torch.arange(5.0)))
    torch.testing.assert_close(bias, kerple.score_term(x, x, places[None] + 3, places[None] + 3))


def test_the_processor_stops_a_stutter(home):
    processor = importlib.import_module("mine.stutter").NoStutter(times=2)
    scores = torch.zeros(2, 9)
    processor(scores, torch.tensor([[5, 7, 7], [7, 7, 5]]))
    assert scores[0].isinf().nonzero().tolist() == [[7]]
    assert not scores[1].isinf().any()


@pytest.mark.parametrize("choice", ["attention=sigmoid", "data=table", "logger=csv", "trainer=cpu"])
@pytest.mark.parametrize("option", ["--config-dir={}", "hydra.searchpath=[file://{}]"])
def test_an_own_choice_replaces_the_shipped_one_of_its_name(tmp_path, choice, option, capfd):
    group, _, name = choice.partition("=")
    (tmp_path / group).mkdir()
    file = tmp_path / group / f"{name}.yaml"
    shipped = (CONF / group / file.name).read_text(encoding="utf-8")
    file.write_text(shipped, encoding="utf-8")
    words = [option.format(tmp_path), choice, "--cfg=job"]
    ended = run(capfd, "train", *words)
    assert (ended.code, ended.err) == (0, "")
    file.write_text(f"{shipped}\nmine: of my own\n", encoding="utf-8")
    ended = run(capfd, "train", *words)
    assert (ended.code, ended.err) == (0, f"{tmp_path} replaces the shipped {choice}\n")
    assert "mine: of my own" in ended.out
    file.write_text(f"defaults: [{name}]\n", encoding="utf-8")
    assert "includes itself in its defaults" in run(capfd, "train", *words).err


def test_an_own_class_with_the_name_of_a_shipped_one_is_trained(home, monkeypatch):
    source = "from seqattn.attention.kernels.sigmoid import SigmoidKernel as Shipped\n\n\n"
    (home / "mine" / "sigmoid.py").write_text(f"{source}class SigmoidKernel(Shipped):\n    pass\n")
    choice = (CONF / "attention" / "sigmoid.yaml").read_text(encoding="utf-8")
    own = choice.replace("seqattn.attention.kernels.sigmoid.", "mine.sigmoid.")
    (home / "sigmoid" / "attention").mkdir(parents=True)
    (home / "sigmoid" / "attention" / "sigmoid.yaml").write_text(own, encoding="utf-8")
    command = "seqattn train attention=sigmoid run_dir=sigmoid/run"
    assert train(f"{command} --config-dir ./conf hydra.searchpath=[file://sigmoid]", home) == 0
    config = (home / "sigmoid" / "run" / "model" / "config.yaml").read_text(encoding="utf-8")
    assert config.count("mine.sigmoid.SigmoidKernel") == 1
