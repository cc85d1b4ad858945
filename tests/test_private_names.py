"""No private name of Hydra or Lightning; of torch in `ops` alone, of others where no public one is.

It sees imports of private names and modules; attributes that nothing in seqattn defines, also in
`getattr` and its like; and, in classes of ours, methods and attributes of `self` that a class of
theirs has above them. It does not see a private attribute of theirs that is called as one of ours,
of an object that is not `self`, nor keys of their states.
"""

import ast
import dis
import importlib
import inspect
import textwrap
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import seqattn

HOME = Path(seqattn.__file__).parent
THEIRS = ("lightning", "hydra", "omegaconf", "torch", "torchmetrics", "wandb", "datasets")
PUBLIC = {"_replace", "_asdict", "_make", "_fields", "_exit", "_target_"}
"""Of named tuples and `os`; a key of Hydra's settings."""
WITHOUT_PUBLIC = {
    "metrics/text.py": {"_extract_corpus_statistics", "_compute_score_from_stats"},  # sacrebleu
    "extras/answers/squad.py": {"_fingerprint"},  # datasets
    "data/table.py": {"_fingerprint"},
    "checking.py": {"_is_protocol"},  # typing, before Python 3.13
    "generation/workers.py": {"_processes"},  # concurrent.futures, before Python 3.14
}
READERS = {"getattr", "setattr", "hasattr", "delattr", "attrgetter", "methodcaller"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def files(home=HOME):
    return sorted(home.rglob("*.py"))


def defined(tree):
    """Private names that a file gives to functions, classes, parameters, variables and `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and own(node):
            yield node.attr


def own(node):
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def used(tree):
    """Private names that a file imports from others, or asks any object for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
            if not (module.startswith("seqattn") or getattr(node, "level", 0)):
                yield from (part for name in names for part in name.split("."))
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Call) and called(node) in READERS:
            texts = (part.value for part in node.args if isinstance(part, ast.Constant))
            yield from (part for text in texts for part in str(text).split("."))


def called(node):
    return getattr(node.func, "id", getattr(node.func, "attr", None))


def foreign(home=HOME):
    """Private names of others, by file."""
    ours = {name for path in files(home) for name in defined(tree_of(path))}
    found = {}
    for path in files(home):
        names = {name for name in used(tree_of(path)) if is_private(name)} - ours
        if names:
            found[path.relative_to(home).as_posix()] = names
    return found


@cache
def private_of(base):
    """Private names of a class: in its body, and those that its methods set."""
    names = set(vars(base))
    for value in vars(base).values():
        for part in (value, *(getattr(value, name, None) for name in ("fget", "fset", "__func__"))):
            code = getattr(part, "__code__", None)
            instructions = dis.get_instructions(code) if code else ()
            names |= {one.argval for one in instructions if one.opname == "STORE_ATTR"}
    return {name for name in names if is_private(name)}


def inherited(kind):
    """Private names of others' classes that a class of ours uses as its own."""
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] in THEIRS]
    theirs = {name for base in bases for name in private_of(base)}
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    asked = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and own(node)}
    return theirs & {*defined(tree), *asked}


def classes():
    for path in files():
        parts = path.relative_to(HOME.parent).with_suffix("").parts
        text = path.read_text(encoding="utf-8")
        if any(f"import {name}" in text or f"from {name}" in text for name in THEIRS):
            module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
            for kind in vars(module).values():
                if isinstance(kind, type) and kind.__module__ == module.__name__:
                    yield kind


@pytest.mark.exhaustive
def test_no_private_name_of_others_is_used():
    outside = {
        path: names - WITHOUT_PUBLIC.get(path, set())
        for path, names in foreign().items()
        if not path.startswith("ops/")
    }
    assert {path: names for path, names in outside.items() if names} == {}


@pytest.mark.exhaustive
def test_no_class_uses_or_overrides_a_private_name_of_one_above_it():
    found = defaultdict(set)
    for kind in classes():
        found[f"{kind.__module__}.{kind.__name__}"] |= inherited(kind)
    assert len(found) > 100
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "line",
    [
        "from hydra._internal.utils import _locate",
        "import torch._dynamo",
        "trainer.fit_loop.epoch_loop._should_check_val_fx(1)",
        "trainer.fit_loop._data_fetcher = None",
        "step = getattr(loop, '_batches_that_stepped')",
        "read = operator.attrgetter('fit_loop._results')",
    ],
)
def test_a_private_name_would_be_seen(tmp_path, line):
    (tmp_path / "wrong.py").write_text(line)
    assert foreign(tmp_path)


def test_a_private_name_of_a_class_above_would_be_seen():
    from lightning.pytorch.loggers import CSVLogger

    class Setting(CSVLogger):
        def forget(self):
            self._experiment = None

    class Overriding(CSVLogger):
        def _get_next_version(self):
            return 0

    assert inherited(Setting) == {"_experiment"}
    assert inherited(Overriding) == {"_get_next_version"}
