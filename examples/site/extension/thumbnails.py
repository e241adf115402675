"""Thumbnails of the gallery: a part of each program's picture, cut for the size of a card."""

from __future__ import annotations

import io

from PIL import Image

__all__ = ["thumbnail"]

# In pixels, for screens with two of them in place of one.
_SIZE = (480, 288)
# Program -> left, top and width of the part, in pixels of the picture.
_PARTS = {
    "01_first_operator": (50, 100, 440),
    "02_schema": (60, 50, 520),
    "03_devices": (120, 10, 500),
    "04_fake_and_sizes": (110, 40, 600),
    "05_gradients": (70, 60, 560),
    "06_vmap": (290, 60, 600),
    "07_nesting": (110, 20, 720),
    "08_derivatives": (60, 40, 600),
    "09_new_rule_kind": (80, 20, 600),
    "10_checking": (70, 20, 600),
    "11_wrap_a_c_library": (0, 30, 450),
    "12_typing": (0, 50, 490),
    "13_trace": (70, 20, 420),
    "deblur": (262, 215, 245),
    "digits": (40, 40, 820),
    "handover": (110, 10, 640),
    "larger_than_memory": (80, 18, 310),
    "patterns": (40, 50, 250),
    "terrain": (328, 60, 200),
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
