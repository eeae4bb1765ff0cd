"""What we want of `LTLSClassifier()` beside its peers, and the check of stored results.

Prediction is judged by processor time, summed over threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.accuracy import results
from benchmarks.accuracy.results import Known, Result, lead, summary
from benchmarks.debian_packages import SETS as PACKAGES

TIE = 1e-9
SETS = tuple(name for name in results.SETS if name not in PACKAGES)

Of = Mapping[str, Result]  # the results of every method on a set
Reached = Callable[[str, Of], "bool | None"]  # of a set; None where a result is missing


@dataclass(frozen=True)
class Target:
    """Something that must be true on at least so many sets."""

    words: str
    reached: Reached
    least: int

    def verdict(self, known: Known) -> tuple[str, list[str], list[str]]:
        """Return ok, open or MISSED, and the sets that reach the target and that do not."""
        found = {name: self.reached(name, known.get(name, {})) for name in SETS}
        good = [name for name, reached in found.items() if reached]
        bad = [name for name, reached in found.items() if reached is False]
        if len(good) >= self.least:
            return "ok", good, bad
        return "MISSED" if len(bad) > len(SETS) - self.least else "open", good, bad


def ahead(figure: Callable[[str], str], points: float) -> Reached:
    """Our figure is at least so many points above the best peer's."""

    def reached(name: str, of: Of) -> bool | None:
        value = lead(of, "default", figure(name))
        return None if value is None else value >= points / 100

    return reached


def times_of_pecos(figure: str, factor: float) -> Reached:
    """Our figure is at most so many times that of PECOS."""

    def reached(name: str, of: Of) -> bool | None:
        ours, theirs = (summary(of.get(method, {}), figure) for method in ("default", "pecos"))
        return None if ours is None or theirs is None else ours <= factor * theirs

    return reached


N = len(SETS)
TARGETS = (
    Target("P@1: at least the best peer's", ahead(lambda name: "p1", -TIE), 12),
    Target("P@1: at most 0.3 points below the best peer", ahead(lambda name: "p1", -0.3), N),
    Target("P@5 or recall@5: at least the best peer's", ahead(results.at5, -TIE), 12),
    Target("P@5 or recall@5: at most 0.3 points below", ahead(results.at5, -0.3), N),
    Target("PSP@5: above the best peer", ahead(lambda name: "psp5", TIE), 12),
    Target("file: at most PECOS'", times_of_pecos("model_bytes", 1), 10),
    Target(
        "processor time of prediction: below PECOS'", times_of_pecos("predict_cpu_seconds", 1), N
    ),
    Target(
        "processor time of prediction: a fourth", times_of_pecos("predict_cpu_seconds", 0.25), 8
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
