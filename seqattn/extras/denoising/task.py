"""Settings of the task of denoising."""

from typing import ClassVar

from seqattn.training.task_options import TextGeneration


class TextDenoising(TextGeneration):
    """Generation of a text, or of its missing parts, from the text with noise."""

    redraws: ClassVar[bool] = True
