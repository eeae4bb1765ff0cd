"""The trellis and paths through it, drawn as in figures 1 and 2 of the paper.

Positions are in centimetres; fonts and lines are scaled with the figure, so that it looks the same
at any size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import cycle, islice
from operator import index
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch
from matplotlib.path import Path

from ..core.arrays import AnyArray, Doubles, Ints
from ..structure.trellis import Trellis

MAX_EDGES = 2000
MAX_LABELLED_DEGREE = 12  # where states have more edges than this, edge labels do not fit
CROWD = 4  # states in a slice above which the edges beside a path are drawn pale
MIN_FONT = 3.5  # points; smaller text is left out
INCHES_PER_CM, MAX_INCHES = 0.5, 24.0  # of a new figure
PATH_COLORS = ("#00cc00", "#ff0000", "#1f77b4", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2")

# Centimetres of the drawing.
RADIUS = 0.4  # of a vertex
VERTEX_FONT, EDGE_FONT = 0.36, 0.28
SLOT = 0.38  # height that an edge label takes
LABEL_DISTANCE = 1.0  # from a state to the labels of its edges
MIN_ROW, MIN_COLUMN, MIN_HEIGHT, MARGIN = 1.1, 2.4, 2.6, 0.25
LANE = 0.12  # between early exits that run side by side
PATH_GAP = 0.16  # between highlighted paths that share an edge


def paper_edge_order(trellis: Trellis) -> Ints:
    """Return the number of every edge in the paper's figures.

    The paper orders edges by tail; for each tail, the exit to the sink comes first, then the others
    by head.

    Parameters
    ----------
    trellis : Trellis
        The graph.

    Returns
    -------
    ndarray of int64, shape (n_edges,)
        Entry i is the paper's number of edge i.

    Examples
    --------
    >>> from ltls import Trellis
    >>> from ltls.plot import paper_edge_order
    >>> paper_edge_order(Trellis(22)).tolist()
    [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17, 18, 6, 11]
    """
    tail, head = trellis.edges.T
    exit_first = np.where(head == head.max(initial=0), -1, head)
    number = np.empty(trellis.n_edges, dtype=np.int64)
    number[np.lexsort((exit_first, tail))] = np.arange(trellis.n_edges)
    return number


def plot_trellis(
    trellis: Trellis,
    paths: Iterable[int] = (),
    *,
    colors: Sequence[Any] | None = None,
    edge_labels: str | Iterable[Any] | None = "paper",
    vertex_labels: bool = True,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw the trellis as in figure 1 of the paper, and paths through it as in figure 2.

    Parameters
    ----------
    trellis : Trellis
        The graph, with at most 2000 edges.
    paths : iterable of int
        Paths to highlight, each in its own colour, side by side where they share an edge.
    colors : sequence of matplotlib colours, optional
        One colour per path; by default green, red, then others.
    edge_labels : {"paper", "engine"}, iterable of n_edges values, or None
        The edge numbers of the paper or of the package, or values such as edge scores, which are
        rounded. Labels that would be too crowded or too small to read are left out.
    vertex_labels : bool, default=True
        Whether to name the vertices.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default, a new figure that fits the trellis.
    title : str, optional
        The title of the axes.

    Returns
    -------
    matplotlib.axes.Axes
        Every vertex is a circle with the gid ``vertex-<number>``. Every edge is an arrow with the
        gid ``edge-<engine number>`` or, if highlighted, one ``edge-<number>-path-<id>`` per path.

    Raises
    ------
    ValueError
        If the trellis has too many edges, if a path is not in it, or if `colors` or `edge_labels`
        have the wrong length.

    Examples
    --------
    >>> from ltls import Trellis
    >>> from ltls.plot import plot_trellis
    >>> plot_trellis(Trellis(105), [7], title="105 classes").get_title()
    '105 classes'
    """
    if trellis.n_edges > MAX_EDGES:
        raise ValueError(f"plots support at most {MAX_EDGES} edges, got n_edges={trellis.n_edges}")
    users = _users_of_edges(trellis, [index(path) for path in paths], colors)
    texts = _edge_texts(trellis, edge_labels)
    layout = _Layout.of(trellis)
    ax = _new_axes(layout, title) if ax is None else ax
    low, high = layout.limits
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    ax.set_axis_off()
    if title:
        ax.set_title(title)
    scale = _points_per_cm(ax)
    color = "#b8b8b8" if any(users) and trellis.width > CROWD else "black"
    for edge, route in enumerate(layout.routes):
        _draw_edge(ax, edge, route, users[edge], scale, color)
    for vertex, centre in enumerate(layout.vertices):
        circle = Circle((centre[0], centre[1]), RADIUS, facecolor="white", edgecolor="black")
        circle.set(linewidth=max(0.025 * scale, 0.2), zorder=3, gid=f"vertex-{vertex}")
        ax.add_patch(circle)
        if vertex_labels:
            _draw_text(ax, centre, f"$v_{{{vertex}}}$", VERTEX_FONT * scale)
    for place, text in zip(layout.labels, texts, strict=False):  # either may be empty
        if text:
            _draw_text(ax, place, text, EDGE_FONT * scale, background="white")
    return ax


def path_picture(trellis: Trellis, paths: Sequence[int], h: AnyArray) -> str:
    """Return an SVG of the trellis with paths, best first, and the scores of their edges."""
    figure = Figure(figsize=_Layout.of(trellis).inches)
    FigureCanvasSVG(figure)
    ax, texts = figure.add_axes((0, 0, 1, 1)), path_texts(trellis, paths, h)
    plot_trellis(trellis, paths, edge_labels=texts, vertex_labels=False, ax=ax)
    output = StringIO()
    figure.savefig(output, format="svg", metadata={"Date": None})
    return "<svg" + output.getvalue().partition("<svg")[2]


def path_texts(trellis: Trellis, paths: Iterable[int], h: AnyArray) -> list[str]:
    """Return the scores of the edges of paths, and empty texts for the others."""
    used = {int(edge) for path in paths for edge in trellis.path_edges(path)}
    return [f"{h[e]:.2g}".replace("-", "−") if e in used else "" for e in range(trellis.n_edges)]


def figure1() -> Axes:
    """Draw the paper's figure 1: the trellis of 22 classes.

    Examples
    --------
    >>> from ltls.plot import figure1
    >>> len(figure1().patches)  # 11 vertices and 19 edges
    30
    """
    return plot_trellis(Trellis(22))


def figure2() -> Axes:
    """Draw the paper's figure 2: a positive (green) and a negative (red) path of 22 classes.

    Examples
    --------
    >>> from ltls.plot import figure2
    >>> len(figure2().patches)  # four edges are drawn twice
    34
    """
    trellis = Trellis(22)
    engine_edge = np.argsort(paper_edge_order(trellis))
    positive, negative = [0, 2, 8, 14, 16, 18], [0, 2, 7, 12, 16, 18]
    return plot_trellis(trellis, [trellis.path_of(engine_edge[p]) for p in (positive, negative)])


@dataclass(frozen=True)
class _Layout:
    """The positions of everything: y points upwards, and the top states are at y = 0."""

    vertices: Doubles  # (n_vertices, 2)
    routes: list[Doubles]  # of every edge: tail, head and the corner between them, if any
    labels: list[Doubles]  # of every edge, or empty if labels do not fit

    @property
    def limits(self) -> tuple[Doubles, Doubles]:
        """The lower left and the upper right corner of the drawing."""
        margin = RADIUS + MARGIN
        return self.vertices.min(axis=0) - margin, self.vertices.max(axis=0) + margin

    @property
    def inches(self) -> tuple[float, float]:
        """The size of a new figure."""
        extent = np.subtract(*self.limits[::-1])
        width, height = extent * min(INCHES_PER_CM, MAX_INCHES / extent.max())
        return float(width), float(height)

    @classmethod
    def of(cls, trellis: Trellis) -> _Layout:
        """Place everything far enough apart for edge labels not to overlap.

        The label of an edge is 1/slots along it. With one slot more than a state has edges, all
        labels between two slices are in one column, evenly spaced. Exits from below the top state
        take one more slot: they aim `overhead` above the next slice, as an edge to a state would.
        """
        if trellis.n_edges == 0:
            return cls(np.zeros((1, 2)), [], [])
        b, n = trellis.width, trellis.n_slices
        *n_exits, n_auxiliary = trellis.digits
        most_exits = max(n_exits)
        degree = b if n > 1 or most_exits else n_auxiliary
        labelled = degree <= MAX_LABELLED_DEGREE
        slots = degree + 1 + (most_exits > 1) if labelled else 4
        overhead = SLOT * slots + (0 if labelled else LANE * most_exits / 2)
        row = max(SLOT * slots, MIN_ROW, MIN_HEIGHT / (b - 1))
        column = max(LABEL_DISTANCE * slots, MIN_COLUMN, 0.4 * (b - 1) * row)

        middle = -row * (b - 1) / 2
        slices = [(column * (i + 1), -row * s) for i in range(n) for s in range(b)]
        below = np.arange(n_auxiliary) - (n_auxiliary - 1) / 2
        auxiliary = [(column * (n + 1), middle - row * a) for a in below]
        # At width 2 the sink is straight above the auxiliary vertex, as in the paper; elsewhere
        # edges must reach it past the lanes of the last exits and the other auxiliary vertices.
        sink_x = column * (n + 1 + 0.5 * (b > 2) + 0.5 * (n_auxiliary > 1))
        # The exits of a slice climb by more than their own lanes before they meet the next ones.
        sink_y = overhead + 2 * RADIUS + 1.25 * LANE * most_exits * (n + 1)
        vertices = np.array([(0.0, middle), *slices, *auxiliary, (sink_x, sink_y)])

        routes = list(vertices[trellis.edges])
        tail, head = trellis.edges.T
        label_at = np.full(trellis.n_edges, 1 / slots)
        label_at[tail == 0] = 0.5
        label_at[tail > n * b] = 0.4
        for edge in np.flatnonzero((head == len(vertices) - 1) & (tail <= n * b)):
            i, s = divmod(int(tail[edge]) - 1, b)
            if most_exits == 1 and _is_clear(routes[edge], vertices):
                label_at[edge] = 0.5
            else:
                corner = (column * (i + 2), overhead + LANE * ((n_exits[i] - 1) / 2 - s))
                routes[edge] = np.insert(routes[edge], 1, corner, axis=0)
        labels = [r[0] + at * (r[1] - r[0]) for r, at in zip(routes, label_at, strict=True)]
        return cls(vertices, routes, labels if labelled else [])


def _is_clear(route: Doubles, vertices: Doubles) -> bool:
    """Return whether a straight edge avoids all vertices but its own two."""
    tail, head = route
    along = head - tail
    nearest = np.clip((vertices - tail) @ along / (along @ along), 0, 1)
    distance = np.linalg.norm(tail + nearest[:, None] * along - vertices, axis=1)
    return int((distance < 1.4 * RADIUS).sum()) == 2


def _users_of_edges(
    trellis: Trellis, paths: list[int], colors: Sequence[Any] | None
) -> list[list[tuple[int, Any]]]:
    """Return, for every edge, the highlighted paths that use it, with their colours."""
    if colors is None:
        colors = list(islice(cycle(PATH_COLORS), len(paths)))
    if len(colors) != len(paths):
        raise ValueError(f"colors must have one colour per path ({len(paths)}), got {len(colors)}")
    users: list[list[tuple[int, Any]]] = [[] for _ in range(trellis.n_edges)]
    for path, color in zip(paths, colors, strict=True):
        for edge in trellis.path_edges(path):
            users[edge].append((path, color))
    return users


def _edge_texts(trellis: Trellis, edge_labels: str | Iterable[Any] | None) -> list[str]:
    if edge_labels is None:
        return []
    if isinstance(edge_labels, str):
        numbers = {"paper": paper_edge_order(trellis), "engine": np.arange(trellis.n_edges)}
        if edge_labels not in numbers:
            choices = "'paper', 'engine', None or one value per edge"
            raise ValueError(f"edge_labels must be {choices}, got {edge_labels!r}")
        return [f"$e_{{{number}}}$" for number in numbers[edge_labels]]
    texts = [v if isinstance(v, str) else f"{v:.3g}".replace("-", "−") for v in edge_labels]
    n = trellis.n_edges
    if len(texts) != n:
        raise ValueError(f"edge_labels must have one value per edge ({n}), got {len(texts)}")
    return texts


def _new_axes(layout: _Layout, title: str | None) -> Axes:
    """Return axes that fill a new figure, below the title."""
    import matplotlib.pyplot as plt

    width, height = layout.inches
    full_height = height + (0.4 if title else 0)
    return plt.figure(figsize=(width, full_height)).add_axes((0, 0, 1, height / full_height))


def _points_per_cm(ax: Axes) -> float:
    """Measure how many points a centimetre of the drawing takes on these axes."""
    box = ax.get_window_extent()
    width, height = np.ptp([ax.get_xlim(), ax.get_ylim()], axis=1)
    return float(min(box.width / width, box.height / height) * 72 / ax.figure.dpi)


def _draw_edge(
    ax: Axes, edge: int, route: Doubles, users: list[tuple[int, Any]], scale: float, color: str
) -> None:
    """Draw an edge as one thin arrow of a colour, or as one thick arrow per path that uses it."""
    arrows = [(f"edge-{edge}-path-{path}", own, 0.055, 2) for path, own in users]
    arrows = arrows or [(f"edge-{edge}", color, 0.025, 1)]
    gap = min(PATH_GAP, 1.5 * RADIUS / len(arrows))
    for lane, (gid, own, thickness, zorder) in enumerate(arrows):
        path = _arrow_path(route, gap * ((len(arrows) - 1) / 2 - lane))
        arrow = FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=0.42 * scale)
        arrow.set(color=own, linewidth=max(thickness * scale, 0.2), zorder=zorder, gid=gid)
        ax.add_patch(arrow)


def _arrow_path(route: Doubles, aside: float) -> Path:
    """Lead from circle to circle, `aside` to the left of the route, its corner made round."""
    steps = np.diff(route, axis=0)
    steps /= np.linalg.norm(steps, axis=1, keepdims=True)
    ahead = np.array([steps[0], *(steps[1:] + steps[:-1]), steps[-1]])
    ahead /= np.linalg.norm(ahead, axis=1, keepdims=True)
    points = route + aside * ahead[:, ::-1] * (-1, 1)
    trim = np.sqrt(RADIUS**2 - aside**2)
    points[0] += trim * steps[0]
    points[-1] -= (trim + 0.03) * steps[-1]
    if len(points) == 2:
        return Path(points)
    tail, corner, head = points
    before, after = corner - 1.5 * RADIUS * steps[0], corner + 1.5 * RADIUS * steps[1]
    codes = [Path.MOVETO, Path.LINETO, Path.CURVE3, Path.CURVE3, Path.LINETO]
    return Path(np.array([tail, before, corner, after, head]), codes)


def _draw_text(ax: Axes, place: Doubles, text: str, size: float, background: str = "none") -> None:
    if size >= MIN_FONT:
        box = {"facecolor": background, "edgecolor": "none", "pad": 0.06 * size}
        ax.text(place[0], place[1], text, size=size, ha="center", va="center", zorder=4, bbox=box)
