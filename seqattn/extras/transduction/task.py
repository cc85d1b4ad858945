"""Settings and setup of the task of transduction."""

from typing import ClassVar

from seqattn.checking import BadValue
from seqattn.training.task_options import TextGeneration


class Transduction(TextGeneration):
    """Generation of a word, or of its pronunciation, from a word and its features."""

    setup: ClassVar[str] = "seqattn.extras.transduction.setup.WordSetup"
    bundle: ClassVar[str] = "seqattn.extras.transduction.bundle.WordBundle"
    usage: ClassVar[str] = 'generate("WORD")'

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alignment.links is not None:
            raise BadValue("alignment.links", "needs task=translation or summarization")
