"""Pictures of any bundle."""

from typing import cast

from seqattn.bundle.bundle import Bundle
from seqattn.extras.pictures.base import Pictures
from seqattn.extras.pictures.texts import TextPictures


def pictures_of(bundle: Bundle) -> Pictures:
    """Return a bundle's own pictures, or else those of a text's.

    Raises:
        UserError: if it has none, and outputs no text.
    """
    if hasattr(bundle, "pictures"):
        return cast(Pictures, bundle.pictures())
    return TextPictures(bundle.texts("pictures"))
