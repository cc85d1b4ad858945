"""Progress of a long output, in a file beside it that a repeated command continues."""

import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ConfigDict, PositiveInt, TypeAdapter, ValidationError

from seqattn.data.lines import output_file, write_lines
from seqattn.errors import UserError
from seqattn.inputs import check_there
from seqattn.storage import file_faults, replaced_file, user_path, write_whole
from seqattn.subcommands.provenance import Provenance, digests
from seqattn.training.rank_messages import rank_messages

_ROW = TypeAdapter(tuple[PositiveInt, list[str]], config=ConfigDict(strict=True))
"""Number of inputs of a window, and its lines."""


@dataclass
class Journal:
    """Writes an output in windows of its inputs.

    Args:
        output: as for `write_lines`.
        files: for each rank, a file of JSON lines: the record of its command, and for each window
            the number of its inputs and its lines. None for standard output, pipes and devices.
        rank: of this process.
        inputs: digests of the files that are read.
        total: number of inputs of this rank; None if unknown.
        most_lines: largest number of lines for each input.
        line_pattern: regular expression of a line.
        done: number of inputs in this rank's file.
    """

    output: str | None
    files: list[Path] = field(default_factory=list)
    rank: int = 0
    inputs: Mapping[Path, list[str]] = field(default_factory=dict)
    total: int | None = None
    most_lines: int = 1
    line_pattern: str = ".*"
    done: int = 0

    def write(
        self,
        windows: Iterable[tuple[int, Iterable[str]]],
        each: Callable[[Iterable[str]], Iterable[str | bytes]] = iter,
        end: str = "\n",
    ) -> None:
        """Write the output at the end, or to a stream as it comes.

        Args:
            windows: number of inputs and lines of each window after those in this rank's file.
            each: function that the lines of all ranks pass through.
            end: what is written after each line.

        Raises:
            UserError: if it cannot be written, or an input has changed.
        """
        if not self.files:
            write_lines(each(chain.from_iterable(lines for _, lines in windows)), self.output, end)
            return
        own = self.files[self.rank]
        for count, lines in windows:
            with file_faults("write", own), own.open("ab") as file:
                file.write(f"{json.dumps([count, [*lines]])}\n".encode())
                file.flush()
                os.fsync(file.fileno())
            self.done += count
        for path, before in self.inputs.items():
            if digests([path]) != before:
                raise UserError(f"{path} changed meanwhile; remove {own} and begin again")
        if len(self.files) > 1:
            rank_messages.from_first(str, timeout=math.inf)  # all ranks have written theirs
        if self.rank == 0:
            parts = (lines for one in self.files for _, lines, _ in self._windows(one))
            ready = chain.from_iterable(parts)
            write_lines(each(ready), self.output, end)
            for one in self.files:
                one.unlink()

    def resume(self, record: Provenance) -> None:
        """Begin this rank's file, or continue after its last complete window."""
        own, end = self.files[self.rank], 0
        if os.path.lexists(own):
            check_there(own, "the progress of a command")
            try:
                with file_faults("read", own), own.open("rb") as file:
                    before = Provenance.model_validate_json(file.readline(1 << 20))
                    more = file.read(1)
            except ValidationError as error:
                raise UserError(f"{own} is not the progress of a command; move it") from error
            if more and (differing := before.differing(record)):
                raise UserError(
                    f"{own} holds progress with {', '.join(differing)}; use the same to continue, "
                    "or remove that file to begin again"
                )
            for count, _, after in self._windows(own):
                self.done, end = self.done + count, after
        if not end:
            write_whole(own, f"{record.model_dump_json()}\n".encode())
            return
        if self.total is not None and self.done > self.total:
            raise _damaged(own)
        with file_faults("write", own):
            os.truncate(own, end)
        print(f"continuing {own}: {self.done:,} done", file=sys.stderr)

    def _windows(self, path: Path) -> Iterator[tuple[int, list[str], int]]:
        """Yield inputs, lines and end in the file of each complete window.

        Raises:
            UserError: for a row that this command cannot have written.
        """
        with file_faults("read", path), path.open("rb") as file:
            end = len(file.readline())
            for row in file:
                if not row.endswith(b"\n") or b"\0" in row:  # killed, or the power failed
                    return
                try:
                    count, lines = _ROW.validate_json(row)
                except ValidationError as error:
                    raise _damaged(path) from error
                fits = count <= len(lines) <= count * self.most_lines
                if not fits or not all(re.fullmatch(self.line_pattern, line) for line in lines):
                    raise _damaged(path)
                end += len(row)
                yield count, lines, end


@contextmanager
def open_journal(
    output: str | None,
    made_from: Callable[[], Provenance],
    inputs: Mapping[str, str | Path | None],
    rank: int = 0,
    ranks: int = 1,
    total: int | None = None,
    most_lines: int = 1,
    line_pattern: str = ".*",
) -> Iterator[Journal]:
    """Yield the journal of an output; its first file is OUTPUT.partial.

    Args:
        output: as for `write_lines`.
        made_from: returns settings and contents that lines depend on, besides the inputs.
        inputs: input files by key.
        rank, ranks: this process among those that share the output.
        total, most_lines, line_pattern: as `Journal`.

    Raises:
        UserError: if another process writes the output, or its file is of another command.
    """
    path = None if output is None else replaced_file(output_file(output))
    if path is None:
        yield Journal(output)
        return
    files = [path.with_name(f"{path.name}.partial{n or ''}") for n in range(ranks)]
    before: dict[Path, list[str]] = {}
    record = made_from()
    journal = Journal(output, files, rank, before, total, most_lines, line_pattern)
    record.settings["ranks"] = ranks
    for key, name in inputs.items():
        if name and user_path(name).is_file():  # a pipe can only be read once
            record.contents[key] = before[user_path(name)] = digests([user_path(name)])
    lock = files[rank].with_name(f"{files[rank].name}.lock")
    with ExitStack() as stack:
        with file_faults("write", path):
            if lock.is_file() and lock.stat().st_size:  # ours have no content
                raise UserError(f"{lock} is not a lock of this command; move it")
            # where no file can be, the lock itself would seem to be taken
            os.close(os.open(lock, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)))
            try:
                stack.enter_context(FileLock(lock).acquire(timeout=0))
            except Timeout as error:
                raise UserError(
                    f"output={path} is in use by another process; wait for it"
                ) from error
        stack.callback(lock.unlink, missing_ok=True)  # before it is released
        journal.resume(record)
        try:
            yield journal
        except BaseException as error:
            if not journal.done:
                files[rank].unlink(missing_ok=True)
            elif isinstance(error, KeyboardInterrupt):
                print(f"{files[rank]} holds {journal.done:,}; repeat to continue", file=sys.stderr)
            raise


def _damaged(path: Path) -> UserError:
    return UserError(f"{path} is damaged; remove it to begin again")
