"""Every bundled corpus is what its generator writes."""

import sys

import pytest

from tests.data.generators import DATA, generator_of

NAMES = [path.stem.removeprefix("generate_") for path in sorted(DATA.glob("generate_*.py"))]


def test_every_corpus_has_its_generator():
    assert sorted(path.name for path in DATA.glob("demo_*")) == [f"demo_{name}" for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_regenerating_gives_the_same_bytes_and_check_tells_others(
    name, tmp_path, monkeypatch, capsys
):
    with generator_of(name) as generator:
        texts = generator.corpus()
        on_disk = {path.name: path.read_bytes() for path in generator.FOLDER.iterdir()}
        assert on_disk.pop("README.md")
        assert {file: text.encode() for file, text in texts.items()} == on_disk
        monkeypatch.setattr(sys, "argv", [generator.__file__])
        assert generator.write("", tmp_path, lambda: texts) == 0
        monkeypatch.setattr(sys, "argv", [generator.__file__, "--check"])
        assert generator.write("", tmp_path, lambda: texts) == 0
        changed = max(texts)
        (tmp_path / changed).write_text("{}\n", encoding="utf-8")
        assert generator.write("", tmp_path, lambda: texts) == 1
        assert f"{changed} differs" in capsys.readouterr().err
