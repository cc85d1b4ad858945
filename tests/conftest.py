"""What every test starts from: one thread, and the same random numbers."""

import pytest
import torch

from seqattn.ops import cpu, exponentials, linear_layer

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def where_mkl_lags(monkeypatch):
    """A CPU whose quick products and exponentials are not MKL's, whatever this one is."""
    if not cpu.onednn_is_exact():
        pytest.skip("such products are not those of float32 here")
    for module in (cpu, exponentials):
        monkeypatch.setattr(module, "mkl_lags", lambda: True)
    monkeypatch.setattr(linear_layer, "_LEAST", 1)


@pytest.fixture(params=["this CPU", "where MKL lags"])
def either_cpu(request):
    """Either way to multiply in float32."""
    if request.param == "where MKL lags":
        request.getfixturevalue("where_mkl_lags")


def pytest_collection_modifyitems(items):
    """Refuses names that hold an address: parallel workers would collect other names."""
    named = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if named:
        raise pytest.UsageError(f"give these tests ids: {named}")
