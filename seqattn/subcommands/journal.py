"""Progress of a long output, in a file beside it that a repeated command continues."""

import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from seqattn.data.lines import output_file
from seqattn.errors import UserError
from seqattn.inputs import check_there
from seqattn.screen import say
from seqattn.storage import file_faults, replaced_file, user_path, write_whole
from seqattn.subcommands.provenance import Provenance, digests
from seqattn.training.run_directory import locked

_LONGEST = 1 << 20  # bytes of a record


@dataclass
class Journal:
    """Complete windows of an output, in the order of its inputs.

    A file holds the record of its command, a line of JSON; then for each window a line with its
    number of inputs, its bytes and their CRC-32, and its lines. A last window that is incomplete,
    as a kill leaves it, is removed.

    Args:
        file: the file.
        inputs: digests of the input files.
        done: number of inputs in it.
    """

    file: Path
    inputs: Mapping[Path, list[str]] = field(default_factory=dict)
    done: int = 0

    def append(self, count: int, lines: Iterable[str]) -> None:
        """Append the lines of the next `count` inputs."""
        content = "".join(f"{line}\n" for line in lines).encode()
        head = f"{count} {len(content)} {zlib.crc32(content)}\n"
        with file_faults("write", self.file), self.file.open("ab") as file:
            file.write(head.encode() + content)
            file.flush()
            os.fsync(file.fileno())
        self.done += count

    def lines(self) -> Iterator[str]:
        """Yield all lines.

        Raises:
            UserError: if an input has changed since the first.
        """
        for path, before in self.inputs.items():
            if digests([path]) != before:
                raise UserError(f"{path} changed meanwhile; remove {self.file} and begin again")
        for _, content, _ in self._windows():
            yield from content.decode().split("\n")[:-1]

    def resume(self, made_from: Provenance) -> None:
        """Continue the file if it holds a window, or else begin one.

        Raises:
            UserError: if it is of another command, or no journal.
        """
        if self.file.exists():
            before = self._record()
            windows = [(count, end) for count, _, end in self._windows()]
            if differing := before.differing(made_from) if windows else []:
                raise UserError(
                    f"{self.file} holds progress with {', '.join(differing)}; use the same to "
                    "continue, or remove that file to begin again"
                )
            if windows:
                with file_faults("write", self.file):
                    os.truncate(self.file, windows[-1][1])
                self.done = sum(count for count, _ in windows)
                say(f"continuing {self.file}: {self.done:,} done")
                return
        write_whole(self.file, f"{made_from.model_dump_json()}\n".encode())

    def _record(self) -> Provenance:
        check_there(self.file, "the progress of a command")
        try:
            with file_faults("read", self.file), self.file.open("rb") as file:
                return Provenance.model_validate_json(file.readline(_LONGEST))
        except ValidationError as error:
            raise UserError(
                f"{self.file} is not the progress of a command; move it, or choose another output"
            ) from error

    def _windows(self) -> Iterator[tuple[int, bytes, int]]:
        """Yield inputs, content and end of each complete window."""
        with file_faults("read", self.file), self.file.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.readline(_LONGEST)
            while match := re.fullmatch(rb"(\d+) (\d+) (\d+)\n", file.readline(80)):
                count, length, check = map(int, match.groups())
                content = file.read(length) if length <= size else b""
                if len(content) != length or zlib.crc32(content) != check:
                    return
                yield count, content, file.tell()


@contextmanager
def open_journal(
    output: str | None, made_from: Callable[[], Provenance], inputs: Mapping[str, str | Path | None]
) -> Iterator[Journal | None]:
    """Yield the journal of an output, in OUTPUT.partial; None for standard output or a pipe.

    Write the output from its lines, and remove its file.

    Args:
        output: as for `write_lines`.
        made_from: returns settings and contents that the lines depend on, besides the inputs.
        inputs: input files by key.

    Raises:
        UserError: if another process writes the output, the file is of another command, or it
            cannot be written.
    """
    path = None if output is None else replaced_file(output_file(output))
    if path is None:
        yield None
        return
    record, before = made_from(), {}
    for key, name in inputs.items():
        if name and user_path(name).is_file():  # a pipe can only be read once
            record.contents[key] = before[user_path(name)] = digests([user_path(name)])
    journal = Journal(path.with_name(f"{path.name}.partial"), before)
    with ExitStack() as stack:
        with file_faults("write", path):
            lock = journal.file.with_name(f"{journal.file.name}.lock")
            stack.enter_context(locked(lock, f"output={output}"))
        journal.resume(record)
        try:
            yield journal
        except BaseException as error:
            if not journal.done:
                journal.file.unlink(missing_ok=True)
            elif isinstance(error, KeyboardInterrupt):
                say(f"{journal.file} holds {journal.done:,}; repeat the command to continue")
            raise
