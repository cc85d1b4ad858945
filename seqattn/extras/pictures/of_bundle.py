"""Pictures of any bundle."""

from typing import Any

from seqattn.bundle.bundle import Bundle
from seqattn.extras.pictures.base import Pictures
from seqattn.extras.pictures.texts import TextPictures
from seqattn.settings.nodes import import_path


def pictures_of(bundle: Bundle) -> Pictures:
    """Return a bundle's own pictures, or else those of a text's.

    Raises:
        UserError: if it has none, and outputs no text.
    """
    own = getattr(bundle, "pictures", None)
    made: Any = TextPictures(bundle.texts("pictures")) if own is None else import_path(own)(bundle)
    return made
