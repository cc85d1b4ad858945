"""What every test starts from: one thread, and the same random numbers."""

from pathlib import Path

import pytest
import torch

from seqattn import ops
from seqattn.ops import vocabulary_loss
from seqattn.ops.cpu import onednn
from tests import builders
from tests.small_runs import answering, corpus, places, scored, trained  # noqa: F401

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def where_mkl_lags(monkeypatch):
    """A CPU whose quick products and exponentials are not MKL's, whatever this one is."""
    if not onednn.onednn_is_exact():
        pytest.skip("such products are not those of float32 here")
    monkeypatch.setattr(onednn, "mkl_lags", lambda: True)
    monkeypatch.setattr(ops, "LEAST", 1)


@pytest.fixture(params=["this CPU", "where MKL lags"])
def either_cpu(request):
    """Either way to multiply in float32."""
    if request.param == "where MKL lags":
        request.getfixturevalue("where_mkl_lags")


@pytest.fixture(params=["one block", "several blocks"])
def blocks(request, monkeypatch):
    """Nine tokens, or pairs of tokens, of 11 words in one block, or in blocks of 4, 4 and 1."""
    if request.param == "several blocks":
        monkeypatch.setattr(vocabulary_loss, "_LEAST_ROWS", 2)
        monkeypatch.setattr(vocabulary_loss, "_BLOCK_NUMBERS", 5 * 11)  # 5 would part a pair
        monkeypatch.setattr(vocabulary_loss, "_NARROW_ROWS", 2)


def pytest_addoption(parser):
    told = "hold the attentions of DIR/attention to the laws, in place of the shipped ones"
    parser.addoption("--config-dir", type=Path, metavar="DIR", help=told)


def pytest_configure(config):
    builders.own_conf = own = config.getoption("--config-dir")
    if own is not None and not builders.own_choices():
        raise pytest.UsageError(f"--config-dir: there is no {own}/attention/NAME.yaml")


def pytest_collection_modifyitems(config, items):
    """Leaves out what is not about attentions of one's own, where these are given.

    Refuses names that hold an address: parallel workers would collect other names.
    """
    if builders.own_conf is not None:
        others = [item for item in items if not _tries_an_attention(item)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if _tries_an_attention(item)]
    named = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if named:
        raise pytest.UsageError(f"give these tests ids: {named}")


def _tries_an_attention(item):
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    own = {*builders.attention_variants(), *builders.mixer_choices()}
    return any(value in own for value in values if type(value) is str)
