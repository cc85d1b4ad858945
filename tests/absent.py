"""Programs that run where some packages are not installed."""

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest

_ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if any(f"{{name}}.".startswith(f"{{absent}}.") for absent in {names!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def printed_without(names, program):
    """What a program prints where no package or module of these names can be imported."""
    code = _ABSENT.format(names=names) + program
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def has_extra(name):
    """Whether an extra is there, and not deleted."""
    return find_spec(f"seqattn.extras.{name}") is not None


def of_extra(path):
    """A module of an extra, such as `serve.app`; the test is skipped where that is deleted."""
    extra = path.partition(".")[0]
    if not has_extra(extra):
        pytest.skip(f"the extra {extra} is deleted")
    return import_module(f"seqattn.extras.{path}")
