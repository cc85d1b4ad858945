"""A corpus of any size becomes shards to train on: cleaned, tokenised, in random order."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from seqattn.bundle.nodes import TARGET, describe
from seqattn.checking import Count, CountOrNone, Seed, checked
from seqattn.data.cleaning import Cleaning
from seqattn.data.preparing import (
    Plan,
    chunk_path,
    count_chunks,
    make_shards,
    read_chunks,
    shares,
    texts_of,
)
from seqattn.data.shard_files import (
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
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from seqattn.processes import cores
from seqattn.runs.prepared import (
    MAKING,
    check_same,
    held,
    or_hold_out,
    print_prepared,
    timed,
    vocabulary_of,
)
from seqattn.storage import file_faults, is_file, read_json, user_path, write_whole
from seqattn.training.screen import progress

_FREE = (TARGET, "output", "workers", "cache_dir")
"""Keys that change nothing of what is made."""
_LATE = ("tokenizer", "vocabulary", "sample", "shard_pairs")
"""Keys that change nothing before there is a vocabulary, so that another one can be asked for."""
_SETTINGS, _CHUNKS = "settings.json", "chunks.json"


@checked
@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Makes a directory that `data=shards` trains from.

    Args:
        data: where the pairs come from.
        output: the directory; the same preparation goes on in it after a stop.
        tokenizer: the vocabulary to train.
        clean: which pairs are left out.
        vocabulary: a prepared directory or a bundle whose vocabulary is taken; None to train one.
        sample: pairs that a vocabulary is trained on, drawn at random.
        hold_out: pairs to validate on that are drawn from the training split and left out of it;
            0 for the validation split of `data`.
        shard_pairs: pairs of a shard, about.
        workers: processes; None for one a core.
        cache_dir: where `datasets` keeps validation and test texts; None for its own place.
        seed: of the order.
    """

    data: Any
    output: str
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    clean: Cleaning = field(default_factory=Cleaning)
    vocabulary: str | None = None
    sample: Count = 500_000
    hold_out: CountOrNone = 0
    shard_pairs: Count = 131_072
    workers: Count | None = None
    cache_dir: str | None = None
    seed: Seed = 1

    @property
    def home(self) -> Path:
        """The directory that is made."""
        return user_path(self.output)

    @property
    def processes(self) -> int:
        """How many work at once."""
        return self.workers or cores()

    def run(self) -> Manifest:
        """Reads, cleans, tokenises, writes and prints; returns what the directory holds.

        Raises:
            UserError: where the data cannot be read or the directory not be written.
        """
        if getattr(self.data, "yields", "pairs") != "pairs":
            raise UserError("prepare takes pairs of texts; questions are trained on as they are")
        if self.vocabulary is not None:  # before the long work
            theirs = vocabulary_of(user_path(self.vocabulary))[1]
            if self.tokenizer not in (TokenizerConfig(), theirs):
                raise UserError(f"vocabulary={self.vocabulary} is there; leave tokenizer out")
        settings = {k: v for k, v in describe(self).items() if k not in _FREE}
        times: dict[str, float] = {}
        with held(self.home):
            stamp = self._stamp()
            if is_file(self.home / MANIFEST) and (found := self._finished(settings, stamp)):
                print(f"{self.home} is prepared already", file=sys.stderr)
            else:
                found = self._made(settings, stamp, times)
            shutil.rmtree(self.home / WORK, ignore_errors=True)
        print_prepared(self.home, found, times, self.processes)
        return found

    def _stamp(self) -> list[str]:
        """The files that are read, with sizes and times."""
        files: Callable[[str], list[Path]] = getattr(self.data, "files", lambda split: [])
        paths = files("train")
        if not self.hold_out:
            with or_hold_out():
                paths = paths + files("val")
        with file_faults("read", self.home):
            known = [(path, path.stat()) for path in paths]
        return [f"{path} {one.st_size} {one.st_mtime_ns}" for path, one in known]

    def _finished(self, settings: dict[str, Any], stamp: list[str]) -> Manifest | None:
        """What is prepared already; None where a part of it is to be made again."""
        manifest = read_manifest(self.home)
        check_same(self.home, settings, stamp, manifest.settings, manifest.stamp)
        damaged = damaged_files(self.home, manifest)
        for path in damaged:
            print(f"{path} is missing or damaged; it is made again", file=sys.stderr)
            path.unlink(missing_ok=True)
        return None if damaged else manifest

    def _begin(self, settings: dict[str, Any], stamp: list[str]) -> None:
        """Makes room for what is unfinished, or finds that of the same preparation."""
        work = self.home / WORK
        with file_faults("make", work):
            work.mkdir(parents=True, exist_ok=True)
            for begun in self.home.rglob(".*.*.????????"):  # files that a stop left unfinished
                begun.unlink()
        if is_file(work / _SETTINGS) and chunk_path(self.home, 0).is_file():
            before = read_json(work / _SETTINGS, "settings of prepare")
            same, known = settings, before["settings"]
            if not is_file(self.home / TOKENIZER / f"{TOKENIZER}.json"):
                same, known = (
                    {k: v for k, v in x.items() if k not in _LATE} for x in (same, known)
                )
            check_same(self.home, same, stamp, known, before["stamp"])
        content = {"settings": settings, "stamp": stamp}
        write_whole(work / _SETTINGS, json.dumps(content).encode())

    def _made(
        self, settings: dict[str, Any], stamp: list[str], times: dict[str, float]
    ) -> Manifest:
        self._begin(settings, stamp)
        splits = {} if self.hold_out else self._copied_splits()
        with timed(times, "reading"):
            sizes, counts = count_chunks(self.home, self._read(), self.clean)
        out = shares(sizes, self.hold_out)
        left = [size - own for size, own in zip(sizes, out, strict=True)]
        if sum(left) < 1:
            left_out = {**counts, "held out": sum(out), "read": 0}
            reasons = ", ".join(f"{n:,} {why}" for why, n in left_out.items() if n)
            raise UserError(f"no pair of {counts['read']:,} is left to train on: {reasons}")
        if self.hold_out:
            splits["val"] = self._held_out(out)
        with timed(times, "vocabulary"):
            tokenizer, config = self._vocabulary(left, out)
        plan = Plan(self.home, max(1, round(sum(left) / self.shard_pairs)), out, self.seed)
        with timed(times, MAKING), progress(MAKING, "shards") as tell:
            entries, lengths = make_shards(
                plan, self.processes, lambda done: tell(done, plan.shards)
            )
        manifest = Manifest(
            format=FORMAT, settings=settings, stamp=stamp, tokenizer=config,
            fingerprint=tokenizer.fingerprint, counts=counts,
            lengths_sha256=write_lengths(self.home, lengths), train=entries, splits=splits,
        )  # fmt: skip
        manifest.write(self.home)
        return manifest

    def _copied_splits(self) -> dict[str, SplitEntry]:
        """Validation and test texts as the data has them, nothing left out."""
        splits = {}
        with or_hold_out():
            splits["val"] = write_split(self.home, "val", self._texts("val"))
        try:
            splits["test"] = write_split(self.home, "test", self._texts("test"))
        except UserError as error:  # there need be none
            print(f"without a test split: {error}", file=sys.stderr)
        return splits

    def _texts(self, split: str) -> pa.Table:
        if getattr(self.data, "dataset", None) is not None:  # of the hub: no copy of all of it
            columns = zip(*self.data.stream(split), strict=True)
            return pa.table(dict(zip(SIDES, map(list, columns), strict=True)))
        rows = self.data.load(split, Path(self.cache_dir) if self.cache_dir else None)
        return rows.with_format("arrow")[:]

    def _read(self) -> int:
        """Puts the pairs into chunks, unless that is done; gives the number of these."""
        done = self.home / WORK / _CHUNKS
        if not is_file(done):
            with progress("reading", "pairs") as tell:
                chunks = read_chunks(
                    self.data.stream("train"), self.home, self.clean, self.seed, self.processes,
                    lambda pairs: tell(pairs, None),
                )  # fmt: skip
            if not chunks:
                raise UserError(f"{self.data.origin('train')} has no pairs")
            write_whole(done, json.dumps(chunks).encode())
        return int(json.loads(done.read_bytes()))

    def _held_out(self, out: list[int]) -> SplitEntry:
        columns: list[list[str]] = [[], []]
        for number, count in enumerate(out):
            for column, texts in zip(columns, texts_of(self.home, number, 0, count), strict=True):
                column += texts
        return write_split(self.home, "val", pa.table(dict(zip(SIDES, columns, strict=True))))

    def _vocabulary(self, left: list[int], out: list[int]) -> tuple[Tokenizer, TokenizerConfig]:
        home, config = self.home / TOKENIZER, self.tokenizer
        if self.vocabulary is not None:
            tokenizer, config = vocabulary_of(user_path(self.vocabulary))
            tokenizer.save(home)
        elif is_file(home / f"{TOKENIZER}.json"):
            tokenizer = Tokenizer.load(home)
        else:
            sides: list[list[str]] = [[], []]
            for number, (own, count) in enumerate(zip(out, shares(left, self.sample))):
                for side, texts in zip(sides, texts_of(self.home, number, own, own + count)):
                    side += texts
            tokenizer = train_tokenizer(sides[0], sides[1], config, self.home / WORK)
            tokenizer.save(home)
        return tokenizer, config
