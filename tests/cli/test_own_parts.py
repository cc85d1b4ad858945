"""A person's own experiment, data and attention, in a package and a folder of their own."""

import pytest
import yaml

import seqattn
from seqattn.errors import UserError
from tests.cli.forked import run_forked
from tests.cli.small import SIZES, pairs

ATTENTION = """
from seqattn.attention.heads import MultiHeadAttention

class Tricky(MultiHeadAttention):
    "Says what it read, twice as loud."

    def forward(self, query, keys_values, mask, position, cache=None, need_weights=False):
        found = super().forward(query, keys_values, mask, position, cache, need_weights)
        return found._replace(output=2 * found.output)
"""
DATA = """
import datasets

class Proverbs:
    def __init__(self, path: str) -> None:
        self.path = path

    def splits(self):
        return ["train", "val", "test"]

    def load(self, split, cache_dir=None):
        rows = [line.rstrip("\\n").split("\\t") for line in open(self.path, encoding="utf-8")]
        return datasets.Dataset.from_dict({"source": [r[0] for r in rows],
                                           "target": [r[1] for r in rows]})
"""
CONF = {
    "attention/tricky": {
        "_target_": "mypkg.attention.Tricky", "_partial_": True, "num_heads": 4, "num_kv_heads": 4,
        "kernel": {"_target_": "seqattn.attention.kernels.softmax.SoftmaxKernel",
                   "_partial_": True},
    },
    "data/mine": {"_target_": "mypkg.data.Proverbs", "path": "???"},
    "experiment/mine": {"name": "mine", "model": {"dim": 8}},
}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a package, a conf and a corpus, from which the command is run."""
    home = tmp_path_factory.mktemp("home")
    (home / "mypkg").mkdir()
    for name, text in (("__init__", ""), ("attention", ATTENTION), ("data", DATA)):
        (home / "mypkg" / f"{name}.py").write_text(text)
    for name, node in CONF.items():
        file = home / "conf" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        head = "# @package _global_\n" if name.startswith("experiment") else ""
        file.write_text(head + yaml.safe_dump(node))
    (home / "pairs.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in pairs()), encoding="utf-8")
    return home


@pytest.fixture(scope="module")
def bundle(home):
    own = ["--config-dir", "./conf", "experiment=mine", "data=mine", "attention=tricky"]
    words = [word for word in SIZES if not word.startswith("model.dim")]
    more = ["data.path=pairs.tsv", "run_dir=run", "cache_dir=cache", "trainer.max_steps=2"]
    done = run_forked("train", [*own, *words, *more], home)
    assert done.code == 0, done.err
    return home / "run" / "model"


def test_a_bundle_names_parts_of_others_and_is_refused_without_trust(bundle):
    config = yaml.safe_load((bundle / "config.yaml").read_text())
    assert config["attention"]["_type_"] == "mypkg.attention.Tricky"
    assert config["model"]["dim"] == 8
    with pytest.raises(UserError, match=r"mypkg\..* is not part of seqattn; load it with trust="):
        seqattn.load(bundle)


def test_a_trusted_bundle_generates_in_python(home, bundle, monkeypatch):
    monkeypatch.syspath_prepend(home)
    found = seqattn.load(bundle, trust=["mypkg"])
    assert type(found.model.encoder.layers[0].self_attention).__name__ == "Tricky"
    assert len(found.generate(["a dog sees a ball ."])) == 1


def test_a_trusted_bundle_generates_and_is_scored_on_the_command_line(home, bundle):
    (home / "in.txt").write_text("a dog sees a ball .\n")
    words = (f"bundle={bundle}", "input=in.txt")
    refused = run_forked("generate", words, home)
    assert (refused.code, refused.out) == (2, "")
    assert "trust=[mypkg]" in refused.err.splitlines()[-1]
    done = run_forked("generate", [*words, "trust=[mypkg]"], home)
    assert (done.code, len(done.out.splitlines())) == (0, 1), done.err
    told = [f"bundle={bundle}", "trust=[mypkg]", "split=val"]
    scored = run_forked("evaluate", told, home)
    assert scored.code == 0, scored.err
    assert (home / "run" / "evaluation" / "val" / "scores.json").is_file()
