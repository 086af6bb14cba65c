"""A figure that a notebook shows as the last line of a cell. Plain figures are not, since nothing here uses pyplot."""

import io

from matplotlib.figure import Figure

__all__ = ["ShownFigure"]

_CSS_PIXELS = 96  # per inch


class ShownFigure(Figure):
    """A figure of matplotlib with a picture for notebooks."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """The picture and its size on the page: sharp also on screens with more pixels."""
        written = io.BytesIO()
        self.savefig(written, format="png", dpi=2 * _CSS_PIXELS)
        width, height = (int(_CSS_PIXELS * inches) for inches in self.get_size_inches())
        return written.getvalue(), {"width": width, "height": height}
