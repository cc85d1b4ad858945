"""Vectors of others begin the rows of pieces that their file names."""

import gzip
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vectors import read_vectors
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from seqattn.layers.embedding import make_table
from seqattn.training.start import fill_embeddings
from tests.data.source_helpers import refusal

PIECES = ["<pad>", "▁dog", "dog", "▁", "s", "▁cat"]


def write(path, *lines):
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize("name", ["v.vec", "v.txt.gz"])
def test_pieces_are_found_by_name_and_words_by_the_piece_that_begins_them(tmp_path, name):
    lines = ["4 2", "dog 1 2", "unknown 9 9", "▁cat 3 4", "cat 5 6", "s 7 8 ", "s 0 0"]
    rows, vectors = read_vectors(write(tmp_path / name, *lines), PIECES)
    assert rows == [1, 2, 4, 5]
    assert vectors.tolist() == [[1, 2], [1, 2], [7, 8], [3, 4]]
    rows, vectors = read_vectors(write(tmp_path / name, "cat 5 6", "▁cat 3 4"), PIECES)
    assert (rows, vectors.tolist()) == ([5], [[3, 4]])


@pytest.mark.parametrize("line", ["cat 1", "cat 1 x", "cat 1 nan", "cat 1 1e99", "cat 1 2 3"])
def test_a_line_of_other_numbers_is_refused(tmp_path, line):
    path = write(tmp_path / "v.vec", "dog 1 2", line)
    assert refusal(lambda: read_vectors(path, PIECES)) == (
        f"{path}: line 2 must have a name and 2 numbers"
    )


def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe is not a regular file; expected a file of vectors"):
        read_vectors(tmp_path / "pipe", ["a"])


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "name", ["cat . .", "cat name@domain.com", "dog  house", "s a b", "cat 1990s 3d"]
)
def test_a_name_with_spaces_names_no_piece(tmp_path, name, place):
    lines = ["dog 1 2", "▁cat 3 4", "s 7 8"]
    plain = read_vectors(write(tmp_path / "plain.vec", *lines), PIECES)
    lines.insert(place, f"{name} 5 6")
    rows, vectors = read_vectors(write(tmp_path / "v.vec", *lines), PIECES)
    assert rows == plain[0]
    assert vectors.tolist() == plain[1].tolist()
    lines.insert(0, "4 2")
    assert read_vectors(write(tmp_path / "head.vec", *lines), PIECES)[0] == rows


@pytest.mark.parametrize("line", ["cat 1 x", "cat 1e99 2"])
def test_a_first_line_of_no_numbers_is_refused(tmp_path, line):
    path = write(tmp_path / "v.vec", line, "dog 1 2")
    assert "line 1 must have a name and" in refusal(lambda: read_vectors(path, PIECES))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    config = TokenizerConfig("bpe", joint=False)
    return train_tokenizer(["ab abb"] * 3, ["xy xyy"] * 3, config, folder)


def test_found_rows_are_filled_at_the_size_of_the_others_and_told(tmp_path, tokenizer):
    source, target = (
        make_table(size, 3) for size in (tokenizer.source_size, tokenizer.target_size)
    )
    model = SimpleNamespace(
        source_embedding=SimpleNamespace(table=source),
        target_embedding=SimpleNamespace(table=target),
    )
    before = source.weight.detach().clone()
    names = tokenizer.source_pieces(range(tokenizer.source_size))
    path = write(tmp_path / "v.vec", "▁ab 3 6 9", "x 1 1 1", "y 2 2 2")
    told = fill_embeddings(model, tokenizer, path)
    assert told == [
        f"initialized 1 of {tokenizer.source_size} source embeddings from {path}",
        f"initialized 3 of {tokenizer.target_size} target embeddings from {path}",
    ]
    assert "x" not in names
    row = names.index("▁ab")
    assert torch.allclose(source.weight[row] / source.weight[row, 0], torch.tensor([1.0, 2, 3]))
    assert np.isclose(source.weight[row].square().mean().item(), 1 / 3)
    others = [n for n in range(len(names)) if n != row]
    assert torch.equal(source.weight[others], before[others])


def test_vectors_that_do_not_fit_are_refused(tmp_path, tokenizer):
    model = SimpleNamespace(embedding=SimpleNamespace(table=make_table(tokenizer.source_size, 3)))
    for line, says in (("zzz 1 2 3", "contains none of the"), ("ab 1 2", "set model.dim=2")):
        path = write(tmp_path / "v.vec", line)
        with pytest.raises(UserError, match=says):
            fill_embeddings(model, tokenizer, path)
