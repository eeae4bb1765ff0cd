"""Plots: the paper's figures and edge numbers, every edge and vertex, paths in color."""

import importlib
import sys
from itertools import combinations, pairwise

import numpy as np
import pytest

from ltls import LTLSClassifier, RandomCodebook, TableCodebook, TextClassifier, Trellis
from ltls.settings import Trellises, Views

matplotlib = pytest.importorskip(
    "matplotlib", reason="plots need matplotlib; `make test-all` runs these tests"
)
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.colors import to_hex  # noqa: E402
from matplotlib.patches import Circle, FancyArrowPatch  # noqa: E402

from ltls.plot import (  # noqa: E402
    figure1,
    figure2,
    paper_edge_order,
    plot_codebook,
    plot_learning_curves,
    plot_prediction,
    plot_trellis,
)

GREEN, RED = "#00cc00", "#ff0000"
# Tail and head of e_0 … e_18, read off the paper's figure 1.
FIGURE_1 = [
    *[(0, 1), (0, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 10), (3, 5), (3, 6), (4, 5), (4, 6)],
    *[(5, 10), (5, 7), (5, 8), (6, 7), (6, 8), (7, 9), (8, 9), (9, 10)],
]
SIZES = [(2, 2), (3, 2), (22, 2), (105, 2), (4095, 2), (27, 3), (61, 3), (1000, 5), (8, 8)]
SIZES += [(4095, 8), (4000, 16), (60, 60)]


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def drawn(ax, kind):
    """The patches of one kind by their gid."""
    return {patch.get_gid(): patch for patch in ax.patches if isinstance(patch, kind)}


def texts(ax):
    return [text.get_text() for text in ax.texts]


def colors_by_edge(ax):
    """Paper edge → colours of its arrows, for the highlighted edges of 22 classes."""
    paper, colors = paper_edge_order(Trellis(22)), {}
    for gid, arrow in drawn(ax, FancyArrowPatch).items():
        if "path" in gid:
            edge = int(paper[int(gid.split("-")[1])])
            colors.setdefault(edge, []).append(to_hex(arrow.get_edgecolor()))
    return colors


def test_paper_numbers_of_22_classes():
    trellis = Trellis(22)
    number = paper_edge_order(trellis)
    assert number.dtype == np.int64
    assert {int(n): tuple(e) for n, e in zip(number, trellis.edges.tolist(), strict=True)} == dict(
        enumerate(FIGURE_1)
    )


@pytest.mark.parametrize(("n_classes", "width"), SIZES)
def test_paper_numbers_are_a_permutation_that_follows_tails(n_classes, width):
    trellis = Trellis(n_classes, width)
    engine_edge = np.argsort(paper_edge_order(trellis))
    assert sorted(engine_edge) == list(range(trellis.n_edges))
    assert (np.diff(trellis.edges[engine_edge, 0]) >= 0).all()


def test_one_class_has_no_numbers():
    assert paper_edge_order(Trellis(1)).shape == (0,)


@pytest.mark.parametrize(("n_classes", "width"), SIZES)
def test_every_edge_is_an_arrow_and_every_vertex_a_circle(n_classes, width):
    trellis = Trellis(n_classes, width)
    ax = plot_trellis(trellis)
    assert set(drawn(ax, FancyArrowPatch)) == {f"edge-{e}" for e in range(trellis.n_edges)}
    n_vertices = trellis.edges.max() + 1
    assert set(drawn(ax, Circle)) == {f"vertex-{v}" for v in range(n_vertices)}


@pytest.mark.parametrize(("n_classes", "width"), SIZES)
def test_arrows_lead_from_circle_to_circle_and_through_no_other(n_classes, width):
    trellis = Trellis(n_classes, width)
    ax = plot_trellis(trellis)
    circles = drawn(ax, Circle)
    centres = np.array([circles[f"vertex-{v}"].center for v in range(len(circles))])
    radius = circles["vertex-0"].radius
    arrows = drawn(ax, FancyArrowPatch)
    for edge, ends in enumerate(trellis.edges):
        line = arrows[f"edge-{edge}"].get_path().to_polygons(closed_only=False)[0]
        points = np.concatenate([np.linspace(a, b, 50) for a, b in pairwise(line)])
        distance = np.linalg.norm(points[:, None] - centres, axis=2) / radius
        assert distance[0, ends[0]] == pytest.approx(1, abs=0.1)
        assert distance[-1, ends[1]] == pytest.approx(1, abs=0.3)
        assert np.delete(distance, ends, axis=1).min(initial=9) > 0.95


@pytest.mark.parametrize(("n_classes", "width"), [s for s in SIZES if s[1] <= 8])
def test_edge_labels_do_not_meet(n_classes, width):
    ax = plot_trellis(Trellis(n_classes, width), vertex_labels=False)
    assert len(ax.texts) == Trellis(n_classes, width).n_edges
    box = np.array([t.get_window_extent(ax.figure.canvas.get_renderer()).extents for t in ax.texts])
    apart = (box[:, None, :2] >= box[None, :, 2:] - 1).any(axis=2)  # a pixel is allowed
    assert (apart | apart.T | np.eye(len(box), dtype=bool)).all()


def test_the_figure_grows_with_the_slices():
    widths = [plot_trellis(Trellis(2**n)).figure.get_figwidth() for n in (1, 2, 5, 11)]
    assert widths == sorted(set(widths))


def test_one_class_is_one_vertex():
    ax = plot_trellis(Trellis(1), [0])
    assert list(drawn(ax, Circle)) == ["vertex-0"]
    assert len(ax.patches) == 1
    assert texts(ax) == ["$v_{0}$"]


def test_labels_are_the_papers_numbers_by_default():
    assert texts(plot_trellis(Trellis(22), vertex_labels=False)) == [
        f"$e_{{{number}}}$" for number in paper_edge_order(Trellis(22))
    ]


def test_edge_labels():
    def labels(edge_labels):
        return texts(plot_trellis(Trellis(3), edge_labels=edge_labels, vertex_labels=False))

    assert labels("engine") == [f"$e_{{{edge}}}$" for edge in range(6)]
    assert labels(None) == []
    assert labels(np.float32([-0.12345, 2, 1e-9, -np.inf, 123.456, 0])) == [
        *["−0.123", "2", "1e−09", "−inf", "123", "0"]
    ]
    assert labels(list("abcdef")) == list("abcdef")


def test_labels_are_left_out_where_they_would_be_unreadable():
    assert all(text.startswith("$v") for text in texts(plot_trellis(Trellis(1000, 30))))
    small = plt.figure(figsize=(1, 1)).subplots()
    assert texts(plot_trellis(Trellis(4095), ax=small)) == []


def test_plots_on_given_axes_with_a_title():
    ax = plt.figure().subplots(1, 2)[1]
    assert plot_trellis(Trellis(22), ax=ax, title="22 classes") is ax
    assert ax.get_title() == "22 classes"
    assert len(plt.get_fignums()) == 1
    assert plot_trellis(Trellis(22), title="new").get_title() == "new"


def test_paths_are_drawn_in_their_colours():
    trellis = Trellis(22)
    ax = plot_trellis(trellis, np.array([3, 20]), colors=["blue", (1, 0.5, 0)])
    arrows = drawn(ax, FancyArrowPatch)
    for path, color in [(3, "#0000ff"), (20, "#ff8000")]:
        mine = {gid: arrow for gid, arrow in arrows.items() if gid.endswith(f"-path-{path}")}
        assert set(mine) == {f"edge-{edge}-path-{path}" for edge in trellis.path_edges(path)}
        assert {to_hex(arrow.get_edgecolor()) for arrow in mine.values()} == {color}
        assert all(a.get_linewidth() > 1.5 * black(arrows).get_linewidth() for a in mine.values())


def black(arrows):
    """Any arrow of an edge that no path uses."""
    return next(arrow for gid, arrow in arrows.items() if "path" not in gid)


@pytest.mark.parametrize(("width", "pale"), [(2, False), (8, True)])
def test_a_path_stands_out_among_many_edges(width, pale):
    trellis = Trellis(1000, width)
    for paths in ([], [6]):
        other = black(drawn(plot_trellis(trellis, paths), FancyArrowPatch))
        assert to_hex(other.get_edgecolor()) == ("#b8b8b8" if pale and paths else "#000000")


def test_default_colours_differ():
    ax = plot_trellis(Trellis(22), range(5))
    colors = {
        gid.split("-")[-1]: a.get_edgecolor()
        for gid, a in drawn(ax, FancyArrowPatch).items()
        if "path" in gid
    }
    assert len(set(colors.values())) == len(colors) == 5
    assert to_hex(colors["0"]) == GREEN
    assert to_hex(colors["1"]) == RED


def test_paths_that_share_an_edge_run_side_by_side():
    ax = plot_trellis(Trellis(22), [12, 12, 12])
    edge = Trellis(22).path_edges(12)[0]
    lines = [a.get_path().vertices[:2] for a in ax.patches if a.get_gid() == f"edge-{edge}-path-12"]
    assert len(lines) == 3
    for one, other in combinations(lines, 2):
        assert np.linalg.norm(one - other, axis=1).min() > 0.1


def test_figure_1_is_the_plain_trellis(tmp_path):
    ax = figure1()
    assert len(drawn(ax, FancyArrowPatch)) == 19
    assert colors_by_edge(ax) == {}
    assert set(texts(ax)) == {f"$v_{{{v}}}$" for v in range(11)} | {
        f"$e_{{{e}}}$" for e in range(19)
    }
    ax.figure.savefig(tmp_path / "figure1.svg")
    assert (tmp_path / "figure1.svg").stat().st_size > 10_000


def test_figure_2_has_the_papers_two_paths(tmp_path):
    ax = figure2()
    both = {edge: [GREEN, RED] for edge in (0, 2, 16, 18)}
    assert colors_by_edge(ax) == both | {8: [GREEN], 14: [GREEN], 7: [RED], 12: [RED]}
    ax.figure.savefig(tmp_path / "figure2.png")
    assert (tmp_path / "figure2.png").stat().st_size > 10_000


def test_too_many_edges_are_rejected():
    with pytest.raises(ValueError, match=r"n_edges=2003"):
        plot_trellis(Trellis(1001, 1001))
    with pytest.raises(ValueError, match="n_edges"):
        plot_trellis(Trellis(2**62, 64))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"paths": [22]}, "path"),
        ({"paths": [-1]}, "path"),
        (
            {"paths": [1, 2], "colors": ["red"]},
            r"colors must have one colour per path \(2\), got 1",
        ),
        ({"edge_labels": "numbers"}, "edge_labels must be 'paper', .* got 'numbers'"),
        ({"edge_labels": [1.0, 2.0]}, r"edge_labels must have one value per edge \(19\), got 2"),
    ],
)
def test_invalid_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        plot_trellis(Trellis(22), **options)
    assert plt.get_fignums() == []


def test_paths_are_integers():
    with pytest.raises(TypeError):
        plot_trellis(Trellis(22), [1.5])


def test_the_error_without_matplotlib_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        ImportError, match=r"ltls\.plot needs matplotlib: pip install 'ltls\[plot\]'"
    ):
        importlib.reload(sys.modules["ltls.plot"])


# Plots of models.


X = np.eye(30, dtype=np.float32)
NAMES = [f"label {i}" for i in range(30)]


@pytest.fixture(scope="module", params=["labels", "views"])
def classifier(request):
    """A model of two trellises over labels, or of two views: a trellis over clusters each."""
    if request.param == "views":
        trellises = Trellises(width=3, epochs=10)
        views = Views(n_views=2, cluster_size=4)
        return LTLSClassifier(trellises=trellises, views=views, random_state=0).fit(X, NAMES)
    trellises = Trellises(width=3, n_trellises=2, epochs=10)
    return LTLSClassifier(trellises=trellises, views=False, random_state=0).fit(X, NAMES)


@pytest.mark.parametrize("trellis", [0, 1])
def test_a_prediction_is_drawn_as_its_path_with_edge_scores(classifier, trellis):
    ax = plot_prediction(classifier, X[[7]], trellis=trellis)
    label = classifier.predict(X[[7]])[0]
    number = classifier.classes_.tolist().index(label)
    path = classifier.codebooks_[trellis].path_of(number)
    edges = classifier.trellis_.path_edges(path)
    gids = drawn(ax, FancyArrowPatch)
    assert {gid for gid in gids if "path" in gid} == {f"edge-{e}-path-{path}" for e in edges}
    n_edges = classifier.trellis_.n_edges
    h = classifier.edge_scores(X[[7]])[0][trellis * n_edges :][:n_edges]
    assert sorted(texts(ax)) == sorted(f"{h[e]:.2g}".replace("-", "−") for e in edges)
    assert label in ax.get_title()


def test_labels_of_a_cluster_share_a_path(classifier):
    ax = plot_prediction(classifier, X[[7]], 30)
    paths = classifier.codebooks_[0].path_of(np.arange(30))
    found = {gid.split("-")[-1] for gid in drawn(ax, FancyArrowPatch) if "path" in gid}
    assert found == {str(path) for path in paths}


def test_the_prediction_of_a_text():
    model = TextClassifier(random_state=0).fit(["a red apple", "a blue sky"], ["red", "blue"])
    assert plot_prediction(model, ["red"], title="{label}").get_title() == "red"


def test_a_prediction_of_several_labels(classifier):
    ax = plot_prediction(classifier, X[[7]], 2, title="{label}?")
    labels = classifier.predict_topk(X[[7]], 2)[0][0]
    assert ax.get_title() == f"{labels[0]}, {labels[1]}?"


def test_a_codebook_map_shows_the_states_of_every_path():
    trellis, book = Trellis(100, 4), RandomCodebook(100, seed=3)
    states = plot_codebook(trellis, book, [5, 99, 0]).images[0].get_array()
    sink = trellis.edges.max()
    for row, label in zip(states, (5, 99, 0), strict=True):
        heads = trellis.edges[trellis.path_edges(book.path_of(label)), 1]
        expected = [(head - 1) % 4 for head in heads if head != sink]
        assert row.compressed().tolist() == expected
        assert row[: len(expected)].mask.any() == False  # noqa: E712


def test_labels_without_a_path_are_blank():
    states = plot_codebook(Trellis(10, 3), TableCodebook(10, [3, -1, 4])).images[0].get_array()
    assert states.mask.all(axis=1).tolist() == [False, True, False]


def test_a_codebook_of_clusters(classifier):
    ax = plot_codebook(classifier.trellis_, classifier.codebooks_[0], [*range(30)])
    assert len(np.unique(ax.images[0].get_array().filled(-1), axis=0)) == len(
        set(classifier.codebooks_[0].path_of(np.arange(30)).tolist())
    )


def test_a_large_codebook_is_subsampled():
    ax = plot_codebook(Trellis(10**6, 8), RandomCodebook(10**6))
    assert ax.images[0].get_array().shape == (2000, 7)


def test_learning_curves_of_models_and_numbers(classifier):
    ax = plot_learning_curves({"model": classifier, "by hand": [3, 2, 1]}, title="loss")
    assert ax.lines[0].get_ydata().tolist() == classifier.loss_curve_
    assert ax.lines[1].get_xdata().tolist() == [1, 2, 3]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["model", "by hand"]


def test_invalid_models_and_rows(classifier):
    with pytest.raises(ValueError, match="x must have one row, got 2"):
        plot_prediction(classifier, X[:2])
    with pytest.raises(ValueError, match="trellis must be at most 1, got 2"):
        plot_prediction(classifier, X[:1], trellis=2)
    with pytest.raises(
        ValueError, match=r"codebook must have at most the 10 paths .*, got n_paths=11"
    ):
        plot_codebook(Trellis(10), RandomCodebook(11))
    with pytest.raises(ValueError, match="curves must hold at least one"):
        plot_learning_curves({})
