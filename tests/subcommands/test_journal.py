"""Progress of a long output: continued after a kill, and never that of another command."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from seqattn.errors import UserError
from seqattn.subcommands.journal import open_journal
from seqattn.subcommands.provenance import Provenance

WINDOWS = [(2, ["a", "\x85b \u2028"]), (1, ["c"]), (3, ["ö", "", "d", "e"])]
LINES = [line for _, lines in WINDOWS for line in lines]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "in").write_text("input")
    return tmp_path


def opened(place, beam=4, output="out"):
    record = Provenance(settings={"beam": beam}, contents={"bundle": ["1"]})
    inputs = {"input": place / "in"}
    return open_journal(str(place / output), lambda: record, inputs, total=6, most_lines=2)


def written(place):
    """Continues to the end; the lines, and how many inputs were there."""
    with opened(place) as journal:
        before = journal.done
        journal.write(WINDOWS[[0, 2, 3, 6].index(before) :])
    assert {one.name for one in place.iterdir()} == {"in", "out"}
    return (place / "out").read_text().split("\n"), before


def stopping(windows=WINDOWS):
    yield from windows
    raise KeyboardInterrupt


def killed(place):
    """The progress of a command that was stopped at its end."""
    with pytest.raises(KeyboardInterrupt), opened(place) as journal:
        journal.write(stopping())
    return place / "out.partial"


def test_what_is_cut_anywhere_continues_to_the_same_lines(place):
    content = killed(place).read_bytes()
    counts = set()
    for size in range(content.index(b"\n") + 1, len(content) + 1):
        (place / "out.partial").write_bytes(content[:size])
        lines, before = written(place)
        assert lines == [*LINES, ""]
        counts.add(before)
    assert counts == {0, 2, 3, 6}


def test_a_text_of_several_lines_is_continued_and_written_whole(place):
    record, inputs = Provenance(settings={}, contents={}), {"input": place / "in"}
    for windows in (stopping([(1, ["a\r\nb"])]), [(1, ["c\n\nd"])]):
        opened = open_journal(
            str(place / "out"), lambda: record, inputs, total=2, line_pattern="(?s:.*)"
        )
        with suppress(KeyboardInterrupt), opened as journal:
            journal.write(windows, end="")
    assert (place / "out").read_bytes() == b"a\r\nbc\n\nd"


def test_a_damaged_window_and_what_follows_are_made_again(place):
    content = killed(place).read_bytes()
    for wrong, done in (
        (content.replace(b'"a"', b"\0\0"), 0),
        (content.replace(b'"d"', b"\0\0\0"), 3),
        (content + b"\0\0\n", 6),
    ):
        (place / "out.partial").write_bytes(wrong)
        assert written(place) == ([*LINES, ""], done)


@pytest.mark.parametrize(
    "row",
    [
        *("5", "null", '"ab"', '{"a": 1, "b": 2}', "[" * 9_999 + "]" * 9_999, "[2"),
        *('["2", ["a", "b"]]', '[2.0, ["a", "b"]]', '[true, ["a"]]', '[NaN, ["a"]]', "[2, null]"),
        *('[2, "ab"]', "[2, [1, 2]]", '[2, ["\\ud800", "c"]]', '[2, ["a\\nb", "c"]]'),
        *('[-2, ["a"]]', "[0, []]", '[2, ["a"]]', '[1, ["a", "b", "c"]]', '[9, ["a"]]'),
        str([7, ["a"] * 7]).replace("'", '"'),
    ],
)
def test_rows_that_no_command_wrote_are_refused_and_stay(place, row):
    file = killed(place)
    head, _, *rest = file.read_bytes().splitlines(keepends=True)
    content = head + row.encode() + b"\n" + b"".join(rest)
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"out\.partial is damaged; remove it"), opened(place):
        pass
    assert file.read_bytes() == content


def test_lines_of_another_form_are_refused(place):
    killed(place)
    record = Provenance(settings={"beam": 4}, contents={"bundle": ["1"]})
    inputs, form = {"input": place / "in"}, {"most_lines": 2, "line_pattern": "[a-e]?"}
    journal = open_journal(str(place / "out"), lambda: record, inputs, **form)
    with pytest.raises(UserError, match="is damaged"), journal:
        pass


def changed_input(place):
    (place / "in").write_text("other")
    return {}


@pytest.mark.parametrize(
    ("change", "named"),
    [(lambda _: {"beam": 5}, "beam=4"), (changed_input, "different contents of input")],
)
def test_another_command_is_refused_and_changes_nothing(place, change, named):
    file = killed(place)
    before = file.read_bytes()
    with pytest.raises(UserError, match=named), opened(place, **change(place)):
        pass
    assert file.read_bytes() == before
    assert {one.name for one in place.iterdir()} == {"in", "out.partial"}


def test_what_stands_behind_the_record_of_another_command_stays(place):
    content = '{"settings": {}, "contents": {}}\nmine'
    (place / "out.partial").write_text(content)
    with pytest.raises(UserError, match="holds progress with"), opened(place):
        pass
    assert (place / "out.partial").read_text() == content


def test_a_file_in_place_of_the_lock_stays(place):
    (place / "out.partial.lock").write_text("mine")
    with pytest.raises(UserError, match=r"lock is not a lock of this command; move it"):
        written(place)
    assert (place / "out.partial.lock").read_text() == "mine"
    (place / "out.partial.lock").unlink()
    (place / "out.partial.lock").symlink_to(place / "elsewhere")
    with pytest.raises(UserError, match=r"cannot write .*out\.partial\.lock"):
        written(place)
    assert not (place / "elsewhere").exists()
    (place / "out.partial.lock").unlink()
    (place / "out.partial.lock").write_text("")  # left by a killed process
    assert written(place) == ([*LINES, ""], 0)


@pytest.mark.parametrize("content", ["mine\n", "", '{"settings": 1}\n'])
def test_a_file_that_is_no_progress_is_left_as_it_is(place, content):
    (place / "out.partial").write_text(content)
    with pytest.raises(UserError, match="is not the progress of a command; move it"), opened(place):
        pass
    assert (place / "out.partial").read_text() == content


def test_a_link_to_nothing_and_a_pipe_are_not_written_to(place):
    (place / "out.partial").symlink_to(place / "elsewhere")
    os.mkfifo(place / "other.partial")
    for output, why in (("out", "does not exist"), ("other", "is not a regular file")):
        with pytest.raises(UserError, match=why), opened(place, output=output):
            pass
    assert not (place / "elsewhere").exists()


def test_a_second_command_on_an_output_is_refused(place):
    (place / "link").symlink_to(place / "out")
    (place / "out").touch()
    with opened(place) as journal:
        for output in ("out", "link"):
            with pytest.raises(UserError, match="is in use by"), opened(place, 5, output):
                pass
        journal.write(WINDOWS)
    assert (place / "link").read_text().split("\n") == [*LINES, ""]


def test_an_input_that_changes_in_between_is_found(place):
    def changing():
        yield WINDOWS[0]
        changed_input(place)

    with (
        pytest.raises(UserError, match=r"in changed meanwhile; remove .*out\.partial"),
        opened(place) as journal,
    ):
        journal.write(changing())
    assert not (place / "out").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, UserError])
def test_an_end_without_a_window_leaves_no_file(place, error):
    with pytest.raises(error), opened(place):
        raise error
    assert [one.name for one in place.iterdir()] == ["in"]


def test_a_stop_says_how_to_continue(place, capsys):
    killed(place)
    assert "out.partial holds 6; repeat to continue" in capsys.readouterr().err


def test_streams_have_no_file(capsys):
    for output in (None, "/dev/stdout", "/dev/null"):
        with open_journal(output, Path.cwd, {}) as journal:
            assert not journal.files
    with open_journal(None, Path.cwd, {}) as journal, pytest.raises(KeyboardInterrupt):
        journal.write(stopping(WINDOWS[:1]))
    assert capsys.readouterr().out.split("\n") == [*WINDOWS[0][1], ""]
