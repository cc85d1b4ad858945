"""`python scripts/demo.py run_dir=DIR`: train on the bundled corpus, and show the results."""

import sys
from collections.abc import Sequence
from pathlib import Path

from seqattn.cli.main import run_subcommand

TEST = Path(__file__).resolve().parents[1] / "data" / "demo_translation"
SHOWN = (206, 241, 391)  # lines of the test split with combinations unseen in training


def main() -> int:
    """Train (unless that is done), score, translate and plot; return the exit code."""
    words = sys.argv[1:]
    if len(words) > 1 or any(not word.startswith("run_dir=") for word in words):
        asks_help = {"-h", "--help"} & {*words}
        print("usage: python scripts/demo.py [run_dir=DIR]", file=None if asks_help else sys.stderr)
        return 0 if asks_help else 2
    run = Path(words[0].partition("=")[2] if words else "runs/demo")
    bundle = f"bundle={run / 'model'}"
    if (run / "model" / "config.yaml").is_file():
        print(f"{run} already contains a trained model; remove it to retrain\n")
    else:
        code = run_subcommand("train", ["experiment=demo", f"run_dir={run}"])
        if code:
            return code
    code = run_subcommand("evaluate", [bundle])
    if code:
        return code
    return show(bundle, run)


def is_current(run: Path, settings: Sequence[Path]) -> bool:
    """Return True if `main` finished a run that began after these files were last written."""
    words, *ends = (run / name for name in ("overrides.yaml", "result.yaml", "model/config.yaml"))
    if not (words.is_file() and all(end.is_file() for end in ends)):
        return False
    newest = max(path.stat().st_mtime for path in settings)
    return words.read_text("utf-8") == "- experiment=demo\n" and words.stat().st_mtime > newest


def show(bundle: str, run: Path) -> int:
    """Translate and plot; print the paths of all files."""
    print("\nSentences from the test split (unseen in training):\n")
    english, german = (
        (TEST / f"test.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de")
    )
    for line in SHOWN:
        text = f"text='{english[line - 1]}'"
        code = run_subcommand(
            "analyze", [bundle, text, f"output={run / 'pictures' / f'line_{line}'}"]
        )
        if code:
            return code
        print(f"reference: {german[line - 1]}\n")
    page = run / "report.html"
    code = run_subcommand("report", [bundle, "split=test", f"output={page}"])
    if code:
        return code
    print(f"""
Output files:
  the model                {run / "model"}
  scores and translations  {run / "evaluation"}
  attention heatmaps       {run / "pictures"}   (cross.png: attention to source words)
  training metrics         {run / "csv"}
  report                   {page}   (open in a browser)

Next steps:
  python scripts/generate.py bundle={run / "model"}      translate sentences of its small grammar
  python train.py attention=gqa position=rope         train your own model
  python train.py --help                              list all options""")
    return 0


if __name__ == "__main__":
    sys.exit(main())
