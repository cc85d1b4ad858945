"""Compare the results of an earlier commit and this checkout, running both.

    python scripts/compare_commits.py BASE [--only WORD ...] [--output DIR]

Both sides train every kind of model, attention, position and task for 20 steps, decode with the
result, stop a run and resume it; then losses, weights, hypotheses and scores are compared to the
bit. This checkout also reads the bundles of BASE and resumes its runs. The script guards the
redesign and is temporary.
"""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[1]
ATTENTIONS = "mha gqa mqa moa sliding_window strided fixed linear performer entmax ring"
ENCODERS = "bigbird linformer lsh xca"
ALIGNMENTS = (
    "bahdanau luong_dot luong_scaled luong_general luong_concat luong_local_m luong_local_p none"
)
POSITIONS = "none learned rope shaw alibi t5 disentangled deberta"
STEPS = 20
HALF = 10
COMMON = (
    "trainer=cpu trainer.threads=1 trainer.max_epochs=-1 trainer.log_every_n_steps=1 "
    "task.final=null model.dim=32 seed=3 resume=auto"
)
TINY = (
    "tokenizer.vocab_size=400 loader.max_tokens=300 model.encoder_layers=1 model.decoder_layers=1"
)
SPANS = "task=qa tokenizer.vocab_size=180"
LAYERS = "model.encoder_layers=1 model.model_layers=1"
TEXTS = ["He buys these books.", "She sees my dogs.", "The old man reads a small book today.", "We"]

DECODE = """
import json, sys
import seqattn
found = {}
for path, texts in json.loads(sys.argv[1]):
    model = seqattn.load(path)
    if isinstance(texts[0], list):
        answers = [found.answers for found in model.answer(*zip(*texts), answers=2)]
        found[path] = {"answers": [[(a.text, a.probability) for a in row] for row in answers]}
        continue
    found[path] = {
        search: [[(h.ids, h.score) for h in row] for row in model.hypotheses(texts, search, **more)]
        for search, more in (("greedy", {}), ("beam", {"beam_size": 4, "n_best": 3}))
    }
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Case:
    """Training run by its command line, and the inputs that its bundle decodes."""

    name: str
    words: str
    inputs: str = "texts"  # texts, questions, or nothing


def cases() -> list[Case]:
    """Return every training of the comparison."""
    built = [Case(f"attention-{x}", f"{TINY} attention={x}") for x in ATTENTIONS.split()]
    slot = "attention@encoder_attention"
    built += [Case(f"encoder-{x}", f"{TINY} {slot}={x}") for x in ENCODERS.split()]
    built += [Case("decoder-streaming", f"{TINY} attention@decoder_attention=streaming")]
    built += [Case(f"position-{x}", f"{TINY} position={x}") for x in POSITIONS.split()]
    rnn = "tokenizer.vocab_size=400 loader.max_tokens=300 model=rnn"
    built += [Case(f"rnn-{x}", f"{rnn} attention={x}") for x in ALIGNMENTS.split()]
    copying = "task=summarization data=demo_summarization model.copy=true loader.max_tokens=600"
    built += [
        Case("rnn-gru-fed", f"{rnn} attention=luong_dot model.cell=gru model.input_feeding=true"),
        Case("copying", f"{TINY} {copying}"),
        Case("rnn-copying", f"{rnn} {copying}"),
        Case("norm-first-swiglu", f"{TINY} model.activation=swiglu model.norm=rmsnorm"),
        Case("bf16", f"{TINY} trainer.precision=bf16-mixed position=rope"),
        Case("r-drop", f"{TINY} task.r_drop=2 task.label_smoothing=0"),
        Case("muon", f"{TINY} optimizer=muon"),
        Case("ema", f"{TINY} callbacks=[ema]"),
        Case("accumulated", f"{TINY} trainer.accumulate_grad_batches=3"),
        Case("scored", f"{TINY} task.final.sentences=30 task.validation.sentences=30"),
        Case("span-rnn", f"{SPANS} model=span_rnn {LAYERS}", "questions"),
        Case("span-transformer", f"{SPANS} model=span_transformer {LAYERS}", "questions"),
        Case("answers-as-texts", f"task=qa_generative {TINY} tokenizer.vocab_size=180", ""),
    ]  # fmt: skip
    return built


def environment(tree: Path) -> dict[str, str]:
    """Return the environment variables that select a side's code for import."""
    return {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}


def execute(tree: Path, *words: str) -> str:
    """Run Python in a tree and return what it prints.

    Raises:
        SystemExit: if it failed, with the end of its output.
    """
    command = [sys.executable, *words]
    done = subprocess.run(
        command, cwd=tree, env=environment(tree), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{tree}: {' '.join(words)[:300]}\n{done.stderr[-2000:]}")
    return done.stdout


def train(tree: Path, case: Case, run: Path, steps: int = STEPS) -> None:
    """Train one case in `run`, or resume it up to `steps`."""
    words = [*f"{COMMON} {case.words}".split(), f"trainer.max_steps={steps}", f"run_dir={run}"]
    if "task.final.sentences" in case.words:
        words.remove("task.final=null")
    words.append(f"cache_dir={run.parent.parent / 'cache'}")
    execute(tree, "train.py", *words)


def losses(run: Path) -> list[dict[str, str]]:
    """Return the logged numbers of a run that do not depend on the clock."""
    timed = ("second", "waiting", "memory", "time", "load")
    rows: list[dict[str, str]] = []
    for path in sorted(run.rglob("metrics.csv")):
        with path.open() as file:
            rows += [
                {k: v for k, v in row.items() if v and not any(word in k for word in timed)}
                for row in csv.DictReader(file)
                if row["train/loss"] or row["step"] == str(STEPS - 1)  # stopping also validates
            ]
    return rows


def run_side(tree: Path, output: Path, chosen: list[Case]) -> None:
    """Train, decode, stop and resume all cases with the code of a tree."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda case: train(tree, case, output / case.name), chosen))
        list(pool.map(lambda case: train(tree, case, output / f"{case.name}.half", HALF), chosen))
    decoded(tree, output, output, chosen, "decoded.json")


def questions() -> list[list[str]]:
    """Return two questions with their contexts."""
    context = "Maria took the green knife. Later Maria gave the knife to Hugo."
    return [["Who has the knife?", context], ["What did Maria take?", context]]


def decoded(tree: Path, bundles: Path, output: Path, chosen: list[Case], name: str) -> None:
    """Write the hypotheses of each case's bundle, decoded by the code of a tree."""
    inputs = {"texts": TEXTS, "questions": questions()}
    work = [
        (str(bundles / case.name / "model"), inputs[case.inputs]) for case in chosen if case.inputs
    ]
    outputs = json.loads(execute(tree, "-c", DECODE, json.dumps(work)))
    named = {Path(path).parent.name: value for path, value in outputs.items()}
    (output / name).write_text(json.dumps(named, indent=1))


def differences(base: Path, today: Path, case: Case) -> list[str]:
    """Return what differs between the runs of both sides."""
    lines = []
    if losses(base) != losses(today):
        ours, theirs = losses(today), losses(base)
        first = next((pair for pair in zip(theirs, ours) if pair[0] != pair[1]), None)
        lines.append(f"losses ({len(theirs)} rows and {len(ours)}; first {first})")
    weights = [load_file(run / "model" / "model.safetensors") for run in (base, today)]
    if list(weights[0]) != list(weights[1]):
        lines.append(f"names of parameters {sorted(set(weights[0]) ^ set(weights[1]))}")
    else:
        unequal = [n for n in weights[0] if not weights[0][n].equal(weights[1][n])]
        lines += [f"weights of {len(unequal)}, as {unequal[0]}"] if unequal else []
    scores = [json.loads((run / "model" / "scores.json").read_text()) for run in (base, today)]
    lines += [f"scores: {scores[0]} and {scores[1]}"] if scores[0] != scores[1] else []
    return [f"{case.name}: {words}" for words in lines]


def compare(base_runs: Path, today: Path, chosen: list[Case]) -> list[str]:
    """Return all differences, including those after this checkout resumes BASE's runs."""
    lines = [line for c in chosen for line in differences(base_runs / c.name, today / c.name, c)]
    decoded(ROOT, base_runs, today, chosen, "of_base.json")
    theirs = json.loads((base_runs / "decoded.json").read_text())
    for name, of in (("decoded.json", "each its own bundle"), ("of_base.json", "BASE's bundle")):
        ours = json.loads((today / name).read_text())
        lines += [f"{case}: hypotheses of {of}" for case in ours if ours[case] != theirs[case]]
    for case in chosen:
        resumed = today / f"{case.name}.resumed"
        shutil.copytree(base_runs / f"{case.name}.half", resumed)
        train(ROOT, case, resumed)
        lines += [f"resumed {x}" for x in differences(base_runs / case.name, resumed, case)]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("base", help="commit to compare with")
    parser.add_argument("--only", nargs="*", default=[], help="cases whose names hold a word")
    parser.add_argument("--output", type=Path, default=ROOT / "runs" / "net")
    options = parser.parse_args()
    chosen = [c for c in cases() if not options.only or any(w in c.name for w in options.only)]
    output = options.output.resolve()
    git = ["git", "-C", str(ROOT)]
    base = subprocess.check_output([*git, "rev-parse", "--short", options.base], text=True).strip()
    tree, base_runs, today = output / f"tree-{base}", output / base, output / "today"
    if not tree.exists():
        subprocess.check_call([*git, "worktree", "add", "--detach", "--quiet", str(tree), base])
    if options.only or not (base_runs / "decoded.json").exists():
        shutil.rmtree(base_runs, ignore_errors=True)
        run_side(tree, base_runs, chosen)
    shutil.rmtree(today, ignore_errors=True)
    run_side(ROOT, today, chosen)
    lines = compare(base_runs, today, chosen)
    print("\n".join(lines) or f"{len(chosen)} cases equal {base} to the bit")
    raise SystemExit(bool(lines))


if __name__ == "__main__":
    main()
