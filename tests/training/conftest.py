import pytest

from seqattn.extras.pictures.watch import HeatmapCallback
from tests.cli.small import write_corpus


@pytest.fixture(autouse=True, scope="module")
def _without_pictures():
    """Drawing is most of so small a run's time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(HeatmapCallback, "on_validation_end", lambda *_: None)
        yield


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("runs") / "corpus")
