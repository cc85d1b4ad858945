"""The study of synthetic tasks: a table and pictures of what finished, and no training twice."""

import pytest

from benchmarks.synthetic import main

TINY = "trainer.max_steps=2 schedule.warmup_steps=1 data.train=60 data.val=20 data.test=10"


@pytest.mark.slow
def test_a_row_that_fails_leaves_a_table_of_the_others_and_nothing_is_trained_twice(
    tmp_path, capsys
):
    rows = ["rnn without attention", "nothing"]
    words = [*TINY.split(), f"cache_dir={tmp_path}/cache"]
    options = ["--output", str(tmp_path), "--tasks", "copy", "--seeds", "1", "--rows", *rows]
    assert main([*options, "--", *words]) == 1
    printed = capsys.readouterr().out
    assert "copy nothing 1: error: unknown choice attention=nothing" in printed
    table = (tmp_path / "table.md").read_text("utf-8")
    assert "| mechanism | 6 | 12 | 24 | 36 (beyond training) | 48 (beyond training) |" in table
    assert "| rnn without attention |" in table
    assert (tmp_path / "accuracy.png").stat().st_size > 10_000
    result = tmp_path / "copy/rnn_without_attention/1/result.yaml"
    before = result.stat().st_mtime_ns
    assert main([*options[:-1], "--", *words]) == 0
    assert result.stat().st_mtime_ns == before
    assert "copy rnn without attention 1: 6: " in capsys.readouterr().out
