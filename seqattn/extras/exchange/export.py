"""Export of a bundle to another engine or format: the subcommand export."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.files import CARD, read_config
from seqattn.errors import UserError
from seqattn.extras.exchange import ctranslate_export, hf_folder, onnx_export
from seqattn.extras.exchange.argos_export import PACKAGE, write_argos
from seqattn.extras.exchange.hf_export import write_huggingface
from seqattn.screen import print_table
from seqattn.settings.documents import WEIGHTS
from seqattn.storage import new_directory, real_path, user_path
from seqattn.subcommands.bundle_run import BundleRun
from seqattn.subcommands.provenance import RECORD, Provenance, bundle_contents
from seqattn.training.run_directory import room_for_files

_LANGUAGES = "source_language", "target_language"


class Target(NamedTuple):
    """Format that a bundle can be exported to.

    Args:
        title: its name, for display.
        model: the file with the weights.
        write: writes all files into an empty directory, once they are proved to say what the bundle
            says, and returns what was checked, for display. Takes the settings as keywords.
        settings: keys of `Export` that it takes.
    """

    title: str
    model: str
    write: Callable[..., dict[str, str]]
    settings: tuple[str, ...] = ()


TARGETS = {
    "ctranslate2": Target(
        "CTranslate2",
        ctranslate_export.MODEL,
        ctranslate_export.write_ctranslate2,
        ("quantize",),
    ),
    "huggingface": Target("transformers", hf_folder.WEIGHTS, write_huggingface, ("license",)),
    "onnx": Target("ONNX", onnx_export.MODEL, onnx_export.write_onnx, ("quantize",)),
    "argos": Target("Argos Translate", PACKAGE, write_argos, ("quantize", *_LANGUAGES)),
}
"""Targets by the value of `to`."""


@dataclass(frozen=True, kw_only=True)
class Export(BundleRun):
    """Export a Transformer, with its vocabularies and a page on how to run it.

    Args:
        bundle, trust: as `BundleRun`.
        output: directory of the export.
        to: the target, a key of `TARGETS`.
        quantize: type of the saved weights; None for float32. CTranslate2 converts them to any
            other when it loads them; ONNX has only int8.
        source_language, target_language: codes such as "en"; None for those of the data.
        license: of the model card, as the Hugging Face Hub names it.
    """

    output: str
    to: str = "ctranslate2"
    quantize: Literal["int8", "float16", "bfloat16"] | None = None
    source_language: str | None = None
    target_language: str | None = None
    license: str | None = None

    def run(self) -> Path:
        """Write the directory once the target reproduces the bundle's scores, and return it.

        Raises:
            UserError: if the target lacks a part of the bundle, or its scores differ.
        """
        output = real_path(self.output)
        if self.to not in TARGETS:
            raise UserError(f"to must be one of {', '.join(TARGETS)}, got {self.to!r}")
        target = TARGETS[self.to]
        settings = {key: getattr(self, key) for key in ("quantize", *_LANGUAGES, "license")}
        for key, value in settings.items():
            if value is not None and key not in target.settings:
                raise UserError(f"to={self.to} does not support {key}; remove {key}={value}")
        if self.ensemble:
            raise UserError("export takes one bundle; remove ensemble")
        read_config(user_path(self.bundle), self.trust)  # raises an error if it is not a bundle
        provenance = export_record(self.bundle, self.to, **settings)
        if provenance.is_finished(output, target.model):
            return output
        bundle = self.load().texts("export")
        checked = export(bundle, output, provenance)
        size, original = (
            path.stat().st_size
            for path in (output / target.model, user_path(self.bundle) / WEIGHTS)
        )
        kind = self.quantize or "float32"
        rows = {target.model: f"{size:,} bytes in {kind} ({original:,} in {WEIGHTS})", **checked}
        notes = [f"written to {self.output}; its {CARD} explains how to run it"]
        print_table(f"{self.bundle} for {target.title}", rows, notes=notes)
        return output


def export_record(bundle: str | Path, to: str = "ctranslate2", **settings: Any) -> Provenance:
    """Return the record of an export. Args: as `Export`."""
    settings = {"subcommand": "export", "to": to, **settings}
    return Provenance(settings=settings, contents={"bundle": bundle_contents(bundle)})


def export(bundle: Bundle, output: Path, record: Provenance) -> dict[str, str]:
    """Export a bundle into a new directory, once the target reproduces its scores.

    Args:
        bundle: the bundle.
        output: the directory; one that exists is replaced.
        record: of `export_record`, written with it.

    Returns:
        What was checked, for display.

    Raises:
        UserError: the target lacks a part of the bundle, or its scores differ.
    """
    if bundle.config.get("quantize"):
        raise UserError(f"{bundle.path} is already quantized; export the original bundle")
    target = TARGETS[record.settings["to"]]
    settings = {key: record.settings.get(key) for key in target.settings}
    with room_for_files(output.parent), new_directory(output, RECORD) as new:
        checked = target.write(bundle, new, **settings)
        record.write(new)
    return checked
