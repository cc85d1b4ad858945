"""The walkthrough of the site: a hook of MkDocs that trains the demo and puts it on its page.

The run of `experiment=demo` is kept in ~/.cache/seqattn, and trained again when its settings or
corpus change, so that `make docs` takes minutes the first time alone.
"""

import hashlib
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import seqattn  # noqa: E402
from seqattn.cli.main import run_subcommand  # noqa: E402
from seqattn.extras.walkthrough import walkthrough  # noqa: E402
from seqattn.settings.nodes import build  # noqa: E402
from seqattn.storage import default_cache  # noqa: E402

MARK = "<!-- walkthrough -->"
EXAMPLES = (
    "Today the old man will buy two books.",
    "The man whom the woman sees does not sleep.",
    "While she sings, my brother must eat an apple.",
    "Maria switches on the lamp.",
)


def demo() -> Path:
    """Return the bundle of the demo, trained if there is none."""
    corpus = sorted((ROOT / "data" / "demo_translation").glob("*.??"))
    settings = [ROOT / "conf" / "experiment" / "demo.yaml", *corpus]
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in settings)).hexdigest()[:16]
    run = default_cache() / "site" / digest
    if not (run / "model" / "config.yaml").is_file():
        code = run_subcommand(
            "train", ["experiment=demo", "trainer=cpu", "~watch", f"run_dir={run}"]
        )
        if code:
            raise PluginError(f"the demo was not trained: exit code {code}; see above")
    return run / "model"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page's program, style and model."""
    bundle = seqattn.load(demo())
    document = walkthrough.document_of(bundle, build(bundle.config["data"], "data"), EXAMPLES)
    contents = {
        "model.js": walkthrough.data_script(document),
        "page.js": walkthrough.script(),
        "style.css": walkthrough.part("style.css"),
    }
    for name, content in contents.items():
        files.append(File.generated(config, f"walkthrough/{name}", content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the page's body, style and scripts where a page of the site has the mark."""
    scripts = "".join(
        f'<script src="walkthrough/{name}.js" defer></script>\n' for name in ("model", "page")
    )
    body = re.sub(r"\n\s*\n", "\n", walkthrough.part("body.html"))
    style = '<link rel="stylesheet" href="walkthrough/style.css">'
    return markdown.replace(MARK, f"{style}\n{body}\n{scripts}")
