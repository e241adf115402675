"""Thumbnails of the gallery: a part of each program's picture, cut for the size of a card."""

from __future__ import annotations

import io

from PIL import Image

__all__ = ["thumbnail"]

# In pixels, for screens with two of them in place of one.
_SIZE = (480, 288)
# Program -> left, top and width of the part, in pixels of the picture.
_PARTS = {
    "01_first_operator": (552, 40, 400),
    "02_schema": (84, 40, 500),
    "03_devices": (520, 50, 400),
    "04_fake_and_sizes": (330, 40, 400),
    "05_gradients": (70, 60, 560),
    "06_vmap": (290, 60, 560),
    "07_nesting": (100, 130, 530),
    "08_derivatives": (110, 40, 530),
    "09_new_rule_kind": (420, 85, 440),
    "10_checking": (470, 110, 400),
    "11_wrap_a_c_library": (250, 28, 460),
    "12_typing": (305, 72, 352),
    "13_trace": (545, 90, 400),
    "deblur": (262, 215, 237),
    "digits": (68, 45, 830),
    "handover": (125, 85, 420),
    "larger_than_memory": (100, 26, 240),
    "patterns": (44, 50, 246),
    "plugin": (0, 0, 545),
    "terrain": (328, 60, 200),
    "tutorial": (248, 70, 224),
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
