"""Text to subword ids and back, by sentencepiece models that travel with the run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from seqattn.data.side import Pieces, Side
from seqattn.data.vocabulary import BOS, EOS, PAD, UNK, TokenizerConfig, content_key, train_models
from seqattn.errors import UserError

__all__ = ["BOS", "EOS", "PAD", "UNK", "Pieces", "Tokenizer", "TokenizerConfig", "train_tokenizer"]

_FORMAT = "seqattn-tokenizer-1"


class Tokenizer:
    """Turns text into ids and ids into text.

    Args:
        source_model: a serialised sentencepiece model.
        target_model: another for the target side; None if both sides share `source_model`.

    Attributes:
        joint: whether both sides share one vocabulary.
        fingerprint: the models' content in 16 hexadecimal digits.

    Raises:
        UserError: bytes that are no sentencepiece model with our marks.
    """

    def __init__(self, source_model: bytes, target_model: bytes | None = None) -> None:
        self.joint = target_model is None
        self._models = [source_model] if target_model is None else [source_model, target_model]
        self._source = Side(source_model)
        self._target = self._source if target_model is None else Side(target_model)
        digests = "".join(hashlib.sha256(model).hexdigest() for model in self._models)
        self.fingerprint = hashlib.sha256(digests.encode()).hexdigest()[:16]

    @property
    def source_size(self) -> int:
        """Pieces in the source vocabulary."""
        return self._source.size

    @property
    def target_size(self) -> int:
        """Pieces in the target vocabulary."""
        return self._target.size

    def encode_source(self, texts: Sequence[str]) -> list[list[int]]:
        """Gives each text's ids with the end mark and no begin mark."""
        return self._source.encode(texts)

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """Gives each text's ids with the end mark and no begin mark."""
        return self._target.encode(texts)

    def source_offsets(self, texts: Sequence[str]) -> list[Pieces]:
        """Gives each text's ids without marks, and the characters that each id stands for.

        Args:
            texts: each of one line.
        """
        return [self._source.offsets(text) for text in texts]

    def decode_target(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Gives each row's text; pad, begin and end marks say nothing, unknown says "⁇"."""
        marks = (PAD, BOS, EOS)
        rows = [[int(token) for token in row if token not in marks] for row in ids]
        return [self._target.decode(row) for row in rows]

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Names each id of a source row, for plots: "▁" begins a word, "↵" breaks a line."""
        return self._source.pieces(ids)

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        """Names each id of a target row, as `source_pieces` does."""
        return self._target.pieces(ids)

    def save(self, directory: Path) -> None:
        """Writes `tokenizer.json` and the models beside it, the json last and each file whole."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        names = ["joint.model"] if self.joint else ["source.model", "target.model"]
        files = {}
        for name, model in zip(names, self._models, strict=True):
            write_whole(directory / name, model)
            files[name] = hashlib.sha256(model).hexdigest()
        head = {"format": _FORMAT, "joint": self.joint, "files": files}
        write_whole(directory / "tokenizer.json", json.dumps(head, indent=2).encode())

    @classmethod
    def load(cls, directory: Path) -> Tokenizer:
        """Reads what `save` wrote.

        Raises:
            UserError: a file is absent, is not what was written, or was written by another tool.
        """
        path = Path(directory) / "tokenizer.json"
        if not path.is_file():
            raise UserError(f"{directory} must hold a tokenizer: tokenizer.json is not there")
        try:
            head = json.loads(path.read_bytes())
            names = sorted(head["files"]) if head["format"] == _FORMAT else []
            digests = [head["files"][name] for name in names]
        except (ValueError, KeyError, TypeError):
            names = []
        if names not in (["joint.model"], ["source.model", "target.model"]):
            raise UserError(f"{path} must be a tokenizer of seqattn ({_FORMAT}), it is not")
        models = [_read(Path(directory) / n, d) for n, d in zip(names, digests, strict=True)]
        return cls(*models)

    def __getstate__(self) -> list[bytes]:
        """Keeps the models' bytes only: the processors are made from them."""
        return self._models

    def __setstate__(self, state: list[bytes]) -> None:
        """Makes the processors anew."""
        self.__init__(*state)  # type: ignore[misc]


def train_tokenizer(
    source: Iterable[str], target: Iterable[str], config: TokenizerConfig, cache_dir: Path
) -> Tokenizer:
    """Trains the vocabulary that `config` asks for, or finds it in the cache.

    The cache is keyed by the texts and the config, so that another corpus or another size never
    meets an old vocabulary. The same texts and config give the same models on every machine.

    Args:
        source: the training split's source texts; read twice, so iterable more than once.
        target: the target texts, likewise.
        config: kind, size and the rest.
        cache_dir: where trained vocabularies are kept; made if absent.

    Raises:
        UserError: no text, or a size that these texts cannot give.
    """
    # An iterator could be read once only, and the texts are read to hash and again to train.
    source = list(source) if isinstance(source, Iterator) else source
    target = list(target) if isinstance(target, Iterator) else target
    kept = Path(cache_dir) / "tokenizers" / content_key(source, target, config)
    try:
        return Tokenizer.load(kept)
    except UserError:
        # Absent, or damaged from outside: either way it can be made again.
        tokenizer = Tokenizer(*train_models(source, target, config))
        _keep(tokenizer, kept)
        return tokenizer


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all: a temporary name, fsync, rename."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _read(path: Path, digest: str) -> bytes:
    if not path.is_file():
        raise UserError(f"{path} must stand beside tokenizer.json, it is not there")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise UserError(f"{path} is not the file that was saved: truncated or replaced")
    return content


def _keep(tokenizer: Tokenizer, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=kept.parent, prefix=".new-"))
    try:
        tokenizer.save(temporary)
        temporary.chmod(0o755)
        shutil.rmtree(kept, ignore_errors=True)
        try:
            temporary.rename(kept)
        except OSError:
            # Another process has put the same content there since.
            Tokenizer.load(kept)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
