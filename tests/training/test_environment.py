"""What a run is made with, beside its settings."""

import subprocess

import pytest

import seqattn
from seqattn.training import environment
from seqattn.training.trainer_options import TrainerOptions


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    who = ("-c", "user.name=A", "-c", "user.email=a@b.c")
    (tmp_path / "file").write_text("1")
    for words in (("init", "-q"), ("add", "file"), (*who, "commit", "-qm", "one")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_the_environment_has_versions_device_threads_and_the_commit_of_the_folder(
    repository, monkeypatch
):
    monkeypatch.chdir(repository)
    found = environment.environment(TrainerOptions(accelerator="cpu", devices=3, max_epochs=1))
    assert found["seqattn"] == seqattn.__version__
    assert (found["devices"], found["uncommitted_changes"]) == (3, False)
    assert len(found["commit"]) == 40
    assert {"python", "torch", "lightning", "device", "threads"} <= found.keys()
    assert environment.environment(TrainerOptions(accelerator="mps"))["devices"] == 1
    (repository / "other").write_text("not in it")
    assert environment.git_state(repository)["uncommitted_changes"] is False
    (repository / "file").write_text("2")
    assert environment.git_state(repository)["uncommitted_changes"] is True


def test_a_folder_without_git_or_a_machine_without_it_tells_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert environment.git_state(tmp_path) == {}
    monkeypatch.setenv("PATH", "")
    assert environment.git_state(tmp_path) == {}
