"""The page from raw files to a served model: its commands on sixty pairs."""

import re

from tests.cli.small import SIZES, pairs, run, write_split
from tests.pages import blocks, subcommand_and_words


def test_the_commands_lead_from_raw_files_to_outputs(capfd, tmp_path):
    rows = [*pairs()]
    rows[3] = rows[3][0], rows[3][0]
    for split, some in (("train", rows[:54]), ("val", rows[54:57]), ("test", rows[57:])):
        write_split(tmp_path / "DIR", split, some)
    (tmp_path / "FILE").write_text("A DOG sees thet ree\nthe cat\n", encoding="utf-8")
    lines = blocks("robust.md", "bash")[0].splitlines()
    assert lines.pop().startswith("seqattn serve ")
    small = [word for word in SIZES if not word.startswith("tokenizer")]
    small += ["trainer.max_steps=4", "trainer.max_epochs=-1", "~watch", "task.final=null"]
    for line in lines:
        subcommand, words = subcommand_and_words(
            line.replace("python train", "python scripts/train")
        )
        words = [
            re.sub(r"(^|=)(DIR|CLEAN|RUN|FILE)\b", rf"\1{tmp_path}/\2", word) for word in words
        ]
        words += [*small, f"cache_dir={tmp_path}/cache"] if subcommand == "train" else []
        ended = run(capfd, subcommand, *words)
        assert ended.code == 0, (line, ended.err)
        if subcommand == "clean":
            assert "identical sides │ 1 (1.85%)" in " ".join(ended.out.split())
    assert len((tmp_path / "FILE.de").read_text(encoding="utf-8").splitlines()) == 2
