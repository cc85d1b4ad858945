"""A bundle whose outputs have no padding, which CTranslate2 alone would not leave out."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from seqattn.tokens import PAD


@pytest.fixture
def bundle(trained, tmp_path):
    """A copy of the trained bundle, which learnt no more than to leave padding out."""
    shutil.copytree(trained / "model", tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    weights = load_file(file)
    bias = torch.linspace(-1, 1, len(weights["decoder.norm.bias"]))
    weights["decoder.norm.bias"] += bias
    weights["source_embedding.table.weight"][PAD] = -20 * bias
    save_file(weights, file)
    return tmp_path / "model"
