"""The walkthrough of the site: a hook of MkDocs that trains the demo and puts it on its page.

The model is that of `make demo` unless its settings or corpus have changed. Without one, a run of
`experiment=demo` is kept in ~/.cache/seqattn, and trained again when these change, so that
`make docs` takes minutes the first time alone.
"""

import hashlib
import re
import sys
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.append(str(ROOT / "scripts"))

from demo import is_current  # noqa: E402

import seqattn  # noqa: E402
from seqattn.analysis.capture import capture  # noqa: E402
from seqattn.bundle.bundle import Bundle  # noqa: E402
from seqattn.cli.main import run_subcommand  # noqa: E402
from seqattn.extras.walkthrough import walkthrough  # noqa: E402
from seqattn.generation.base import inference  # noqa: E402
from seqattn.settings.nodes import build  # noqa: E402
from seqattn.storage import default_cache  # noqa: E402
from seqattn.tokens import BOS  # noqa: E402

MARK, PICTURE = "<!-- walkthrough -->", "<!-- cross-attention -->"
_ROW = 30
"""Pixels of a word in the picture."""
EXAMPLES = (
    "Today the old man will buy two books.",
    "The man whom the woman sees does not sleep.",
    "While she sings, my brother must eat an apple.",
    "Maria switches on the lamp.",
)


def demo() -> Path:
    """Return the bundle of `make demo`, or of a run of its own, trained if there is none."""
    corpus = sorted((ROOT / "data" / "demo_translation").glob("*.??"))
    settings = [ROOT / "conf" / "experiment" / "demo.yaml", *corpus]
    made = ROOT / "runs" / "demo"
    if is_current(made, settings):
        return made / "model"
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in settings)).hexdigest()[:16]
    run = default_cache() / "site" / digest
    if not (run / "model" / "config.yaml").is_file():
        print("training the demo for the site, once (minutes) ...", file=sys.stderr, flush=True)
        code = run_subcommand(
            "train", ["experiment=demo", "trainer=cpu", "~watch", f"run_dir={run}"]
        )
        if code:
            raise PluginError(f"the demo was not trained: exit code {code}; see above")
    return run / "model"


@cache
def trained() -> Bundle:
    """Return the demo's model, for all builds of a process."""
    return seqattn.load(demo())


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page's program, style and model."""
    bundle = trained()
    document = walkthrough.document_of(bundle, build(bundle.config["data"], "data"), EXAMPLES)
    style, data = walkthrough.part("style.css"), walkthrough.data_script(document)
    contents = {"style.css": style, "model.js": data, "page.js": walkthrough.script()}
    for name, content in contents.items():
        files.append(File.generated(config, f"walkthrough/{name}", content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the walkthrough, and a picture of its first sentence, where pages have their marks."""
    if PICTURE in markdown:
        markdown = markdown.replace(PICTURE, picture(EXAMPLES[0]))
    scripts = "".join(
        f'<script src="walkthrough/{name}.js" defer></script>\n' for name in ("model", "page")
    )
    body = re.sub(r"\n\s*\n", "\n", walkthrough.part("body.html"))
    style = '<link rel="stylesheet" href="walkthrough/style.css">'
    return markdown.replace(MARK, f"{style}\n{body}\n{scripts}")


def picture(text: str) -> str:
    """Draw where each output word looks, in the head with the largest weights on source words."""
    bundle = trained()
    [source], [[best]] = bundle.tokenizer.encode_source([text]), bundle.hypotheses([text], "greedy")
    with inference(bundle.model), capture(bundle.model) as maps:
        state = bundle.model.start(bundle.model.encode(torch.tensor([source])), cached=False)
        bundle.model.features(torch.tensor([[BOS, *best.ids]]), state)
    heads = [head for name, calls in maps.items() if "cross" in name for head in calls[0][0]]
    weights = max((head[:-1, :-1] for head in heads), key=lambda head: float(head.amax(1).sum()))
    names = bundle.tokenizer.source_pieces(source[:-1]), bundle.tokenizer.target_pieces(best.ids)
    svg = [
        f'<text x="{x}" y="{_ROW * row + 21}" text-anchor="{end}">{escape(name.strip("▁"))}</text>'
        for side, x, end in zip(names, (140, 300), ("end", "start"))
        for row, name in enumerate(side)
    ]
    for (to, start), weight in np.ndenumerate(weights.numpy()):
        if weight > 0.02:
            y, at = _ROW * start + 15, _ROW * to + 15
            width = f'stroke-width="{1 + 5 * weight:.1f}" stroke-opacity="{weight:.2f}"'
            svg.append(f'<path d="M152,{y} C220,{y} 220,{at} 288,{at}" {width}/>')
    label = escape(f"“{text}”, its translation, and lines to the words that each word looks at")
    box = f'viewBox="0 0 440 {_ROW * max(map(len, names))}" role="img" aria-label="{label}"'
    return f'<svg class="front" {box}>{"".join(svg)}</svg>'
