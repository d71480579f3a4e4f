"""Pictures of a distribution over the cells of a grid or hypergrid."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHADES = " .:-=+*#%@"


def plane(p: Float[np.ndarray, " states"], params: Any) -> Float[np.ndarray, "rows columns"]:
    """The marginal of the first two dimensions (a single row when there is one)."""
    picture = np.asarray(p).reshape((params.length,) * params.n_dim)
    picture = picture.sum(axis=tuple(range(2, params.n_dim)))
    return picture if params.n_dim > 1 else picture[None, :]


def ascii_picture(p: Float[np.ndarray, " states"], params: Any) -> str:
    """Dark cells are likely: one character per cell, dimension 0 downwards, the scale from 0 to the largest cell."""
    picture = plane(p, params)
    shade = np.ceil(picture / picture.max() * (len(SHADES) - 1)).astype(int)
    return "\n".join("".join(SHADES[s] for s in row) for row in shade)


def figure(panels: dict[str, Float[np.ndarray, " states"]], params: Any) -> "Figure":
    """The titled distributions side by side on one colour scale, e.g. target and learned."""
    from matplotlib.figure import Figure

    pictures = {title: plane(p, params) for title, p in panels.items()}
    top = max(picture.max() for picture in pictures.values())
    canvas = Figure(figsize=(3.2 * len(panels) + 0.6, 3.2), layout="constrained")
    axes = canvas.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
        axis.imshow(picture, vmin=0, vmax=top, cmap="viridis")
        axis.set(title=title, xlabel="dimension 1", ylabel="dimension 0")
    canvas.colorbar(axes[-1].images[0], ax=axes.tolist(), shrink=0.8)
    return canvas
