"""Who takes part in the comparison of accuracy: peers and ours, with which settings, and where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SEEDS = 5
# Fewer runs on sets of more rows than this: hours are saved, and runs differ little.
SEEDS_ABOVE = {1_000_000: 1, 100_000: 3}
# One-vs-all takes time with rows × labels, and 8 bytes for every feature of every label.
MOST_ROWS_TIMES_LABELS = 3 * 10**8


@dataclass(frozen=True)
class Method:
    """A contender with its settings.

    Parameters
    ----------
    name, title, short : str
        What files, tables and narrow tables call it.
    contender : str
        Its class in contender.py, and for a peer the name of its environment.
    settings : dict
        Handed to the contender.
    seeds : int
        How many runs: of ours each with another `random_state`, of peers with random numbers of
        their own. PECOS always learns the same, but the shortest of several times is more reliable.
    for_one_label : bool
        Whether it is also for sets of one label per row.
    as_small_as : str
        The peer whose model's size is the size budget.
    """

    name: str
    title: str
    short: str
    contender: str
    settings: dict[str, Any] = field(default_factory=dict)
    seeds: int = 1
    for_one_label: bool = True
    as_small_as: str = ""

    @property
    def is_peer(self) -> bool:
        """Whether it is not ours."""
        return self.contender != "ltls"

    def runs(self, n_rows: int) -> int:
        """Return how many runs a set of so many training rows gets."""
        few = next((seeds for rows, seeds in SEEDS_ABOVE.items() if n_rows > rows), SEEDS)
        return min(few, self.seeds)

    def refuses(self, n_rows: int, n_labels: int) -> str:
        """Say why a data set is too large for this method, or nothing."""
        if self.contender == "linearsvc" and n_rows * n_labels > MOST_ROWS_TIMES_LABELS:
            return f"rows × labels is {n_rows * n_labels:.1e}"
        return ""


PEERS = (
    Method("omikuji", "omikuji", "omikuji", "omikuji", seeds=SEEDS),
    Method("napkinxc", "napkinXC PLT", "napkinXC", "napkinxc", seeds=SEEDS),
    Method("pecos", "PECOS XR-Linear", "PECOS", "pecos", seeds=SEEDS),
    Method("linearsvc", "one-vs-all LinearSVC", "LinearSVC", "linearsvc"),
    Method("fastxml", "FastXML", "FastXML", "fastxml", for_one_label=False),
)
OURS = (
    Method("default", "`LTLSClassifier()`", "ltls", "ltls", {}, SEEDS),
    Method(
        "trellises",
        "`LTLSClassifier(label_weights=False)`",
        "ltls, trellises alone",
        "ltls",
        {"label_weights": False},
        SEEDS,
    ),
    Method(
        "size_of_pecos",
        "`LTLSClassifier(size_budget=…)`, as small as PECOS",
        "ltls, size of PECOS",
        "ltls",
        {},
        SEEDS,
        as_small_as="pecos",
    ),
    Method("paper", "`presets.paper()`", "ltls, paper's settings", "ltls", {"preset": "paper"}),
)
METHODS = {method.name: method for method in (*OURS, *PEERS)}
