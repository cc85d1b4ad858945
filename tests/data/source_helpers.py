"""What tests of sources share."""

import json

import pytest

from seqattn.errors import UserError


def columns(table):
    return {name: list(table[name]) for name in table.column_names}


def refusal(action):
    """The line in which an action is refused."""
    with pytest.raises(UserError) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def json_lines(path, rows):
    """The name of a file with a row in each line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def write_text(folder, split, pairs):
    """Two line-aligned files."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, lines in zip(("en", "de"), zip(*pairs)):
        (folder / f"{split}.{suffix}").write_text("".join(f"{x}\n" for x in lines), "utf-8")
