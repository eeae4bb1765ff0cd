"""Figures are measured: pages are drawn from the JSON beside them, and quoted as they are."""

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "docs" / "benchmarks"


def benchmark(name):
    """Return the module of benchmarks/ that writes a page."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return pytest.skip("needs torch, which `make test-all` installs")


def measured(name):
    return json.loads((BENCHMARKS / f"{name}.json").read_text("utf-8"))


def accuracies():
    """Return what is known of every set, and the names of all sets."""
    names = (*benchmark("sets").MULTI_LABEL, *benchmark("sets").SINGLE_LABEL)
    return benchmark("accuracy_report").read_all(BENCHMARKS / "accuracy", names), names


@pytest.mark.parametrize("page", sorted(BENCHMARKS.glob("*.md")), ids=lambda page: page.stem)
def test_a_page_is_drawn_from_what_was_measured(page):
    if page.stem == "accuracy":  # a file for every set and method, so that each can run alone
        drawn = benchmark("accuracy_report").report(BENCHMARKS / "accuracy", accuracies()[1])
    else:
        drawn = benchmark(page.stem).report(measured(page.stem))
    assert drawn == page.read_text("utf-8")


@pytest.mark.parametrize("data", sorted(BENCHMARKS.glob("*.json")), ids=lambda data: data.stem)
def test_what_was_measured_has_a_page_that_says_where_and_how(data):
    page, about = data.with_suffix(".md").read_text("utf-8"), measured(data.stem)["about"]
    assert about["command"].startswith(f"python benchmarks/{data.stem}.py")
    for key in ("machine", "date", "command"):
        assert about[key] in page


def quotations():
    """Return what the README has to say, in the words that it says it in."""
    close, above, _ = (
        row[1].partition(":")[0]
        for row in benchmark("accuracy_report").accuracy_targets(accuracies()[0])
    )
    yield f"within 0.5 points of the best of six peers on {close} data sets"
    yield f"above it on {above}"
    narrow = {row["C"]: row for row in measured("dynamic_programs")["growth"] if row["width"] == 2}
    million, billions = narrow[10**6], narrow[10**12]
    yield f"a million classes has {million['edges']} edges"
    yield f"best path is found in {million['viterbi'] / 1000:.2f} µs"
    yield f"of 10¹² classes in {billions['viterbi'] / 1000:.2f} µs"
    demo = measured("demo")
    model = demo["models"][0]
    yield f"a model of {model['edges']} edges learns in {model['train_s']:.0f} s of processor time"
    yield f"which of {model['classes']:,} tokens comes next"
    yield f"right in {model['precision']:.0%} of all cases".replace("%", " %")
    yield f"a table of bigrams has {demo['bigrams'][0]:.0%}".replace("%", " %")
    yield f"five best take {model['predict_us']:.1f} µs"
    speed = measured("speed")["sets"]["icd10cm"]
    each = {name: 1e6 * r["one_core_seconds"] / r["test_rows"] for name, r in speed.items()}
    peers = min(each[name] for name in ("omikuji", "napkinxc", "pecos"))
    yield (
        f"icd10cm take {each['default']:.1f} µs with the defaults and {each['width2']:.1f} at "
        f"width 2, where the fastest of omikuji, napkinXC and PECOS takes {peers:.0f}"
    )
    at = {r["head"]: r for r in measured("gpu_head")["rows"]
          if (r["C"], r["in_features"]) == (10**6, 512)}  # fmt: skip
    ours, full = at["TrellisSoftmax, width 8"], at["nn.Linear + cross_entropy"]
    yield (
        f"takes {ours['step ms']:.1f} ms on an H200, {full['step ms'] / ours['step ms']:.0f} times "
        "as fast as `nn.Linear` and cross-entropy, in "
        f"1/{full['memory'] / ours['memory']:,.0f} of the memory"
    )
    summary, found = benchmark("results").summary, accuracies()[0]["debfiles"]
    peers = [found[name] for name in ("omikuji", "napkinxc", "pecos")]
    sizes = (summary(of, "model_bytes") / 1e6 for of in (*peers, found["default"]))
    yield "on debfiles {:.0f}, {:.0f} and {:.0f} MB against {:.0f}".format(*sizes)
    leads = [100 * (summary(of, "p1") - summary(found["default"], "p1")) for of in peers]
    yield f"P@1 {min(leads):.1f} to {max(leads):.1f} points higher"


def test_the_readme_quotes_what_was_measured():
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert [quotation for quotation in quotations() if quotation not in readme] == []


@pytest.mark.parametrize("page", sorted(BENCHMARKS.glob("*.md")), ids=lambda page: page.stem)
def test_the_overview_leads_to_every_page(page):
    overview = (ROOT / "docs" / "results.md").read_text("utf-8")
    assert f"(benchmarks/{page.name})" in overview
