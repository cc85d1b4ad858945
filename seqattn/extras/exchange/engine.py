"""The engine CTranslate2: what it supports, and exports beside bundles."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.files import CARD
from seqattn.errors import UserError
from seqattn.extras.exchange.ctranslate_export import write_ctranslate2
from seqattn.extras.exchange.ctranslate_generator import CTranslateGenerator, Translators
from seqattn.generation.base import Search, listed
from seqattn.generation.beam import BeamSearch
from seqattn.generation.generator import Generator
from seqattn.generation.processors import ForcedPrefix
from seqattn.generation.sampling import GreedySearch
from seqattn.storage import file_faults, new_directory, real_path
from seqattn.subcommands.provenance import RECORD, Provenance, bundle_contents
from seqattn.training.run_directory import room_for_files

_CACHE = {"subcommand": "engine=ctranslate2"}
"""Settings in the record of a cache."""


@dataclass(frozen=True)
class CTranslate2:
    """Greedy and beam search of Transformers by CTranslate2.

    The bundle is exported once to BUNDLE.ctranslate2, and again if it or the export has changed.

    Args:
        required: raise an error for what CTranslate2 does not support; False uses PyTorch for it.
        compute_type: number type of the matrix products, as in `ctranslate2.Translator`.
    """

    required: bool = True
    compute_type: str = "float32"

    def attach(self, bundle: Bundle) -> Bundle:
        try:
            texts = bundle.texts("engine=ctranslate2")
            if texts.ensemble:
                raise UserError("CTranslate2 does not support ensembles")
            if bundle.config.get("quantize"):
                raise UserError(
                    "CTranslate2 does not run int8 bundles; use engine.compute_type=int8 with the "
                    "original bundle"
                )
            translators = Translators(_exported(texts), texts, self.compute_type)
        except UserError as error:
            if self.required:
                raise
            _note(f"engine: PyTorch ({error})")
            return bundle
        note = cache(_note)  # a server searches many times

        def generator(search: Search) -> Generator:
            def otherwise(reason: str) -> Generator:
                if self.required:
                    line = f"engine=ctranslate2 does not support {reason}; use engine=auto"
                    raise UserError(line)
                note(f"engine: PyTorch (CTranslate2 does not support {reason})")
                return Generator(texts.answering, search)

            if reason := _unsupported(texts, search):
                return otherwise(reason)
            note(f"engine: {translators}")
            return CTranslateGenerator(
                texts.model, search, translators=translators, otherwise=otherwise
            )

        return replace(texts, searched_by=generator)


def _exported(bundle: Bundle) -> Path:
    """Return the export beside a bundle, written now unless it is there, complete and unchanged.

    Raises:
        UserError: if something else is there.
    """
    directory = real_path(bundle.path.with_name(f"{bundle.path.name}.ctranslate2"))
    record = Provenance(settings=_CACHE, contents={"bundle": bundle_contents(bundle.path)})
    with file_faults("write", directory), _locked(directory):
        if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
            previous = _record_of_cache(directory)
            record.contents["cache"] = bundle_contents(directory)
            if record == previous:
                return directory
        with room_for_files(directory.parent), new_directory(directory, RECORD) as new:
            write_ctranslate2(bundle, new)
            record.contents["cache"] = bundle_contents(new)
            record.write(new)
            if directory.exists():  # away as a whole, with files that the new one lacks
                directory.rename(new.with_name("before"))
    return directory


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Wait until no other process checks or writes a cache; where none can write, do not lock."""
    if not os.access(directory.parent, os.W_OK):
        yield
        return
    file = directory.with_name(f".{directory.name}.lock")
    with FileLock(file):
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def _record_of_cache(directory: Path) -> Provenance:
    """Return the record of a cache, all of whose files are listed in it.

    Raises:
        UserError: if anything in the directory could be the user's own.
    """
    message = (
        f"{directory} is not a cache of engine=ctranslate2; move or remove it, or use engine=torch"
    )
    try:
        record = Provenance.read(directory)
    except UserError as error:
        raise UserError(message) from error
    if record.settings != _CACHE:
        raise UserError(message)
    names = {RECORD, CARD, *(line.partition(" ")[0] for line in record.contents.get("cache", []))}
    for file in directory.iterdir():
        if file.name not in names:
            raise UserError(f"{file} is not part of a cache of engine=ctranslate2; move it")
    return record


def _unsupported(bundle: Bundle, search: Search) -> str:
    """Return what CTranslate2 lacks for a search of a bundle, "" if nothing."""
    if type(search) not in (GreedySearch, BeamSearch):  # subclasses return or record more
        return type(search).__name__
    if isinstance(search, BeamSearch):
        if search.limit.minimum:  # CTranslate2 ranks by probabilities without the forbidden end
            return "generation.limit.minimum with a beam"
        if search.coverage_penalty:
            return "generation.coverage_penalty"
        if not search.early_stopping:
            return "generation.early_stopping=false"
    for part in bundle.model.modules():
        if getattr(part, "is_observed", False) or getattr(part, "gates", None) is not None:
            return "interventions"
    processors = [one for one in listed(search.processors) if one.constrains]
    if [*map(type, processors)] == [ForcedPrefix]:  # it can force the mark of a language
        first: Any = processors[0]
        if tuple(first.ids) == bundle.tokenizer.target_begin:
            processors = [one for one in first.then if one.constrains]
    return " and ".join(map(str, processors))


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
