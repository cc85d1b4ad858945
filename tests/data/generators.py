"""The programs in `data/` that write the bundled corpora, as modules."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

DATA = Path(__file__).parents[2] / "data"


@contextmanager
def generator_of(name: str) -> Iterator[ModuleType]:
    """`data/generate_NAME.py`, as a program in that folder sees it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DATA))
        spec = importlib.util.spec_from_file_location(
            f"generate_{name}", DATA / f"generate_{name}.py"
        )
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module
