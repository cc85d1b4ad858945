"""What the fields of requests may hold: each list and text has an end."""

from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)
from pydantic_core import PydanticCustomError

Number = Annotated[float, Field(allow_inf_nan=False)]
Gate = Annotated[float, Field(ge=-1e6, le=1e6)]
"""A head's factor; with much larger ones the model gives no numbers."""
NAMES, ITEMS, CHARACTERS = 64, 1_000, 100_000
Text = Annotated[str, StringConstraints(max_length=CHARACTERS)]
Filled = Annotated[str, StringConstraints(min_length=1, max_length=CHARACTERS)]
Name = Annotated[str, StringConstraints(max_length=100)]
Strings = Annotated[list[str], Field(fail_fast=True)]
"""As many as the limits of the server allow, which say so with a status of their own."""
Position = Annotated[int, Field(ge=0, le=1_000_000)]
Item = TypeVar("Item")
Named = Annotated[list[Name], Field(max_length=NAMES, fail_fast=True)]


def _few(value: Any) -> Any:
    """Refuses a mapping by its size before its values are checked: each may give an error."""
    if isinstance(value, dict) and len(value) > NAMES:
        line = "should have at most {most} names, not {count}"
        raise PydanticCustomError("too_long", line, {"most": NAMES, "count": len(value)})
    return value


ByName = Annotated[
    dict[Name, Annotated[list[Item], Field(max_length=ITEMS, fail_fast=True)]],
    BeforeValidator(_few),
    Field(max_length=NAMES),
]
"""A list for each attention or pattern."""


class Request(BaseModel):
    """Keys that are not there are refused."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _first_unknown(cls, value: Any) -> Any:
        """Leaves one unknown key of many: pydantic makes an error for each."""
        if not isinstance(value, dict):
            return value
        fields = cls.model_fields
        known = {*fields, *(field.alias for field in fields.values())}
        unknown = [key for key in value if key not in known]
        return {key: value[key] for key in value if key in known or key == unknown[0]}
