"""Files written whole, through links and to what is no plain file."""

import gzip
import os
import re
import signal
import threading
from pathlib import Path

import pytest

from seqattn.data.lines import write_lines
from seqattn.data.text_files import read_lines
from seqattn.errors import UserError
from seqattn.storage import (
    digest_of,
    new_directory,
    remove_abandoned,
    temporary_directory,
    user_path,
    write_whole,
)
from seqattn.training.run_directory import claimed, room_for_files


def failing():
    yield b"half"
    raise UserError("stopped")


def test_a_link_stays_and_its_file_is_written_whole(tmp_path):
    (tmp_path / "there").mkdir()
    file, link = tmp_path / "there" / "file", tmp_path / "link"
    file.write_text("before")
    link.symlink_to(file)
    with pytest.raises(UserError, match="stopped"):
        write_whole(link, failing())
    assert file.read_text() == "before"
    write_lines(["after"], str(link))
    assert link.is_symlink()
    assert file.read_text() == "after\n"
    assert [path.name for path in file.parent.iterdir()] == ["file"]


def test_an_error_names_the_file_and_not_its_temporary_name(tmp_path):
    file = tmp_path / "none" / "file"
    with pytest.raises(UserError, match=f"^cannot write {file}: No such file or directory$"):
        write_whole(file, b"text")


def test_a_link_to_nothing_makes_its_file(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "new")
    write_whole(tmp_path / "link", b"text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "new").read_bytes() == b"text"


def test_lines_of_a_file_that_is_named_as_packed_are_packed(tmp_path):
    write_lines(["a dog", "süß"], str(tmp_path / "lines.gz"))
    assert gzip.decompress((tmp_path / "lines.gz").read_bytes()).decode() == "a dog\nsüß\n"
    write_lines([], str(tmp_path / "none.gz"))
    assert [*read_lines(tmp_path / "none.gz")] == []


def test_a_pipe_and_a_device_are_written_and_not_replaced(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_lines(["a", "b"], str(pipe))
    reader.join(timeout=10)
    assert read == [b"a\nb\n"]
    assert pipe.is_fifo()
    (tmp_path / "null").symlink_to("/dev/null")
    for name in (tmp_path / "null", "/dev/null"):
        write_lines(["a"], str(name))
    assert (tmp_path / "null").is_symlink()
    assert (tmp_path / "null").samefile("/dev/null")


@pytest.mark.parametrize("is_working", [False, True])
@pytest.mark.parametrize("names", [[], ["b"], ["b", "mine"]])
def test_a_new_directory_loses_no_file_and_no_shell(tmp_path, monkeypatch, names, is_working):
    path = tmp_path / "path"
    path.mkdir()
    for name in names:
        (path / name).write_text("before")
    monkeypatch.chdir(path if is_working else tmp_path)
    number = path.stat().st_ino
    with new_directory(path, "a") as new:
        for name in "ab":
            (new / name).write_text("after")
    texts = {file.name: file.read_text() for file in path.iterdir()}
    assert texts == {**dict.fromkeys(names, "before"), "a": "after", "b": "after"}
    assert (path.stat().st_ino == number) is (is_working or not names)
    assert [one.name for one in tmp_path.iterdir()] == ["path"]


@pytest.mark.parametrize("ended", ["path", "new"])
def test_a_signal_while_a_directory_is_replaced_loses_nothing(tmp_path, monkeypatch, ended):
    path, rename = tmp_path / "path", Path.rename
    path.mkdir()
    (path / "mine").write_text("before")

    def interrupted(one, target):
        if one.name == "path" == ended:
            rename(one, target)
        if one.name == ended:
            raise KeyboardInterrupt
        return rename(one, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), new_directory(path, "a") as new:
        (new / "a").touch()
    assert [(one.name, one.read_text()) for one in path.iterdir()] == [("mine", "before")]


def test_temporary_names_tell_machines_apart(tmp_path):
    with temporary_directory(tmp_path) as directory:
        assert re.fullmatch(rf"\.seqattn-[0-9a-f]{{16}}-{os.getpid():x}-\w+", directory.name)


def test_what_killed_processes_left_is_removed_by_the_next_one(tmp_path):
    killed = os.fork()
    if not killed:
        with new_directory(tmp_path / "new", "a") as new, (new / "a").open("w"):
            write_whole(tmp_path / "file", _killed())
    os.waitpid(killed, 0)
    (tmp_path / ".seqattn-mine").touch()
    assert len([*tmp_path.iterdir()]) == 3
    with new_directory(tmp_path / "other", "a"):  # that of a living process stays
        remove_abandoned.__wrapped__(tmp_path)
        assert len([*tmp_path.iterdir()]) == 2
    assert {one.name for one in tmp_path.iterdir()} == {"other", ".seqattn-mine"}


def _killed():
    yield b"half"
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_lock_of_a_run_follows_no_link(tmp_path):
    (tmp_path / "mine").write_text("years of work")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match="symbolic links"), claimed(tmp_path / "run"):
        pass
    assert (tmp_path / "mine").read_text() == "years of work"


@pytest.mark.parametrize("held", [claimed, room_for_files])
def test_only_new_directories_are_removed_when_they_stay_empty(tmp_path, held):
    mine = tmp_path / "mine"
    mine.mkdir()
    for path in (mine / "new" / "newer", mine):
        with held(path):
            assert path.is_dir()
        assert [*tmp_path.rglob("*")] == [mine]


def test_a_pipe_has_no_digest(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=f"^{tmp_path}/pipe is not a regular file; "):
        digest_of(tmp_path / "pipe")


def test_the_home_of_nobody_is_refused():
    with pytest.raises(UserError, match="~nobody-here/x: unknown home directory"):
        user_path("~nobody-here/x")
