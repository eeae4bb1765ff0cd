"""What we want of `LTLSClassifier()` beside the label trees, and the check of stored results.

Prediction is judged by processor time, summed over threads; `python -m benchmarks.speed --check`
judges one core, and a single trellis of width 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from benchmarks.accuracy import results
from benchmarks.accuracy.results import Known, Result, summary

TREES = ("omikuji", "napkinxc", "pecos")
TIE = 1e-9

Of = Mapping[str, Result]  # the results of every method on a set
Reached = Callable[[str, Of], "bool | None"]  # of a set; None where a result is missing


@dataclass(frozen=True)
class Target:
    """Something that must be true on at least so many of some sets."""

    words: str
    reached: Reached
    least: int
    sets: tuple[str, ...] = results.SETS

    def verdict(self, known: Known) -> tuple[str, list[str], list[str]]:
        """Return ok, open or MISSED, and the sets that reach the target and that do not."""
        found = {name: self.reached(name, known.get(name, {})) for name in self.sets}
        good = [name for name, reached in found.items() if reached]
        bad = [name for name, reached in found.items() if reached is False]
        if len(good) >= self.least:
            return "ok", good, bad
        return "MISSED" if len(bad) > len(self.sets) - self.least else "open", good, bad


def figures(
    of: Of, figure: str, trees: Iterable[str] = TREES, method: str = "default"
) -> tuple[float, dict[str, float]] | None:
    """Return a figure of ours and of those trees that ran; None where one is missing."""
    ours = summary(of.get(method, {}), figure)
    theirs = {tree: summary(of[tree], figure) for tree in trees if "runs" in of.get(tree, {})}
    known = {tree: value for tree, value in theirs.items() if value is not None}
    return None if ours is None or not known or len(known) < len(theirs) else (ours, known)


def above(figure: Callable[[str], str], points: float) -> Reached:
    """Our figure is at least so many points above the best tree's."""

    def reached(name: str, of: Of) -> bool | None:
        found = figures(of, figure(name))
        return None if found is None else found[0] - max(found[1].values()) >= points / 100

    return reached


def at_most(figure: str, factor: float, trees: Iterable[str] = TREES) -> Reached:
    """Our figure is at most so many times the lowest of some trees."""

    def reached(name: str, of: Of) -> bool | None:
        found = figures(of, figure, trees)
        return None if found is None else found[0] <= factor * min(found[1].values())

    return reached


def trains_in_time(name: str, of: Of) -> bool | None:
    """Training takes no longer than the fastest tree within half a point of the best."""
    scores = figures(of, "p1")
    if scores is None:
        return None
    best = max(scores[1].values())
    good = [tree for tree, score in scores[1].items() if score >= best - 0.005]
    return at_most("train_cpu_seconds", 1, good)(name, of)


def as_small_as(tree: str) -> Reached:
    """With a tree's size as `size_budget`, a model is no larger, and within a point of its P@1."""

    def reached(name: str, of: Of) -> bool | None:
        p1 = figures(of, "p1", [tree], f"size_of_{tree}")
        size = figures(of, "model_bytes", [tree], f"size_of_{tree}")
        if p1 is None or size is None:
            return None
        return p1[0] >= p1[1][tree] - 0.01 and size[0] <= size[1][tree]

    return reached


def of_scores() -> Iterable[Target]:
    n = len(results.SETS)
    for words, figure in (("P@1", lambda name: "p1"), ("P@5 or recall@5", results.at5)):
        yield Target(f"{words}: at most 0.3 points below the best tree", above(figure, -0.3), 10)
        yield Target(f"{words}: above the best tree", above(figure, TIE), 8)
        yield Target(f"{words}: at most 1 point below the best tree", above(figure, -1), n)
    yield Target("PSP@5: above the best tree", above(lambda name: "psp5", TIE), 8)


TARGETS = (
    *of_scores(),
    Target("file: at most omikuji's", at_most("model_bytes", 1, ["omikuji"]), 12),
    Target("file: at most 1.5 times PECOS'", at_most("model_bytes", 1.5, ["pecos"]), 9),
    Target("processor time of training: at most the best trees'", trains_in_time, 10),
    Target(
        "processor time of training: a fourth of PECOS'",
        at_most("train_cpu_seconds", 1 / 4, ["pecos"]),
        1,
        ("debfiles",),
    ),
    Target(
        "memory of training: at most twice PECOS'", at_most("train_peak_bytes", 2, ["pecos"]), 10
    ),
    Target(
        "processor time of prediction: a fourth of the fastest tree's",
        at_most("predict_cpu_seconds", 1 / 4),
        12,
    ),
    *(
        Target(f"as small as {tree}, P@1 within 1 point of it", as_small_as(tree), 5)
        for tree in TREES
    ),
)


def check(known: Known) -> int:
    """Print what we want and what was found; return 1 where a target is missed."""
    failed = 0
    for target in TARGETS:
        verdict, good, bad = target.verdict(known)
        failed |= verdict == "MISSED"
        words = f"{len(good)} of {len(good) + len(bad)} sets, target {target.least}"
        print(f"{verdict:7} {target.words}: {words}" + (f"; not {', '.join(bad)}" if bad else ""))
    return failed
