"""Preparation of a corpus of any size as training shards: clean, tokenize, shuffle."""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa

from seqattn.checking import Count, CountOrNone, Seed, parameters
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig, TokenizerFiles, train_tokenizer
from seqattn.errors import UserError
from seqattn.extras.shards.cleaning import Cleaning
from seqattn.extras.shards.preparation import (
    MAKING,
    lock_directory,
    or_hold_out,
    print_prepared,
    texts_of_chunks,
    timed,
    vocabulary_of,
)
from seqattn.extras.shards.shard_builder import (
    Plan,
    count_chunks,
    make_shards,
    read_chunks,
    shares,
    texts_of,
)
from seqattn.extras.shards.shard_files import (
    FORMAT,
    MANIFEST,
    SIDES,
    TOKENIZER,
    WORK,
    Manifest,
    SplitEntry,
    damaged_files,
    read_manifest,
    write_lengths,
    write_split,
)
from seqattn.processes import cores
from seqattn.roles import Role
from seqattn.screen import progress
from seqattn.settings.data_paths import without_paths
from seqattn.settings.nodes import Node
from seqattn.storage import file_faults, is_file, real_path, user_path, write_whole
from seqattn.subcommands.provenance import RECORD, Provenance, data_contents, digests, say_finished
from seqattn.training.setting_roles import role_in

_CHUNKS = "chunks.json"


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Preparation of a directory that `data=shards` trains from.

    Args:
        data: source of the pairs.
        output: output directory; repeat the command to resume.
        tokenizer: settings of the vocabulary to train.
        clean: rules for dropping pairs.
        vocabulary: prepared directory or bundle whose vocabulary is used; None to train one.
        sample: number of random pairs to train the vocabulary on.
        hold_out: pairs to draw from the training split for validation; 0 to use the validation
            split of `data`.
        shard_pairs: approximate pairs per shard.
        workers: processes; None for one per core.
        scheduler: address of a Dask scheduler, whose workers are used instead.
        cache_dir: cache of `datasets` for validation and test texts; None for its default.
        seed: seed of the order.
        settings: the plain settings that this object was built from.
    """

    data: Any
    output: Annotated[str, Role.NOTE]
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    clean: Cleaning = field(default_factory=Cleaning)
    vocabulary: Annotated[str | None, Role.NOTE] = None  # its contents are recorded instead
    sample: Count = 500_000
    hold_out: CountOrNone = 0
    shard_pairs: Count = 131_072
    workers: Annotated[Count | None, Role.MACHINE] = None
    scheduler: Annotated[str | None, Role.MACHINE] = None
    cache_dir: Annotated[str | None, Role.NOTE] = None
    seed: Seed = 1
    settings: Mapping[str, Node] = field(default_factory=dict, repr=False)

    @property
    def path(self) -> Path:
        """Output directory; absolute for workers on other machines."""
        return user_path(self.output) if self.scheduler is None else real_path(self.output)

    @property
    def team(self) -> int | str:
        """Number of processes, or address of a Dask scheduler."""
        return self.workers or cores() if self.scheduler is None else self.scheduler

    def run(self) -> Manifest:
        """Read, clean, tokenize, write and print; return the manifest of the directory.

        Raises:
            UserError: if the data cannot be read or the directory cannot be written.
        """
        if self.workers is not None and self.scheduler is not None:
            raise UserError("workers and scheduler are mutually exclusive; remove one")
        if getattr(self.data, "yields", "pairs") != "pairs":
            raise UserError("prepare supports only text pairs; train on questions directly")
        if getattr(self.data, "documents", None):
            raise UserError("prepare shuffles pairs, so that documents end; remove data.documents")
        with lock_directory(self.path):
            provenance = self._provenance()
            finished = self._finished(provenance) if is_file(self.path / MANIFEST) else None
            manifest = finished or self._prepare(provenance)
            shutil.rmtree(self.path / WORK, ignore_errors=True)
        if finished:
            say_finished(self.path)
        return manifest

    def _provenance(self) -> Provenance:
        """Return the inputs that determine the shards."""
        hints = parameters(Preparation)
        deciding = {name for name, hint in hints.items() if role_in(hint, Role.STEP) is Role.STEP}
        settings = {key: node for key, node in self.settings.items() if key in deciding}
        settings |= {part: without_paths(settings[part]) for part in ("data", "tokenizer")}
        files: Callable[[str], list[Path]] = getattr(self.data, "files", lambda split: [])
        contents = {"data.train": digests(files("train"))}
        if not self.hold_out:
            with or_hold_out():
                contents["data.val"] = digests(files("val"))
            contents |= data_contents(self.data, ["test"])
        if self.vocabulary is not None:
            tokenizer, saved_config = vocabulary_of(user_path(self.vocabulary))
            if self.tokenizer not in (TokenizerConfig(), saved_config):
                raise UserError(
                    f"tokenizer conflicts with vocabulary={self.vocabulary}; remove one"
                )
            contents["vocabulary"] = [tokenizer.fingerprint]
        elif isinstance(self.tokenizer, TokenizerFiles):
            contents["vocabulary"] = [self.tokenizer.trained((), ()).fingerprint]
        return Provenance(settings=settings, contents=contents)

    def _finished(self, provenance: Provenance) -> Manifest | None:
        """Return the manifest of a finished preparation; None if parts must be built again."""
        manifest = read_manifest(self.path)
        provenance.check(
            self.path, Provenance(settings=manifest.settings, contents=manifest.contents)
        )
        damaged = damaged_files(self.path, manifest)
        for path in damaged:
            print(f"{path} is missing or damaged; rebuilding it", file=sys.stderr)
            path.unlink(missing_ok=True)
        return None if damaged else manifest

    def _start_or_resume(self, provenance: Provenance) -> None:
        """Prepare the working directory, or resume that of the same preparation.

        Texts that were read with other settings are read again; once a vocabulary exists, only the
        same preparation may continue.
        """
        work = self.path / WORK
        with file_faults("make", work):
            work.mkdir(parents=True, exist_ok=True)
        if is_file(work / RECORD):
            previous = Provenance.read(work)
            if is_file(self.path / TOKENIZER / f"{TOKENIZER}.json"):
                provenance.check(self.path, previous)
            elif texts_of_chunks(previous) != texts_of_chunks(provenance):
                shutil.rmtree(work)
                work.mkdir()
        provenance.write(work)

    def _prepare(self, provenance: Provenance) -> Manifest:
        times: dict[str, float] = {}
        self._start_or_resume(provenance)
        splits = {} if self.hold_out else self._copied_splits()
        with timed(times, "reading"):
            out, remaining, counts = count_chunks(
                self.path, self._read(), self.clean, self.hold_out
            )
        if sum(remaining) < 1:
            dropped = {**counts, "held out": sum(out), "read": 0}
            reasons = ", ".join(f"{why} {n:,}" for why, n in dropped.items() if n)
            raise UserError(f"none of {counts['read']:,} pairs is left to train on: {reasons}")
        if self.hold_out:
            splits["val"] = self._held_out(out)
        with timed(times, "vocabulary"):
            tokenizer, config = self._vocabulary(remaining, out)
        shards = max(1, round(sum(remaining) / self.shard_pairs))
        plan = Plan(self.path, shards, out, self.seed, tokenizer.fingerprint)
        with timed(times, MAKING), progress(MAKING, "shards") as advance:
            entries, lengths = make_shards(plan, self.team, lambda done: advance(done, shards))
        manifest = Manifest(
            format=FORMAT, **provenance.model_dump(), tokenizer=config,
            fingerprint=tokenizer.fingerprint, counts=counts,
            lengths_sha256=write_lengths(self.path, lengths), train=entries, splits=splits,
        )  # fmt: skip
        manifest.write(self.path)
        print_prepared(self.path, manifest, times)
        return manifest

    def _copied_splits(self) -> dict[str, SplitEntry]:
        """Write validation and test texts as they are, without cleaning."""
        splits = {}
        with or_hold_out():
            splits["val"] = write_split(self.path, "val", self._texts("val"))
        try:
            splits["test"] = write_split(self.path, "test", self._texts("test"))
        except UserError as error:  # optional
            print(f"no test split: {error}", file=sys.stderr)
        return splits

    def _texts(self, split: str) -> pa.Table:
        if getattr(self.data, "dataset", None) is not None:  # from the hub: no copy of it
            columns = zip(*self.data.stream(split), strict=True)
            return pa.table(dict(zip(SIDES, map(list, columns), strict=True)))
        rows = self.data.load(split, Path(self.cache_dir) if self.cache_dir else None)
        return rows.with_format("arrow")[:]

    def _read(self) -> int:
        """Write the pairs to chunks, unless that is done, and return the number of chunks."""
        done = self.path / WORK / _CHUNKS
        if not is_file(done):
            with progress("reading", "pairs") as advance:
                chunks = read_chunks(
                    self.data.stream("train"), self.path, self.clean, self.seed, self.team,
                    lambda pairs: advance(pairs, None),
                )  # fmt: skip
            if not chunks:
                raise UserError(f"{self.data.origin('train')} contains no pairs")
            write_whole(done, json.dumps(chunks).encode())
        return int(json.loads(done.read_bytes()))

    def _held_out(self, out: list[int]) -> SplitEntry:
        (self.path / "test.arrow").unlink(missing_ok=True)  # from a run without hold_out
        columns: list[list[str]] = [[], []]
        for number, count in enumerate(out):
            for column, texts in zip(columns, texts_of(self.path, number, 0, count), strict=True):
                column += texts
        return write_split(self.path, "val", pa.table(dict(zip(SIDES, columns, strict=True))))

    def _vocabulary(
        self, remaining: list[int], out: list[int]
    ) -> tuple[Tokenizer, TokenizerConfig]:
        directory, config = self.path / TOKENIZER, self.tokenizer
        if self.vocabulary is not None:
            tokenizer, config = vocabulary_of(user_path(self.vocabulary))
            tokenizer.save(directory)
        elif is_file(directory / f"{TOKENIZER}.json"):
            tokenizer = Tokenizer.load(directory)
        else:
            sides: list[list[str]] = [[], []]
            for number, (num_held_out, count) in enumerate(
                zip(out, shares(remaining, self.sample))
            ):
                for side, texts in zip(
                    sides, texts_of(self.path, number, num_held_out, num_held_out + count)
                ):
                    side += texts
            tokenizer = train_tokenizer(sides[0], sides[1], config, self.path / WORK)
            tokenizer.save(directory)
        return tokenizer, config
