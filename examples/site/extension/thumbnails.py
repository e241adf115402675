"""Thumbnails of the gallery: a part of each program's picture, cut for the size of a card."""

from __future__ import annotations

import io

from PIL import Image

__all__ = ["thumbnail"]

# In pixels, for screens with two of them in place of one.
_SIZE = (480, 288)
# Program -> left, top and width of the part, in pixels of the picture.
_PARTS = {
    "01_first_operator": (65, 130, 400),
    "02_schema": (60, 40, 480),
    "03_devices": (160, 20, 420),
    "04_fake_and_sizes": (330, 40, 400),
    "05_gradients": (70, 60, 560),
    "06_vmap": (290, 60, 560),
    "07_nesting": (110, 90, 640),
    "08_derivatives": (110, 40, 530),
    "09_new_rule_kind": (180, 40, 480),
    "10_checking": (80, 110, 460),
    "11_wrap_a_c_library": (230, 30, 440),
    "12_typing": (230, 60, 440),
    "13_trace": (80, 30, 370),
    "deblur": (262, 215, 245),
    "digits": (40, 40, 820),
    "handover": (110, 60, 500),
    "larger_than_memory": (100, 20, 240),
    "patterns": (40, 50, 250),
    "plugin": (0, 0, 560),
    "terrain": (328, 60, 200),
    "tutorial": (300, 25, 230),
    "waves": (530, 60, 195),
}


def thumbnail(program: str, picture: bytes) -> bytes:
    """Return a part of a picture as a small PNG."""
    left, top, width = _PARTS[program]
    height = round(width * _SIZE[1] / _SIZE[0])
    with Image.open(io.BytesIO(picture)) as image:
        if left + width > image.width or top + height > image.height:
            raise ValueError(f"{program}: the thumbnail is a part outside the picture")
        part = image.convert("RGBA").crop((left, top, left + width, top + height))
    out = io.BytesIO()
    part.resize(_SIZE, Image.Resampling.LANCZOS).save(out, "png", optimize=True)
    return out.getvalue()
