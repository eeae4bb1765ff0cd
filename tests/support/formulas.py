"""What the formulas of explanations say, computed from the numbers beside them."""

import math
import re

WEIGHTED = re.compile(r"([\d.e-]+) · \((.*)\)")
SKIPPED = ", and over the best edges of the slices that the path skips"


def value_of(part):
    """The score that the formula of a part gives; it says what its linear score is divided by."""
    weight, formula = 1.0, part.formula
    while found := WEIGHTED.fullmatch(formula):
        factor, formula = found.groups()
        divided = f"linear_score / {factor}"
        assert formula.count("linear_score") == formula.count(divided)
        weight, formula = weight * float(factor), formula.replace(divided, "linear_score")
    z, terms, scores = part.linear_score / weight, part.terms, [own.score for own in part.parts]
    values = {
        "linear_score": lambda: z,
        "linear_score − log_partition": lambda: z - terms["log_partition"],
        "sum of log σ(edge score) over the edges of the path": lambda: _log_sigma(part),
        f"sum of log σ(edge score) over the edges of the path{SKIPPED}": lambda: (
            _log_sigma(part) + terms["skipped_slices"]
        ),
        "−max(0, 1 − linear_score)³": lambda: -(max(0, 1 - z) ** 3),
        "log(max(0, linear_score) + 0.05)": lambda: math.log(max(0, z) + 0.05),
        "log(linear_score + 0.01), linear_score is the label's share of the votes": lambda: (
            math.log(z + 0.01)
        ),
        "−log(propensity)": lambda: z,
        "the sum over all trellises": lambda: math.fsum(scores),
        "the sum of the scores of its parts": lambda: math.fsum(scores),
        "log of the sum of exp(score) over all views": lambda: (
            max(scores) + math.log(math.fsum(math.exp(s - max(scores)) for s in scores))
        ),
    }
    return weight * values[formula]()


def _log_sigma(part):
    return math.fsum(-math.log1p(math.exp(-edge.score)) for edge in part.edges)
