"""What a setting means for a run that is resumed, and for systems that are compared."""

from enum import Enum


class Role(Enum):
    """What depends on a setting: declared once, on its field, as `Annotated[int, Role.NOTE]`.

    A field without a role has that of the settings it is part of; those of a training have STEP.
    """

    STEP = "training steps"
    """The same command with another value is another run; `resume=RUN` may change it."""
    SHAPE = "parameters of the model, or its vocabulary"
    """No run resumes with another value."""
    END = "where training ends and what its bundle is"
    """A run resumes with another value; a finished one is not finished then."""
    SCORE = "how the result is scored"
    """As END; systems that differ by it alone are one."""
    MACHINE = "how and on what it is computed"
    """A run resumes with another value."""
    NOTE = "names, places and speed"
    """A run resumes with another value; systems that differ by it alone are one."""
