"""Bundles that somebody tampered with: each is refused in one line, quickly, and runs nothing."""

import json
import os
import shutil
import struct
import time

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

import seqattn
from seqattn.errors import UserError
from seqattn.settings.choices import choices
from seqattn.settings.nodes import import_path


def at(place, value, drop=False):
    """Sets a value of the configuration; dots lead into it."""

    def edit(path):
        file = path / "config.yaml"
        document = yaml.safe_load(file.read_text())
        *parents, last = place.split(".")
        node = document
        for parent in parents:
            node = node[parent]
        if drop:
            del node[last]
        else:
            node[last] = value
        file.write_text(yaml.safe_dump(document, sort_keys=False))

    return edit


def without(place):
    return at(place, None, drop=True)


def text(old, new):
    """Replaces a text of the configuration."""

    def edit(path):
        file = path / "config.yaml"
        content = file.read_text()
        assert old in content
        file.write_text(content.replace(old, new))

    return edit


def raw(name, content):
    """Replaces a file."""
    return lambda path: (path / name).write_bytes(content)


def gone(name):
    return lambda path: (path / name).unlink()


def link(name, target):
    def edit(path):
        (path / name).unlink()
        (path / name).symlink_to(target)

    return edit


def folder(name):
    def edit(path):
        (path / name).unlink()
        (path / name).mkdir()

    return edit


def pipe(name):
    def edit(path):
        (path / name).unlink()
        os.mkfifo(path / name)

    return edit


def weights(change):
    """Changes the tensors, a dict from their names."""

    def edit(path):
        file = path / "model.safetensors"
        tensors = load_file(file)
        change(tensors)
        save_file(tensors, file)

    return edit


def cut(name, kept):
    return lambda path: (path / name).write_bytes((path / name).read_bytes()[:kept])


def tokenizer(change):
    """Changes the head of the tokenizer, a dict."""

    def edit(path):
        head = json.loads((path / "tokenizer.json").read_text())
        change(head)
        (path / "tokenizer.json").write_text(json.dumps(head))

    return edit


def put(name, value):
    return lambda mapping: mapping.__setitem__(name, value)


def header(content):
    return struct.pack("<Q", len(content)) + content


BIAS = "encoder.layers.0.feedforward.inner.bias"
NORM = "encoder.norm.weight"
KERNEL = "attention.kernel._type_"
PICKLE = "!!binary gASVHgAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAR0cnVllIWUUpQu"
DEEP = "[" * 5000 + "]" * 5000
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(8)
)
# fmt: off
CASES = {
    # what would run something
    "a command": (at(KERNEL, "seqattn.cli.main.run_subcommand"), "which is not part of seqattn"),
    "a command by its name": (at(KERNEL, "run_subcommand"), "does not support 'run_subcommand'"),
    "a worker": (at("model._type_", "benchmarks.training._work"), "is not part of seqattn"),
    "os.system": (at("model._type_", "os.system"), "model names os.system, which is not part of"),
    "a target": (at("model._target_", "os.system"), "unknown key model._target_"),
    "a target deep below": (at("data.x", {"_target_": "os.system"}), "unknown key data.x._target_"),
    "a target of attention": (at("attention.kernel._target_", "a.b"), "attention.kernel._target_"),
    "args": (at("model._args_", [1]), "unknown key model._args_"),
    "partial": (at("model._partial_", True), "unknown key model._partial_"),
    "a type in a list": (at("data.x", [{"_type_": "os.system"}]), "data.x names os.system, which"),
    "a type where none belongs": (at("seed", {"_type_": "Table"}), "seed does not support 'Table'"),
    "an environment variable": (at("name", "${oc.env:HOME}"), "name must be plain text, got '${"),
    "an interpolated type": (at(KERNEL, "${x}"), "attention.kernel._type_ must be plain text"),
    "a pickle": (text("seed: 1", f"seed: {PICKLE}"), "tags and aliases"),
    "an object": (text("seed: 1", "seed: !!python/object/apply:os.system [x]"), "tags and aliases"),
    "a harmless tag": (text("seed: 1", "seed: !!str 1"), "tags and aliases"),
    # documents
    "an alias": (text("seed: 1", "seed: &a 1\nname2: *a"), "tags and aliases"),
    "an alias bomb": (raw("config.yaml", BOMB.encode()), "tags and aliases"),
    "a deep list": (text("seed: 1", f"seed: {DEEP}"), "too deeply nested or too large"),
    "a deep mapping": (raw("config.yaml", b"{a: " * 3000), "too deeply nested or too large"),
    "a long list": (text("seed: 1", f"seed: [{'1,' * 30000}]"), "too deeply nested or too large"),
    "a long document": (text("seed: 1", f"seed: 1\n#{'x' * 300000}"), "longer than 262,144"),
    "a huge document": (raw("config.yaml", b"#" * (2 << 20)), "than the maximum of 1,048,576"),
    "no YAML": (raw("config.yaml", b"{"), "not valid YAML"),
    "no text": (raw("config.yaml", b"\xff\xfe\x00"), "the bundle is damaged"),
    "a control character": (raw("config.yaml", b"a: \x01"), "not valid YAML"),
    "nothing": (raw("config.yaml", b""), "format must be 'seqattn bundle 2', got "),
    "a list": (raw("config.yaml", b"- a\n"), "format must be 'seqattn bundle 2', got "),
    "a number": (raw("config.yaml", b"5"), "format must be 'seqattn bundle 2', got "),
    "two documents": (raw("config.yaml", b"a: 1\n---\nb: 1\n"), "not valid YAML"),
    "another format": (at("format", "seqattn bundle 9"), "got 'seqattn bundle 9'"),
    "no format": (without("format"), "format must be 'seqattn bundle 2', got "),
    "a format that is a list": (at("format", ["a"]), "format must be 'seqattn bundle 2', got "),
    "a long number": (text("seed: 1", f"seed: {'9' * 5000}"), "not valid YAML"),
    "a key that is a list": (text("seed: 1", "? [a]\n: 1"), "not valid YAML"),
    "a key that is a number": (at("model.1", 1), "unknown key model.1; choose from"),
    "a number for a key": (text("seed: 1", "5: 1"), "the file has an invalid key 5"),
    "no name for a key": (text("seed: 1", '"a\\nb": 1'), "the file has an invalid key 'a\\nb'"),
    "an empty key": (at("model", {"_type_": "TransformerConfig", "": 1}), "unknown key model."),
    "a date": (text("seed: 1", "seed: 2020-01-01"), "seed must be text, a number, true, false or"),
    "nan": (at("optimizer.lr", float("nan")), "optimizer.lr must be a finite number, got nan"),
    "infinity": (at("generation.length_penalty", float("inf")), "must be a finite number, got inf"),
    "half a letter": (text("name: tiny", 'name: "\\ud800"'), "not valid YAML"),
    "an unknown part": (at("logger", {"csv": 1}), "unknown key 'logger'; "),
    "choices that are a list": (at("choices", ["mha"]), "choices must map each group to a name"),
    "choices of numbers": (at("choices.model", 5), "choices must map each group to a name"),
    # parts
    **{
        f"no {part}": (without(part), f"{part} is missing from ")
        for part in ("model", "attention", "position", "loader", "generation")
    },
    "an empty model": (at("model", None), "model is missing from "),
    "a text for a model": (at("model", "x" * 1000), "missing required key model._type_"),
    "a number for attention": (at("attention", 5), "missing required key attention._typ"),
    "an attention without a type": (without("attention._type_"), "missing required key attention."),
    "no attentions": (at("attention", []), "attention must be one or more choices, got none"),
    "a list of numbers": (at("attention", [1]), "missing required key attention._typ"),
    "a list for a model": (at("model", []), "model must be a single choice or value, got []"),
    "a list for a position": (at("position", []), "position must be a single choice or value"),
    "a number for a processor": (at("generation.processors", [1]), "processors.0 must be a proces"),
    "a text for a kernel": (at("attention.kernel", "SoftmaxKernel"), "missing required key att"),
    "a list for a kernel": (at("attention.kernel", []), "attention.kernel must be a config node"),
    "no kernel": (without("attention.kernel"), "missing required key attention.kernel"),
    "a null kernel": (at("attention.kernel", None), "attention.kernel must be a config node"),
    "a search for a kernel": (at(KERNEL, "BeamSearch"), "attention.kernel does not support 'Be"),
    "a kernel for a model": (at("model._type_", "SoftmaxKernel"), "model does not support "),
    "a type that is a number": (at(KERNEL, 5), "attention.kernel does not support 5"),
    "a type that is null": (at(KERNEL, None), "attention.kernel does not support None"),
    "a type that is a list": (at(KERNEL, ["a"]), "attention.kernel does not support ['a']"),
    "a misspelt type": (at(KERNEL, "SoftmaxKernl"), "did you mean SoftmaxKernel?"),
    "a model of spans": (at("model", {"_type_": "SpanTransformerConfig"}), "cannot read "),
    "a recurrent model": (at("model", {"_type_": "RecurrentConfig"}), "encodes positions by rec"),
    "a search of spans": (at("generation", {"_type_": "SpanSearch"}), "needs a generation setti"),
    "a loader of spans": (at("loader", {"_type_": "SpanOptions"}), "needs a loader setting "),
    "a limit that is a number": (at("generation.limit", 5), "missing required key generation.li"),
    "a limit that is a list": (at("generation.limit", [5]), "missing required key generation.li"),
    # values
    "a wide model": (at("model.dim", 10**12), "model"),
    "a model of no width": (at("model.dim", 0), "model.dim must be"),
    "a mapping for a width": (at("model.dim", {"a": 1}), "model.dim must be"),
    "another width": (at("model.dim", 32), "in the model); copy it again or retrain"),
    "a width of memory": (at("model.ffn_dim", 65_536), "in the model); copy it again or retrain"),
    "layers without end": (at("model.encoder_layers", 10**6), "layers"),
    "many layers": (at("model.encoder_layers", 999), "fewer than the model has layers"),
    "more layers": (at("model.decoder_layers", 2), "(missing tensor decoder.layers.1"),
    "fewer layers": (at("model.decoder_layers", 0), "(unexpected tensor "),
    "heads that do not divide": (at("attention.num_heads", 5), "num_heads must divide model.dim"),
    "fewer key heads": (at("attention.num_kv_heads", 2), "in the model); copy it again or retrain"),
    "a word that is none": (at("model.activation", "os.system"), "model.activation must be one of"),
    "an unknown key": (at("model.dmi", 5), "unknown key model.dmi; did you mean model.dim?"),
    "an unknown key of attention": (at("attention.kernel.window", 5), "unknown key attention."),
    "a key that callers fill": (at("attention.kernel.shape", 5), "attention.kernel.shape"),
    "a batch that is a text": (at("generation.batch_size", "x"), "generation.batch_size must be a"),
    "a loader's word": (at("loader.long_sources", "eat"), "long_sources must be one of"),
    # weights
    "no weights": (gone("model.safetensors"), "does not exist: the bundle is incomplete"),
    "empty weights": (raw("model.safetensors", b""), "(its header is damaged); copy it again"),
    "weights cut short": (cut("model.safetensors", -5), "cannot read "),
    "a header cut short": (cut("model.safetensors", 100), "cannot read "),
    "a header without end": (raw("model.safetensors", b"\xff" * 64), "its header is damaged"),
    "a header that is no JSON": (raw("model.safetensors", header(b"{{{{")), "cannot read "),
    "a header of nothing": (raw("model.safetensors", header(b"{}")), "fewer than the model has"),
    "a deep header": (raw("model.safetensors", header(DEEP.encode())), "cannot read "),
    "a tensor too large": (
        raw("model.safetensors", header(
            b'{"a":{"dtype":"F32","shape":[99999999999],"data_offsets":[0,399999999996]}}'
        )),
        "cannot read ",
    ),
    "a pickle for weights": (raw("model.safetensors", b"\x80\x04K\x01." * 9), "cannot read "),
    "a folder for weights": (folder("model.safetensors"), "model.safetensors does not exist"),
    "a pipe for weights": (pipe("model.safetensors"), "model.safetensors does not exist"),
    "another shape": (weights(put(BIAS, torch.zeros(5))), f"({BIAS} is (5,), but (20,) in"),
    "another tensor": (weights(put("other", torch.zeros(5))), "(unexpected tensor other)"),
    "a lacking tensor": (weights(lambda tensors: tensors.pop(BIAS)), f"missing tensor {BIAS}"),
    "a transposed tensor": (weights(put(NORM, torch.zeros(1, 16))), f"{NORM} is (1, 16), but"),
    "a nan": (weights(put(NORM, torch.full((16,), torch.nan))), f"{NORM} that are not finite"),
    "an infinity": (weights(put(NORM, torch.full((16,), torch.inf))), "not finite numbers"),
    "whole numbers": (weights(put(NORM, torch.ones(16, dtype=torch.long))), "not finite numbers"),
    "numbers beyond float32": (
        weights(put(NORM, torch.full((16,), 1e300, dtype=torch.float64))), "not finite numbers",
    ),
    "a nan of eight bits": (
        weights(put(NORM, torch.full((16,), torch.nan).to(torch.float8_e4m3fn))), "not finite numb",
    ),
    "scales of a vector": (
        weights(lambda tensors: tensors.update({
            NORM: torch.ones(16, dtype=torch.int8), f"{NORM}.int8_scale": torch.ones(16, 1),
        })),
        "are not an int8 matrix with row scales",
    ),
    # the rest
    "scores that are no JSON": (raw("scores.json", b"{"), "scores.json is not valid JSON, line 1"),
    "scores that are a list": (raw("scores.json", b"[1]"), "must contain a JSON object of numbers"),
    "deep scores": (raw("scores.json", b'{"a":' * 20000), "scores.json must nest lists and obj"),
    "scores of bytes": (raw("scores.json", b"\xff\xff"), "scores.json is not valid UTF-8"),
    "nested scores": (raw("scores.json", b'{"a":' * 9 + b"1" + b"}" * 9), "must contain a JSON o"),
    "huge scores": (raw("scores.json", b" " * (2 << 20)), "larger than the maximum of 1,048,576"),
    "no tokenizer": (gone("tokenizer.json"), "tokenizer.json is missing"),
    "no vocabulary": (gone("joint.model"), "joint.model is missing"),
    "another vocabulary": (raw("joint.model", b"x"), "does not match its digest"),
    "a tokenizer's garbage": (raw("tokenizer.json", b"{"), "is not a seqattn tokenizer"),
    "a tokenizer's list": (raw("tokenizer.json", b"[]"), "is not a seqattn tokenizer"),
    "a tokenizer's depth": (raw("tokenizer.json", DEEP.encode()), "is not a seqattn tokenizer"),
    "a tokenizer's bytes": (raw("tokenizer.json", b"\xff"), "is not a seqattn tokenizer"),
    "a huge tokenizer": (raw("tokenizer.json", b" " * (1 << 20)), "is not a seqattn tokenizer"),
    "a tokenizer of others": (tokenizer(put("format", "x")), "is not a seqattn tokenizer"),
    "a path for a vocabulary": (
        tokenizer(put("files", {"../../x": "0"})), "is not a seqattn tokenizer",
    ),
    "files that are a list": (tokenizer(put("files", ["joint.model"])), "is not a seqattn tok"),
    "a folder for a configuration": (folder("config.yaml"), "not a bundle: config.yaml is missi"),
    "a pipe for a configuration": (pipe("config.yaml"), "not a bundle: config.yaml is missi"),
    "a device for a configuration": (link("config.yaml", "/dev/zero"), "is not a bundle: config"),
    "a link to itself": (link("config.yaml", "config.yaml"), "not a bundle: config.yaml is missi"),
}
# fmt: on


@pytest.fixture(scope="module", autouse=True)
def imported(bundle):
    """What the first loading of each kind imports is not counted."""
    seqattn.load(bundle)
    for group in ("model", "generation", "loader"):
        for node in choices(group).values():
            if "_target_" in node:
                import_path(node["_target_"])


@pytest.mark.parametrize("name", CASES)
def test_a_bundle_that_was_tampered_with_is_refused_in_one_line(bundle, tmp_path, name):
    edit, part = CASES[name]
    path = tmp_path / "model"
    shutil.copytree(bundle, path)
    edit(path)
    began = time.process_time()
    with pytest.raises(UserError) as error:
        seqattn.load(path)
    assert time.process_time() - began < 1
    line = str(error.value)
    assert part in line
    assert "\n" not in line
    assert len(line) < 600


def test_a_vocabulary_of_another_size_does_not_fit_the_weights(bundle, tmp_path):
    from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
    from tests.bundle.conftest import corpus

    path = tmp_path / "model"
    shutil.copytree(bundle, path)
    train_tokenizer(corpus(), corpus(), TokenizerConfig(vocab_size=35), tmp_path).save(path)
    with pytest.raises(UserError, match=r"is \(36, 16\), but \(35, 16\) in the model"):
        seqattn.load(path)
