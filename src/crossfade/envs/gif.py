"""Frames as an animated GIF."""

import io
from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from ..errors import UsageError

LAST = 6  # times as long as the others the last frame is shown
Frame = UInt8[np.ndarray, "rows columns 3"]


def encode(pictures: Sequence[Frame], milliseconds: int = 250) -> bytes:
    """Frames as an animated GIF that begins anew when its last frame has been seen; all frames share a palette."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise UsageError("GIFs need Pillow: pip install 'crossfade[report]'.") from error
    packed = [picture.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32) for picture in pictures]
    index = np.zeros(1 << 24, np.uint8)
    for picture in packed:
        index[picture] = 1
    used = np.flatnonzero(index)
    colours = np.stack([used >> 16, used >> 8 & 255, used & 255], -1).astype(np.uint8)
    if len(used) > 255:
        reduced = Image.fromarray(colours[None]).quantize(255, dither=Image.Dither.NONE)
        index[used], palette = np.asarray(reduced)[0], reduced.getpalette() or []
    else:
        index[used], palette = np.arange(len(used)), colours.ravel().tolist()
    images = [Image.fromarray(index[picture]) for picture in packed]
    for image in images:
        image.putpalette(palette)
    buffer, times = io.BytesIO(), [milliseconds] * (len(images) - 1) + [LAST * milliseconds]
    images[0].save(buffer, "GIF", save_all=True, append_images=images[1:], duration=times, loop=0, optimize=True)
    return buffer.getvalue()
