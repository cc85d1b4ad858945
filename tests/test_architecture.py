"""Who imports whom, read from the source: no later folder is known to an earlier one."""

import ast
import graphlib
import importlib
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import seqattn
from tests.absent import printed_without

HOME = Path(seqattn.__file__).parent
MODELS = {"models", "layers", "attention", "positions", "ops"}
SETTINGS = {"data", *MODELS}
BUNDLE = {"settings", "generation", "metrics", "analysis", *SETTINGS}
MAY_IMPORT = {
    "ops": set(),
    "positions": {"ops"},
    "attention": {"positions", "ops"},
    "layers": {"attention", "positions", "ops"},
    "models": MODELS - {"models"},
    "generation": MODELS,
    "data": set(),
    "metrics": set(),
    "analysis": {"generation", *MODELS},
    "settings": SETTINGS,
    "bundle": BUNDLE,
    "training": {"bundle", *BUNDLE},
    "subcommands": {"training", "bundle", *BUNDLE},
    "config": {"training", "bundle", "settings"},
    "cli": {"config", "subcommands", "training", "bundle", "settings"},
    "extras": {"subcommands", "training", "bundle", *BUNDLE},
}
"""Beside itself and the ground. A dotted name allows that one module."""
HOMES_OF_OTHERS = {
    "hydra": {"cli", "config"},
    "omegaconf": {"cli", "config"},
    "optuna": {"extras"},
    "matplotlib": {"extras"},
    "datasets": {"data", "extras"},
    "sentencepiece": {"data"},
    "sentencex": {"extras"},
    "sacrebleu": {"metrics"},
    "rouge_score": {"metrics"},
    "scipy": {"extras"},
    "torchmetrics": {"extras", "metrics"},
    "transformers": {"extras"},
    "fastapi": {"extras"},
    "starlette": {"extras"},
    "uvicorn": {"extras"},
    "prometheus_client": {"extras"},
    "python_multipart": {"extras"},
}
EXTRAS = sorted(path.parent.name for path in HOME.glob("extras/*/__init__.py"))


@cache
def imported(path):
    """Dotted names of all modules that a file imports, at its top or within a function."""
    return [*_imported(path)]


def _imported(path):
    package = path.relative_to(HOME.parent).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                module = ".".join([*package[: -node.level], *filter(None, [module])])
            # `from seqattn import analysis` names a module in its second half
            is_package = (HOME.parent / Path(*module.split("."))).is_dir()
            yield from (f"{module}.{a.name}" if is_package else module for a in node.names)


def defined_in(name):
    """The module that a name of a package is imported from there, else the name itself."""
    package, _, exported = name.rpartition(".")
    file = HOME.parent / Path(*package.split(".")) / "__init__.py"
    tree = ast.parse(file.read_text(encoding="utf-8") if file.is_file() else "")
    modules = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    return next((m.module for m in modules if exported in {a.name for a in m.names}), name)


def files():
    return sorted(path for path in HOME.rglob("*.py") if path.parent != HOME)


def folder_of(path):
    return path.relative_to(HOME).parts[0]


def allowed(folder, module):
    parts = module.split(".")
    if parts == ["seqattn"] or parts[1] in (
        folder,
        "checking",
        "errors",
        "installation",
        "inputs",
        "roles",
        "screen",
        "processes",
        "storage",
        "tokens",
        "__version__",
    ):
        return True
    return bool({parts[1], ".".join(parts[1:3])} & MAY_IMPORT[folder])


def edges(path):
    return [name for name in imported(path) if name.partition(".")[0] == "seqattn"]


def test_no_kernel_layer_or_model_asks_what_machine_it_is_on():
    """Autocast alone is given the name of a device's type."""
    asks = re.compile(r"device\.type [=!]=|is_cuda|is_cpu|torch\.(cuda|cpu|backends)\b")
    for path in files():
        if folder_of(path) in {"positions", "attention", "layers", "models"}:
            assert not asks.search(path.read_text(encoding="utf-8")), path
            assert not [name for name in edges(path) if name.startswith("seqattn.ops.cpu")], path


def test_every_folder_has_its_place_in_the_order():
    assert {folder_of(path) for path in files()} <= MAY_IMPORT.keys()


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_a_folder_imports_only_what_stands_below_it(folder):
    found = [path for path in files() if folder_of(path) == folder]
    assert found
    wrong = [(path.name, name) for path in found for name in edges(path)]
    assert [edge for edge in wrong if not allowed(folder, edge[1])] == []


def test_the_order_has_no_way_back():
    def reached(folder, seen=()):
        assert folder not in seen, f"{folder} is above itself"
        for below in MAY_IMPORT[folder]:
            if below.partition(".")[0] in MAY_IMPORT:
                reached(below.partition(".")[0], (*seen, folder))

    for folder in MAY_IMPORT:
        reached(folder)


def test_the_map_names_every_part_of_the_package():
    page = (HOME.parent / "docs" / "design.md").read_text(encoding="utf-8")
    core, extras = page.split("\nseqattn/ ")[1].split("```")[0].split("\n  extras/ ")
    [basics] = re.findall(r"(?m)^  (\w[a-z ]+)$", core)
    assert sorted(basics.split()) == sorted(path.stem for path in HOME.glob("[a-z]*.py"))
    folders = {*re.findall(r"(?m)^  (\w+)/ ", core), "extras"}
    assert folders == {folder_of(path) for path in files()}
    assert {*EXTRAS} <= {*re.findall(r"(?m)^    (\w+) ", extras)}


def test_the_reading_order_lists_a_file_of_the_core_after_those_that_it_imports():
    page = (HOME.parent / "docs" / "design.md").read_text(encoding="utf-8")
    listed = re.findall(r"(?m)^\d+\. `(seqattn/[\w/]+)\.py`: \w", page)
    assert 40 <= len(listed) == len(set(listed)) <= 90
    assert [file for file in listed if "extras" in file] == []
    unread = {file.removesuffix("/__init__").replace("/", "."): file for file in listed}
    for file in listed:
        unread = {name: later for name, later in unread.items() if later != file}
        ahead = unread.keys() & {*map(defined_in, imported(HOME.parent / f"{file}.py"))}
        assert not ahead, f"docs/design.md lists {file} before {sorted(ahead)}, which it imports"


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_imports_the_others_that_it_needs_and_no_more(extra):
    used = {
        name.split(".")[2]
        for path in (HOME / "extras" / extra).rglob("*.py")
        for name in edges(path)
        if name.startswith("seqattn.extras.")
    }
    assert used - {extra} == needs(extra)


def needs(extra):
    return set(importlib.import_module(f"seqattn.extras.{extra}").NEEDS)


def all_needs(extra):
    return {extra}.union(*map(all_needs, needs(extra)))


def test_tests_go_with_the_extras_that_they_import():
    """Where an extra is deleted with its tests, the others can be collected."""
    tests = Path(__file__).parent
    wrong = []
    for path in tests.rglob("*.py"):
        extra = path.relative_to(tests / "extras").parts[0] if "extras" in path.parts else ""
        may = all_needs(extra) if extra in EXTRAS else set()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            found = re.findall(r"^from (?:seqattn|tests)\.extras\.(\w+)", ast.unparse(node))
            wrong += [(path.name, name) for name in {*found} & {*EXTRAS} - may]
    assert wrong == []


def test_extras_need_each_other_in_no_circle():
    order = graphlib.TopologicalSorter({extra: needs(extra) for extra in EXTRAS})
    assert set(order.static_order()) == set(EXTRAS)


def test_no_file_needs_a_file_that_needs_it():
    """Names that are imported late, or for types alone, count too."""
    places = {path: path.relative_to(HOME.parent).with_suffix("").parts for path in files()}
    modules = {".".join(at).removesuffix(".__init__"): path for path, at in places.items()}
    needed = {name: {*imported(path)} & {*modules} - {name} for name, path in modules.items()}
    graphlib.TopologicalSorter(needed).prepare()  # names the files of a circle


@pytest.mark.parametrize("library", HOMES_OF_OTHERS)
def test_a_library_is_known_to_its_own_folders_alone(library):
    users = {
        folder_of(path)
        for path in files()
        if library in {name.partition(".")[0] for name in imported(path)}
    }
    assert users <= HOMES_OF_OTHERS[library]


def test_the_package_itself_imports_what_loads_and_trains_and_that_late():
    tree = ast.parse((HOME / "__init__.py").read_text(encoding="utf-8"))
    names = [name for name in edges(HOME / "__init__.py") if name != "seqattn"]
    assert {name.split(".")[1] for name in names} == {"bundle", "cli", "training"}
    late = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert {node.module for node in late} == {"collections.abc", "pathlib", "typing"}
    for name in ("checking", "errors", "installation", "processes", "tokens"):
        assert set(edges(HOME / f"{name}.py")) <= {"seqattn.errors", "seqattn.roles"}
    assert set(edges(HOME / "storage.py")) == {"seqattn.errors", "seqattn.processes"}
    assert set(edges(HOME / "inputs.py")) == {"seqattn.errors", "seqattn.storage"}


def test_a_page_of_help_and_a_refusal_wait_for_no_slow_import():
    for needs, heavy in (
        ("cli.main, seqattn.bundle.files", "torch"),
        ("data.sources", "datasets"),
        ("subcommands.evaluate", "lightning"),
    ):
        code = f"import seqattn.{needs}, sys; print('{heavy}' in sys.modules)"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == "False\n", needs


def test_the_page_of_help_waits_for_nothing_at_all():
    code = "import sys; from seqattn.__main__ import main; main(['--help']); print(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "seqattn.__main__" in done.stdout
    assert not [name for name in ("hydra", "yaml", "torch") if f"'{name}'" in done.stdout]


def test_an_edge_that_points_upwards_would_be_seen(tmp_path, monkeypatch):
    lines = [
        "import seqattn.cli.main",
        "from seqattn import training",
        "from seqattn.data.module import Seq2SeqData",
        "from ..generation import Generator",
        "def late():\n    from seqattn.analysis import capture",
    ]
    monkeypatch.setattr(sys.modules[__name__], "HOME", tmp_path / "seqattn")
    for folder in ("models", "generation", "analysis", "tasks"):
        (tmp_path / "seqattn" / folder).mkdir(parents=True)
    file = tmp_path / "seqattn" / "models" / "wrong.py"
    for line in lines:
        file.write_text(line)
        names = edges(file)
        assert names, line
        assert not any(allowed("models", name) for name in names), line


def test_what_a_model_needs_imports_without_hydra_datasets_or_wandb():
    program = """
import seqattn.models.transformer, seqattn.generation, seqattn.analysis
import seqattn.training.tasks.seq2seq
try:
    import hydra
except ModuleNotFoundError:
    print("without")
"""
    assert printed_without(("hydra", "omegaconf", "datasets", "wandb"), program) == "without\n"


def test_a_training_is_refused_before_heavy_libraries_are_imported(tmp_path):
    heavy = {"lightning", "torchmetrics", "datasets", "matplotlib", "transformers"}
    refused = (
        "import sys; from seqattn.__main__ import main; "
        f"code = main(['train', *sys.argv[1:]]); print(code, *({heavy} & {{*sys.modules}}))"
    )
    for words in (
        ["model.dim=30"],
        ["trainer.max_steps=0"],
        ["data=parallel_text", f"data.root={tmp_path}/no", "data.source_suffix=a"],
    ):
        words += ["data.target_suffix=b"] * (len(words) == 3)
        ended = subprocess.run(
            [sys.executable, "-c", refused, *words, f"run_dir={tmp_path}/run"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert (ended.stdout, ended.stderr.count("\n")) == ("2\n", 1), ended.stderr
