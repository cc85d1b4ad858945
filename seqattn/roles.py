"""Roles of settings: which may change on resume, and which separate systems in a comparison."""

from enum import Enum


class Role(Enum):
    """The part of a run that depends on a setting, declared as `Annotated[int, Role.NOTE]`.

    A field without a role inherits that of its parent settings; training settings default to STEP.
    """

    STEP = "training steps"
    """A command with a different value is a different run; `resume=RUN` may change it."""
    SHAPE = "parameters of the model, or its vocabulary"
    """Must not change on resume."""
    END = "end of training and contents of the bundle"
    """May change on resume; a finished run then counts as unfinished."""
    SCORE = "how the result is scored"
    """As END; systems that differ only in it count as the same system."""
    MACHINE = "hardware and computation"
    """May change on resume."""
    NOTE = "names, paths and speed"
    """May change on resume; systems that differ only in it count as the same system."""
