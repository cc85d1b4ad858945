import pytest

from seqattn.extras.pictures.watch import HeatmapCallback


@pytest.fixture(autouse=True, scope="module")
def _without_pictures():
    """Drawing is most of so small a run's time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(HeatmapCallback, "on_validation_end", lambda *_: None)
        yield
