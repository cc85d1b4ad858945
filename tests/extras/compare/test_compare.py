"""`compare`: systems over seeds, significantly different or not, and what is refused."""

import csv
import json
import os
import re
import shutil
import sys
from itertools import combinations

import pytest
import yaml
from safetensors.torch import load_file, save_file

from seqattn.errors import UserError
from seqattn.extras.compare import system_statistics
from seqattn.extras.compare.comparison_files import as_latex, as_markdown, as_page
from seqattn.extras.compare.comparison_tables import pair_table
from seqattn.extras.compare.run_results import Reading, find_runs
from seqattn.extras.compare.system_statistics import MetricFigures, PairFigures, SystemScore
from seqattn.installation import install
from seqattn.metrics.text import TextScorer
from tests.cli.small import refusal, run

SOURCES = [f"{who} sees {what} ." for who in ("a dog", "the cat", "a man", "Ann")
           for what in ("a ball", "the tree", "some bread")]  # fmt: skip
REFERENCES = [f"{who} sieht {what} gern ." for who in ("ein Hund", "die Katze", "ein Mann", "Ann")
              for what in ("einen Ball", "den Baum", "etwas Brot")]  # fmt: skip
SCORER = {"_target_": "seqattn.metrics.text.TextScorer", "tokenize": "none"}
OF_OTHERS = {"_target_": "os.system", "command": "true"}
CONFIG = {
    "format": "seqattn run 3",
    "name": "study",
    "model": {"dim": 16},
    "optimizer": {"lr": 0.01},
    **{node: {} for node in ("data", "loader", "task", "trainer", "checkpoint", "generation")},
}


def write_run(
    home, outputs, seed=1, attention="mha", scorer=SCORER, references=REFERENCES, **settings
):
    """An evaluation of a run of which only the settings are there; returns it."""
    directory = home / "evaluation" / "test"
    directory.mkdir(parents=True)
    choices = {"attention": attention, "model": "transformer"}
    kernel = {"attention": {"_target_": f"of_{home.name}.{attention}"}}  # a class that moves
    config = {**CONFIG, "seed": seed, "run_dir": str(home), "choices": choices, **kernel}
    (home / "config.yaml").write_text(yaml.safe_dump({**config, **settings}))
    rows = zip(SOURCES, references, outputs, strict=True)
    lines = [{"source": s, "references": [r], "output": o} for s, r, o in rows]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / "sentences.jsonl").write_text(text)
    found = TextScorer(scorer["tokenize"]).score(outputs, references)
    scores = {one.name: {"value": one.value, "signature": one.signature} for one in found}
    results = {"bundle": f"{home}/model", "split": "test", "data": "twelve", "scores": scores}
    results |= {"generation": {"beam_size": 2}, "scorer": scorer}
    (directory / "scores.json").write_text(json.dumps(results))
    return directory


def change(evaluation, **results):
    """Other figures in an evaluation's scores.json."""
    file = evaluation / "scores.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **results}))


def spoilt(*rows):
    """Outputs of which these have other words."""
    return [
        "was ist das ?" if row in rows else text.replace("gern", "oft" if row % 2 else "gern")
        for row, text in enumerate(REFERENCES)
    ]


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    """Tests of sentences that are quick."""
    monkeypatch.setattr(system_statistics, "RESAMPLES", 100)
    monkeypatch.setattr(system_statistics, "TRIALS", 100)


def compare(capfd, *words):
    """A comparison."""
    return run(capfd, "compare", *words)


@pytest.fixture
def study(tmp_path):
    """Three seeds of a good system, three of a bad one, and two that are like the good one."""
    made = [
        write_run(tmp_path / f"{name}{seed}", spoilt(*rows), seed, name)
        for name, several in {
            "mha": ([0], [1], [2]),
            "linear": ([0, 1, 3, 4, 5, 7, 8], [0, 1, 2, 3, 5, 6, 9], [1, 2, 4, 5, 6, 8, 10]),
            "gqa": ([3], [4]),
        }.items()
        for seed, rows in enumerate(several, start=1)
    ]
    return f"runs=[{','.join(map(str, made))}]"


def test_systems_are_ranked_where_they_can_be_told_apart_and_only_there(study, capfd):
    ended = compare(capfd, study)
    assert ended.code == 0, ended.err
    words = [line for line in ended.out.splitlines() if line.startswith("BLEU: ")][1:]
    like, mha_or_gqa, other = words
    assert re.fullmatch("BLEU: no significant difference between (mha and gqa|gqa and mha)", like)
    for line in (mha_or_gqa, other):
        assert re.match(r"BLEU: (mha|gqa) is above linear by \d+\.\d\d \(", line)
    assert "the number of seeds differs between systems: mha 3, linear 3, gqa 2" in ended.out
    assert "scores: mean over seeds ± half of the 95 % interval over them; in paren" in ended.out
    assert "identical outputs" not in ended.out


def test_systems_with_identical_outputs_are_named(tmp_path, capfd):
    made = [
        write_run(tmp_path / f"{name}{seed}", spoilt(*rows), seed, name)
        for name, rows in {"mha": [0], "sliding_window": [0], "linear": [1, 2]}.items()
        for seed in (1, 2)
    ]
    ended = compare(capfd, f"runs=[{','.join(map(str, made))}]")
    assert "mha, sliding_window gave identical outputs for every sentence: what dis" in ended.out
    assert "linear gave" not in ended.out


@pytest.mark.parametrize(
    ("p", "bootstrap", "told"),
    [(0.2, 0.01, True), (0.2, 0.06, False), (0.01, 0.01, False), (None, 0.01, False)],
)
def test_a_table_says_why_a_small_p_over_sentences_decides_nothing(p, bootstrap, told):
    pair = PairFigures("a", "b", 1.0, (-1.0, 3.0), p, bootstrap, 0.5)
    notes = pair_table(MetricFigures("BLEU", "", {}, [pair], []))["notes"]
    assert [note.startswith("the verdict is that") for note in notes[1:]] == [True] * told


def test_a_folder_holds_tables_pictures_a_page_and_all_figures(study, tmp_path, capfd):
    ended = compare(capfd, study, f"output={tmp_path}/out")
    assert ended.code == 0, ended.err
    out = tmp_path / "out"
    figures = json.loads((out / "figures.json").read_text())
    bleu = figures["metrics"][0]
    (rows,) = [list(csv.DictReader((out / "table.csv").open()))]
    assert {row["system"]: float(row["BLEU"]) for row in rows} == {
        name: score["mean"] for name, score in bleu["systems"].items()
    }
    mean, low = float(rows[0]["BLEU"]), float(rows[0]["BLEU low"])
    assert f"| {mean:.2f} ± {mean - low:.2f} |" in (out / "table.md").read_text()
    assert r"95 \% interval" in (out / "table.tex").read_text()
    page = (out / "index.html").read_text()
    assert page.count('src="data:image/png;base64,') == len(list(out.glob("*.png"))) == 2
    assert not re.search(r'(src|href)="(?!data:)', page)
    pair = next(one for one in figures["differing"] if set(one["title"].split()) >= {"mha", "gqa"})
    assert len(pair["rows"]) == 5
    gaps = [abs(float(row[-1])) for row in pair["rows"]]
    assert gaps == sorted(gaps, reverse=True)


def test_with_one_seed_nothing_is_ranked(tmp_path, capfd):
    good = write_run(tmp_path / "a", spoilt(0), 1, "mha")
    bad = write_run(tmp_path / "b", spoilt(*range(9)), 1, "linear")
    ended = compare(capfd, f"runs=[{good},{bad}]")
    assert "BLEU: no interval or rank with one seed (mha and linear)" in ended.out
    assert "which says nothing about other seeds: mha above linear (" in ended.out
    assert "significant" not in ended.out
    assert "±" not in ended.out


def test_what_differs_beside_the_name_is_told(tmp_path, capfd):
    first = write_run(tmp_path / "a", spoilt(0), 1, "mha")
    second = write_run(tmp_path / "b", spoilt(1), 1, "linear", optimizer={"lr": 0.02})
    third = write_run(tmp_path / "c", spoilt(1), 2, "linear", optimizer={"lr": 0.02}, threads=7)
    ended = compare(capfd, f"runs=[{first},{second},{third}]")
    assert "optimizer.lr also differs: 0.01, 0.02" in ended.out
    assert "the number of seeds differs between systems: mha 1, linear 2" in ended.out


def test_tables_hold_no_local_path_and_no_interval_below_0(tmp_path, capfd):
    low = ["was ist das ?"] * len(REFERENCES)
    cases = {"a/m30k": [REFERENCES] * 2, "b/m30k": [low, ["ein Hund ist", *low[1:]]]}
    made = []
    for end, outputs in cases.items():
        for seed, output in enumerate(outputs):
            root = f"/home/ann/{end}"
            made.append(write_run(tmp_path / f"{end}{seed}", output, seed, data={"root": root}))
            change(made[-1], data="/home/ann/test.en and /home/ann/test.de")
    ended = compare(capfd, f"runs=[{','.join(map(str, made))}]", f"output={tmp_path}/out")
    assert ended.code == 0, ended.err
    text = (tmp_path / "out" / "table.tex").read_text()
    assert "/home" not in text + ended.out
    assert "sentences from test.en and test.de" in text
    assert r"data.root=a/m30k & 2 & 100.00 $\pm$ 0.00" in text
    assert re.search(r"data.root=b/m30k & 2 & 0\.\d\d \(0 to 9\.\d\d\)", text), text


def test_systems_are_named_by_all_that_tells_them_apart(tmp_path, capfd):
    rates = [("mha", 0.01), ("mha", 0.02), ("gqa", 0.01)]
    made = [
        write_run(tmp_path / str(n), spoilt(n), 1, name, optimizer={"lr": rate})
        for n, (name, rate) in enumerate(rates)
    ]
    ended = compare(capfd, f"runs=[{','.join(map(str, made))}]")
    rows = {line.strip("│ ").split("│")[0].strip() for line in ended.out.splitlines()}
    assert {f"attention={name} optimizer.lr={rate}" for name, rate in rates} <= rows


def test_spellings_of_a_folder_name_no_system(tmp_path, capfd):
    made = [
        write_run(tmp_path / str(n), spoilt(n), n, data={"root": f"/x{end}", "train": f"/y{end}"})
        for n, end in enumerate(("/data", "/data/", "//data", "/data/."))
    ]
    out = compare(capfd, f"runs=[{','.join(map(str, made))}]").out
    assert re.search("│ study │ +4 │", out)
    paths = [write_run(tmp_path / f"o{n}", spoilt(n), 1, data={"root": f"/x/{n}/"}) for n in (0, 1)]
    assert "data.root=0" in compare(capfd, f"runs=[{','.join(map(str, paths))}]").out


def test_what_changes_no_result_names_no_system(tmp_path, capfd):
    made = [
        write_run(
            tmp_path / name, spoilt(n), optimizer={"lr": rate}, logger={name: {}},
            choices={"attention": "mha", "logger": name},
        )
        for n, (name, rate) in enumerate({"csv": 0.01, "wandb": 0.02}.items())
    ]  # fmt: skip
    ended = compare(capfd, f"runs=[{made[0]},{made[1]}]")
    assert "one seed (optimizer.lr=0.02 and optimizer.lr=0.01)" in ended.out
    assert "logger" not in ended.out


REFUSED = {
    "sentences": (
        {"references": REFERENCES[::-1]},
        "cannot compare runs scored on different sentences",
    ),
    "metric": (
        {"scorer": {**SCORER, "tokenize": "char"}},
        "cannot compare runs that computed BLEU differently: "
        "nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:",
    ),
    "seed": ({"attention": "mha"}, "A and B are the same system with seed=1; remove one"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_runs_that_cannot_be_compared_are_refused_with_what_differs(case, tmp_path, capfd):
    changed, words = REFUSED[case]
    first = write_run(tmp_path / "a", spoilt(0))
    second = write_run(tmp_path / "b", spoilt(1), **{"attention": "gqa", **changed})
    said = refusal(capfd, "compare", f"runs=[{first},{second}]")
    assert said.startswith(words.replace("A ", f"{first} ").replace("B ", f"{second} "))


def test_another_split_is_refused(tmp_path, capfd):
    first, second = (write_run(tmp_path / name, spoilt(0), attention=name) for name in "ab")
    change(second, split="val")
    said = refusal(capfd, "compare", f"runs=[{first},{second}]")
    assert said == (
        f"cannot compare runs evaluated on different splits: test in {first}, val in {second}; "
        "evaluate with the same settings"
    )


def test_groups_take_the_place_of_sentences(tmp_path, capfd):
    """Two groups say little, however many sentences they have."""
    outputs = {"mha": spoilt(0), "linear": spoilt(*range(12))}
    made = [
        write_run(tmp_path / f"{name}{seed}", texts, seed, name)
        for name, texts in outputs.items()
        for seed in (1, 2)
    ]
    runs = f"runs=[{','.join(map(str, made))}]"
    for evaluation in made:
        file = evaluation / "sentences.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for number, row in enumerate(rows):
            row["group"] = str(number % 2)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        change(evaluation, group="talk", notes=["rows depend on each other"])
    found = {}
    for words in ("", "group=talk", "group=source"):
        ended = compare(capfd, runs, f"output={tmp_path}/out", *words.split())
        assert ended.code == 0, ended.err
        assert "rows depend" not in ended.out
        found[words] = json.loads((tmp_path / "out/figures.json").read_text())["metrics"][0]
    assert "sentences of the test split in 12 groups (group=source)" in " ".join(ended.out.split())
    assert "tests are over 12 groups of rows (group=source); with fewer than 40, they" in ended.err
    assert found[""] == found["group=talk"]
    talks, sources = (found[words]["pairs"][0] for words in ("group=talk", "group=source"))
    assert talks["difference"] == sources["difference"]
    assert talks["p_randomization"] >= 0.5 > 0.05 > sources["p_randomization"]
    change(made[0], group=None)
    assert "rows: group=None in " in refusal(capfd, "compare", runs)
    said = refusal(capfd, "compare", runs, "group=talk")
    assert said.startswith(f"{made[0]} has no labels of its rows; evaluate it with group=talk")
    for evaluation in made:
        change(evaluation, group=None)
    assert "rows depend on each other" in compare(capfd, runs).out


@pytest.mark.parametrize("more", [-0.5, 0.5])
def test_a_score_that_its_sentences_do_not_give_is_refused(tmp_path, capfd, more):
    home = write_run(tmp_path / "a", spoilt(0))
    scores = json.loads((home / "scores.json").read_text())["scores"]
    scores["BLEU"]["value"] += more
    change(home, scores=scores)
    said = refusal(capfd, "compare", f"runs=[{home}]")
    assert re.match(rf"{home}/sentences.jsonl gives BLEU [\d.]+, but scores.json has ", said)


def test_damage_is_named_and_left_out_on_request_alone(tmp_path, capfd):
    good = write_run(tmp_path / "a", spoilt(0))
    bad = write_run(tmp_path / "b", spoilt(1), attention="gqa")
    lines = (bad / "sentences.jsonl").read_text().splitlines(keepends=True)
    (bad / "sentences.jsonl").write_text("".join([lines[1], *lines[1:]]))
    asked = f"runs=[{good},{bad}]"
    said = refusal(capfd, "compare", asked)
    assert re.match(rf"{bad}/sentences.jsonl gives BLEU [\d.]+, but scores.json has ", said)
    assert said.endswith("; evaluate again; or skip it with unfinished=skip")
    ended = compare(capfd, asked, "unfinished=skip")
    assert ended.code == 0
    assert f"skipped: {bad}/sentences.jsonl gives" in ended.err


def test_a_scorer_of_nobody_that_is_trusted_is_not_made(tmp_path, capfd):
    made = write_run(tmp_path / "a", spoilt(0))
    change(made, scorer=OF_OTHERS)
    said = refusal(capfd, "compare", f"runs=[{made}]")
    assert "names the scorer os.system, which is not trusted" in said


def test_thresholds_that_seeds_found_for_themselves_make_no_other_system(tmp_path, capfd):
    made = [write_run(tmp_path / str(seed), spoilt(seed), seed) for seed in (1, 2)]
    for number, evaluation in enumerate(made):
        change(evaluation, generation={"threshold": 0.1 + number / 10})
    ended = compare(capfd, f"runs=[{made[0]},{made[1]}]", f"output={tmp_path}/out")
    assert ended.code == 0, ended.err
    assert len(json.loads((tmp_path / "out/figures.json").read_text())["runs"]) == 1


def test_how_a_test_set_is_named_makes_no_other_system(tmp_path, capfd):
    source = "seqattn.data.sources.Multi30k"
    named = ({"test": "test_2016_flickr"}, {})  # the latter of a version that had no other
    made = [
        write_run(
            tmp_path / str(seed),
            spoilt(seed),
            seed,
            data={"_target_": source, "root": "there", **data},
        )
        for seed, data in enumerate(named, 1)
    ]
    ended = compare(capfd, f"runs=[{made[0]},{made[1]}]", f"output={tmp_path}/out")
    assert ended.code == 0, ended.err
    assert len(json.loads((tmp_path / "out/figures.json").read_text())["runs"]) == 1


def test_of_many_models_of_one_seed_a_sentence_names_a_dozen_pairs():
    names = [f"system {number}" for number in range(6)]
    scores = {name: SystemScore(float(-number), None, []) for number, name in enumerate(names)}
    pairs = [PairFigures(*two, 1.0, None, None, 0.01, 0.01) for two in combinations(names, 2)]
    *_, line = MetricFigures("BLEU", "", scores, pairs, []).words
    assert line.count(" above ") == 12
    assert line.endswith(" and 3 more")


@pytest.fixture
def sweep(trained, tmp_path):
    """Two seeds of a run, whose search was tuned since."""
    for number in range(2):
        home = tmp_path / "sweep" / str(number)
        shutil.copytree(trained, home)
        config = yaml.safe_load((home / "config.yaml").read_text())
        (home / "config.yaml").write_text(yaml.safe_dump({**config, "seed": number}))
        bundle = (home / "model/config.yaml").read_text()
        (home / "model/config.yaml").write_text(bundle.replace("beam_size: 2", "beam_size: 3"))
    return tmp_path / "sweep"


def cost_in(folder):
    return next(iter(json.loads((folder / "figures.json").read_text())["costs"].values()))


def test_the_runs_of_a_multirun_are_evaluated_and_an_unfinished_one_is_named(
    sweep, tmp_path, capfd
):
    asked = f"runs=[{sweep}]"
    assert "has no evaluation of split=test; set evaluate=true" in refusal(
        capfd, "compare", asked, "evaluate=false"
    )
    ended = compare(capfd, asked, "rounds=1", f"output={tmp_path}/out")
    assert ended.code == 0, ended.err
    assert ended.err.count("evaluating ") == 2
    first = sweep / "0/evaluation/test"
    assert json.loads((first / "scores.json").read_text())["generation"]["beam_size"] == 3
    cost = cost_in(tmp_path / "out")
    assert cost["parameters"] > 1000
    assert cost["cache_bytes"] == 32 * cost["cache_bytes_per_token"]
    assert len(cost["sentences_per_second"]) == 1
    change(first, generation=OF_OTHERS)
    said = refusal(capfd, "compare", f"runs=[{first}]", "rounds=1")
    assert "names the generation os.system, which is not trusted" in said
    change(first, ensemble=["another/model"])  # of which one model's cost says nothing
    assert compare(capfd, f"runs=[{first}]", "rounds=1", f"output={tmp_path}/out").code == 0
    assert cost_in(tmp_path / "out")["parameters"] is None
    change(first, ensemble=[], rerank={"bundle": "another/model"})
    assert compare(capfd, f"runs=[{first}]", "rounds=1", f"output={tmp_path}/out").code == 0
    assert cost_in(tmp_path / "out")["parameters"] is None
    shutil.rmtree(sweep / "1/evaluation")
    ended = compare(capfd, f"runs=[{sweep}/1,{sweep}/1]")  # before anything is evaluated
    line = f"error: {sweep}/1 and {sweep}/1 are the same system with seed=1; remove one\n"
    assert (ended.code, ended.err) == (2, line)
    (sweep / "1/result.yaml").unlink()
    shutil.rmtree(first)  # which is not evaluated again before the other is refused
    said = refusal(capfd, "compare", asked)
    assert said.startswith(f"{sweep}/1 is not finished; continue it with resume=")


def test_an_evaluation_of_other_weights_or_of_another_bundle_is_not_a_run_s(sweep, capfd):
    run = sweep / "1"
    assert compare(capfd, f"runs=[{run}]").code == 0
    file, known = run / "model/model.safetensors", (run / "evaluation/test/scores.json").stat()
    os.utime(file, (2e9, 2e9))  # it was copied
    assert "evaluating" not in compare(capfd, f"runs=[{run}]").err
    weights = load_file(str(file))
    name = next(iter(weights))
    save_file({**weights, name: weights[name] + 1}, str(file))  # it was trained on
    os.utime(file, ns=(known.st_atime_ns, known.st_mtime_ns - 1))
    told = f"{run}/evaluation/test is out of date: {{}} changed; using it anyway"
    ended = compare(capfd, f"runs=[{run}]", "evaluate=false")
    assert ended.code == 0, ended.err
    assert told.format("bundle") in ended.err
    assert f"evaluating {run}/model" in compare(capfd, f"runs=[{run}]").err
    assert "evaluating" not in compare(capfd, f"runs=[{run}]").err
    made_from = json.loads((run / "evaluation/test/scores.json").read_text())["made_from"]
    source = next(name for name in made_from if name.endswith("test.en"))
    change(run / "evaluation/test", made_from={**made_from, source: ["1 of other contents"]})
    ended = compare(capfd, f"runs=[{run}]", "evaluate=false")
    assert ended.code == 0, ended.err
    assert told.format(source) in ended.err
    assert f"evaluating {run}/model" in compare(capfd, f"runs=[{run}]").err
    change(run / "evaluation/test", bundle=f"{run}/int8")
    said = refusal(capfd, "compare", f"runs=[{run}]", "evaluate=false")
    assert "has no evaluation of split=test; set evaluate=true" in said
    ended = compare(capfd, f"runs=[{run}/evaluation/test,{sweep}/0]")
    assert f"bundle also differs: {run}/int8, None" in ended.out


def test_jobs_of_a_multirun_come_in_the_order_in_which_they_were_started(tmp_path):
    for name in ("10", "9", "2", "logs"):
        (tmp_path / name).mkdir()
    assert [path.name for path in find_runs([str(tmp_path)])] == ["2", "9", "10"]


def test_a_bundle_is_no_run(trained, capfd):
    said = refusal(capfd, "compare", f"runs=[{trained}/model]")
    assert said.startswith(f"{trained}/model is a bundle; use its run, {trained}")


def test_signs_of_latex_and_html_are_texts_in_tables():
    name, title = r"a_b&c\d <b>", "50 % of #1"
    table = {"title": title, "columns": ["system", "x|y"], "rows": [[name, None]], "notes": ["$2"]}
    tex = as_latex([table])
    assert r"a\_b\&c\textbackslash{}d \textless{}b\textgreater{} & - \\" in tex
    assert r"\caption{50 \% of \#1}" in tex
    assert r"\footnotesize \$2" in tex
    assert r"| system | x\|y |" in as_markdown([table])
    page = as_page(title, [name], [], [table], {}, [])
    assert "<td>a_b&amp;c\\d &lt;b&gt;</td>" in page


@pytest.mark.exhaustive
def test_answers_are_compared_by_exact_match_and_f1(answering, tmp_path, capfd):
    shutil.copytree(answering, tmp_path / "run")
    ended = compare(capfd, f"runs=[{tmp_path}/run]", "split=val", f"output={tmp_path}/out")
    assert ended.code == 0, ended.err
    told = json.loads((tmp_path / "run/evaluation/val/scores.json").read_text())["scores"]
    found = json.loads((tmp_path / "out/figures.json").read_text())["metrics"]
    means = {one["name"]: next(iter(one["systems"].values()))["mean"] for one in found}
    assert means == pytest.approx({name: told[name]["value"] for name in ("EM", "F1")})


def test_without_scipy_it_says_what_to_install(monkeypatch, capfd):
    for name in ("compare", "system_statistics", "comparison_figures", "seed_statistics"):
        monkeypatch.delitem(sys.modules, f"seqattn.extras.compare.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "scipy", None)
    line = f"compare needs scipy; {install('compare')}"
    assert refusal(capfd, "compare", "runs=[study]") == line


DEEP, DEEPER = b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 50_000 + b"1" + b"}" * 50_000


def scores(value):
    return b'{"scores":{"a":{"value":' + value + b',"signature":"x"}}}'


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        *[("scores.json", content, "cannot read .*scores.json; evaluate again")
          for content in (b"{", DEEP, DEEPER, b"[]", scores(b'"x"'), b"\xff", b"9" * 5000, b"",
                          b'{"scores":[]}', b'{"scores":{"a":{"value":1,"signature":5}}}')],
        ("sentences.jsonl", b"", "sentences.jsonl is empty; evaluate again"),
        *[("sentences.jsonl", content, "cannot read .*sentences.jsonl; evaluate again")
          for content in (b"\n", b"{", DEEP, b"\xff",
                          b'{"source":"a","references":[],"output":"b"}\n')],
    ],
)  # fmt: skip
def test_an_evaluation_that_cannot_be_read_is_refused(scored, tmp_path, name, content, reason):
    shutil.copytree(scored, tmp_path / "e")
    (tmp_path / "e" / name).write_bytes(content)
    with pytest.raises(UserError, match=reason):
        Reading("test", False, "cpu", ()).read(tmp_path / "e")
