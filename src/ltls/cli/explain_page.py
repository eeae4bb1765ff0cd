"""A page with explanations: one self-contained HTML file."""

from __future__ import annotations

import html

from ..estimators.explain import Explanation

_STYLE = """
:root { color-scheme: light dark; --for: 0, 114, 178; --against: 213, 94, 0; }
body { font: 16px/1.6 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .3rem; }
table { border-collapse: collapse; } td, th { padding: .1rem .8rem .1rem 0; text-align: left; }
td.value { text-align: right; font-variant-numeric: tabular-nums; }
.bar { display: inline-block; height: .7em; } blockquote { margin: .5rem 0; font-size: 1.05rem; }
mark { color: inherit; border-radius: 3px; padding: 0 1px; } svg { max-width: 100%; height: auto; }
figure { margin: 1rem 0; background: white; } figcaption, p.formula { opacity: .8; }
"""


def page(
    text: str, explained: list[Explanation], n_features: int, picture: str | None = None
) -> str:
    """Return a page that explains labels of a text or a row of features.

    `picture` is an SVG of the trellis with the labels' paths.
    """
    sections = "\n".join(_section(text, each, n_features) for each in explained)
    figure = ""
    if picture is not None:
        names = ", ".join(html.escape(str(each.label)) for each in explained)
        figure = (
            f"<figure>{picture}<figcaption>The paths of {names} in the first trellis, with the "
            "scores of their edges.</figcaption></figure>"
        )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Explanation</title><style>{_STYLE}</style></head>\n<body><h1>Explanation</h1>\n"
        f"{sections}\n{figure}</body></html>\n"
    )


def _section(text: str, each: Explanation, n: int) -> str:
    sure = "" if each.probability is None else f", probability {each.probability:.3f}"
    shown = [(one.visible_name, one.value) for one in each.contributions[:n]]
    rest = each.contributions[n:]
    if rest:
        shown.append((f"{len(rest)} other features", sum(one.value for one in rest)))
    shown += [("intercept", each.intercept), ("linear score", each.linear_score)]
    largest = max((abs(one.value) for one in each.contributions), default=1.0) or 1.0
    rows = "\n".join(_row(name, value, largest) for name, value in shown)
    parts = "".join(
        f"<tr><td>{html.escape(part.part)}</td><td class=value>{part.linear_score:.4f}</td>"
        f"<td class=value>{part.score:.4f}</td><td>{html.escape(part.formula)}</td></tr>"
        for part in each.parts
    )
    return (
        f"<section><h2>{html.escape(str(each.label))}</h2><p>score {each.score:.4g}{sure}</p>\n"
        f"<blockquote>{marked(text, each)}</blockquote>\n<table>{rows}</table>\n"
        "<details><summary>Parts of the model</summary><table><tr><th>part</th><th>linear score"
        f"</th><th>score</th><th>formula of the score</th></tr>{parts}</table>"
        f"<p class=formula>{html.escape(each.formula)}</p></details></section>"
    )


def _row(name: str, value: float, largest: float) -> str:
    width = 10 * min(abs(value) / largest, 1)
    side = "for" if value > 0 else "against"
    bar = f'<span class="bar" style="width:{width:.2f}rem;background:rgb(var(--{side}))"></span>'
    return f"<tr><td>{html.escape(name)}</td><td class=value>{value:+.4f}</td><td>{bar}</td></tr>"


def marked(text: str, explanation: Explanation) -> str:
    """Return a text as HTML with its words marked by what they add to the score."""
    words = explanation.words(text)
    largest = max((abs(value) for _, _, value in words), default=0.0) or 1.0
    pieces, last = [], 0
    for start, end, value in words:
        pieces.append(html.escape(text[last:start]))
        alpha = 0.6 * abs(value) / largest
        side = "for" if value > 0 else "against"
        pieces.append(
            f'<mark style="background:rgba(var(--{side}),{alpha:.2f})" title="{value:+.4f}">'
            f"{html.escape(text[start:end])}</mark>"
        )
        last = end
    return "".join([*pieces, html.escape(text[last:])])
