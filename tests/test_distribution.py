"""A wheel and a source distribution are built, and train outside the repository."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import seqattn

ROOT = Path(__file__).parents[1]
NAME = f"seqattn_toolkit-{seqattn.__version__}"
needs_build = pytest.mark.skipif(
    not (find_spec("build") and find_spec("hatchling")), reason="needs build and hatchling"
)


def run(folder, *command):
    """Run a command without the repository on the path, and return what it prints."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=kept, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Both distributions; the wheel is made from the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    run(folder, sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@needs_build
def test_distributions_hold_what_is_needed_and_nothing_else(dist):
    assert {file.name for file in dist.iterdir()} == {
        f"{NAME}-py3-none-any.whl", f"{NAME}.tar.gz",
    }  # fmt: skip
    with zipfile.ZipFile(dist / f"{NAME}-py3-none-any.whl") as wheel:
        installed = set(wheel.namelist())
    tops = {name.partition("/")[0] for name in installed}
    assert tops == {"seqattn", f"{NAME}.dist-info"}
    assert f"{NAME}.dist-info/licenses/LICENSE" in installed
    for folder, inside in (("conf", "conf"), ("data/demo_qa", "data/demo_qa")):
        for file in (ROOT / folder).rglob("*.*"):
            path = file.relative_to(ROOT / folder).as_posix()
            assert f"seqattn/shipped/{inside}/{path}" in installed
    code = {file.relative_to(ROOT).as_posix() for file in (ROOT / "seqattn").rglob("*.*")}
    assert {name for name in code if "__pycache__" not in name} <= installed
    with tarfile.open(dist / f"{NAME}.tar.gz") as source:
        tops = {name.split("/")[1] for name in source.getnames()}
    assert tops == {
        "seqattn", "conf", "data", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md",
        "CITATION.cff", ".gitignore", "PKG-INFO",
    }  # fmt: skip


@needs_build
@pytest.mark.exhaustive
@pytest.mark.parametrize("suffix", ["-py3-none-any.whl", ".tar.gz"])
def test_each_installs_into_an_empty_environment_and_trains_there(dist, tmp_path, suffix):
    """Dependencies are those of this environment; of the project, only what was built is seen."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    packages = run(tmp_path, python, "-c", "import site; print(*site.getsitepackages())").strip()
    found = (find_spec(name).origin for name in ("torch", "hatchling"))
    beside = dict.fromkeys(str(Path(file).parents[1]) for file in found)
    Path(packages, "dependencies.pth").write_text("\n".join(beside) + "\n")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    run(tmp_path, *pip, "--no-deps", "--no-index", "--no-build-isolation", f"{dist / NAME}{suffix}")
    where = run(tmp_path, python, "-c", "import seqattn; print(seqattn.__file__)").strip()
    assert Path(where).is_relative_to(packages)
    command = python.with_name("seqattn")
    assert run(tmp_path, command, "--version") == f"seqattn {seqattn.__version__}\n"
    run(tmp_path, command, "train", "trainer.max_steps=3", "model.dim=32", "run_dir=RUN")
    output = run(tmp_path, command, "generate", "bundle=RUN/model", "text=He buys these books.")
    assert output.endswith("\n")
