"""Export of a bundle to a package that Argos Translate and LibreTranslate install."""

import re
import shutil
from pathlib import Path
from typing import Any, cast
from zipfile import ZipFile, ZipInfo

from seqattn import __version__
from seqattn.bundle.bundle import Bundle
from seqattn.bundle.files import CARD
from seqattn.data.languages import known_language, language_name
from seqattn.errors import UserError
from seqattn.extras.exchange.ctranslate_export import write_ctranslate2
from seqattn.inputs import read_json
from seqattn.storage import write_json

PACKAGE = "translate.argosmodel"
"""File that Argos Translate installs, a zip of a folder; its name is free."""


def write_argos(
    bundle: Bundle,
    new: Path,
    quantize: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
) -> dict[str, str]:
    """Write a package and its page, once CTranslate2 reproduces the bundle's scores.

    Args, Returns: as `write_ctranslate2`, and as `Export`.

    Raises:
        UserError: Argos Translate or CTranslate2 lacks a part of the bundle, or its scores differ.
    """
    task, data = (cast(Any, bundle.config.get(key) or {}) for key in ("task", "data"))
    _check(bundle, task.get("name"), data)
    source = _language(data, "source", source_language)
    target = _language(data, "target", target_language)
    names, folder = [*map(language_name, (source, target))], new / f"translate-{source}_{target}"
    model = folder / "model"
    model.mkdir(parents=True)
    checked = write_ctranslate2(bundle, model, quantize)
    vocabulary, *models = bundle.tokenizer.file_names  # Argos also decodes targets by the first
    (model / vocabulary).rename(folder / "sentencepiece.model")
    for name in (*models, "tokenizer.json", CARD):
        (model / name).unlink()
    write_json(folder / "metadata.json", {
        "package_version": "1.0", "argos_version": "1.11.0",
        "from_code": source, "from_name": names[0], "to_code": target, "to_name": names[1],
    })  # fmt: skip
    for directory in (folder, new):
        (directory / CARD).write_text(_card(" to ".join(names), source, target), encoding="utf-8")
    with ZipFile(new / PACKAGE, "w") as archive:
        for path in sorted(filter(Path.is_file, folder.rglob("*"))):
            entry = ZipInfo(path.relative_to(new).as_posix())  # without its time
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    shutil.rmtree(folder)
    splitter = "no model that splits texts is in the package; Argos downloads its own"
    return {"languages": " to ".join(names), "sentences": splitter, **checked}


def _check(bundle: Bundle, task: str | None, data: Any) -> None:
    """Raise UserError if Argos does not read or write texts as the bundle does."""
    tokenizer = bundle.tokenizer
    words = tokenizer.encode_target(["a", "a"])
    has_space = " " in tokenizer.decode_target([[*words[0], *words[1]]])[0]
    has_class = "side" in read_json(bundle.path / "tokenizer.json", "a tokenizer")
    marks = tokenizer.source_begin or tokenizer.target_begin
    for reason, applies in {
        f"runs task=translation, not task={task}; use to=ctranslate2": task != "translation",
        "reads single sentences; train without data.documents": bundle.reads_documents,
        "puts no tags before sources; train without data.tag_columns": data.get("tag_columns"),
        "puts no language codes before texts; use to=ctranslate2": marks,
        "restores no capital letters; train with tokenizer.truecase=false": tokenizer.truecaser,
        "needs a sentencepiece model that puts a space before each text; train with tokenizer=bpe "
        "or unigram": has_class or not has_space,
    }.items():
        if applies:
            raise UserError(f"Argos Translate {reason}")


def _language(data: Any, side: str, code: str | None) -> str:
    """Return a code as given, or that of the language, suffix or column that the data names."""
    names = (str(data.get(side + key)) for key in ("_language", "_suffix", "_column", ""))
    code = code or next((codes[1] for codes in map(known_language, names) if codes), "")
    if not re.fullmatch("[a-z]{2,3}", code):
        raise UserError("set source_language and target_language to codes such as en and de")
    return code


def _card(languages: str, source: str, target: str) -> str:
    """Return instructions to install and run a package, as a Markdown page."""
    return f"""# {languages} for Argos Translate

Exported by seqattn {__version__}. Run this where Argos Translate or LibreTranslate is installed:

```bash
python -c "import argostranslate.package as p; p.install_from_path('DIR/{PACKAGE}')"
argos-translate --from-lang {source} --to-lang {target} "TEXT"
```

The package has no model that splits texts into sentences: Argos downloads its own at the first
translation. It also searches in its own way, with a beam of 4 and a length penalty of 0.2.
"""
