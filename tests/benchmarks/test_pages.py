"""Figures are measured: tables are drawn from stored JSON, and prose quotes what is stored."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import machine, pages
from benchmarks.accuracy import report, results

ROOT = Path(__file__).parent.parent.parent
measured = machine.read


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.stem)
def test_the_tables_of_a_page_are_drawn_from_what_was_measured(page):
    text = page.read_text("utf-8")
    assert pages.filled(text) == text


def test_every_result_is_shown():
    shown = {name for page in pages.PAGES for _, name, _ in pages.BLOCK.findall(page.read_text())}
    stored = {path.stem for path in machine.RESULTS.glob("*.json")}
    assert stored == {pages.STORED.get(name, name) for name in shown - set(pages.OF_ACCURACY)}
    assert set(pages.OF_ACCURACY) <= shown


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.stem)
def test_every_table_says_machine_date_and_command(page):
    for _, name, _ in pages.BLOCK.findall(page.read_text("utf-8")):
        if name != "paper_orders":  # a sentence below a table
            day, command = r"\d{4}-\d\d-\d\d", r"`python -m benchmarks\.[^`]+`"
            some = rf"(, some heads {day}; {command})?"
            caption = rf"\*.+; {day}( to {day})?; {command}{some}\.\*"
            assert re.fullmatch(caption, pages.drawn(name)[-1])


def test_tables_fit_a_page():
    for page in pages.PAGES:
        for line in page.read_text("utf-8").splitlines():
            assert line.count(" | ") < 7, line


def test_what_is_stored_was_measured_by_a_script_that_exists():
    for path in machine.RESULTS.rglob("*.json"):
        about = json.loads(path.read_text("utf-8")).get("about")
        if about is None:
            assert path.stem in ("set", "against_best")
            continue
        module = about["command"].split()[2].replace(".", "/")
        assert (ROOT / f"{module}.py").exists() or (ROOT / module / "__main__.py").exists()


def test_make_runs_every_benchmark_that_needs_no_gpu():
    makefile = (ROOT / "Makefile").read_text()
    for path in machine.RESULTS.glob("*.json"):
        words = measured(path.stem)["about"]["command"].split()[2:]
        name, *command = words[0].removeprefix("benchmarks."), *words[1:2]
        if not name.startswith("deep_head"):
            assert re.search(rf"\b{' '.join([name, *command])}\b", makefile), path


def test_no_result_holds_data_of_single_rows():
    for path in machine.RESULTS.rglob("*.json"):
        assert path.stat().st_size < 30_000, path


def test_figures_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    pages.draw(tmp_path)
    for name in pages.FIGURES:
        assert "<svg" in (tmp_path / f"{name}.svg").read_text("utf-8")
        assert (ROOT / "docs" / "results" / f"{name}.svg").exists()


def quotations():
    """Return what the README has to say, in the words that it says it in."""
    known = report.compared(results.read_all())
    close, above = len(report.close_to_best(known)), len(report.above_best(known))
    yield f"within 0.5 points of the best of six peers on {close} of {len(known)} data sets"
    yield f"above it on {above} of {len(known)}"
    narrow = {row["C"]: row for row in measured("programs")["growth"] if row["width"] == 2}
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
    narrow = 1e6 * speed["width2"]["one_core_seconds"] / speed["width2"]["test_rows"]
    cost = {name: report.costs(of)["predict"] for name, of in known["icd10cm"].items()
            if "runs" in of}  # fmt: skip
    peers = min(cost[name] for name in ("omikuji", "napkinxc", "pecos"))
    yield (
        f"icd10cm take {cost['default']:.0f} µs of processor time with the defaults and "
        f"{narrow:.1f} at width 2, where the fastest of omikuji, napkinXC and PECOS takes "
        f"{peers:.0f}"
    )
    at = {r["head"]: r for r in measured("deep_head_step")["rows"]
          if (r["C"], r["in_features"]) == (10**6, 512)}  # fmt: skip
    full = at["nn.Linear + cross_entropy"]
    ours = at["TrellisSoftmax, width 8, two threads"]  # as torch does by default
    yield (
        f"takes {ours['step ms']:.1f} ms on an H200, {full['step ms'] / ours['step ms']:.0f} times "
        "as fast as `nn.Linear` and cross-entropy, in "
        f"1/{full['memory'] / ours['memory']:,.0f} of the memory"
    )
    trained = measured("deep_head_language_model_english")
    of_words = {row["head"]: row for row in trained["rows"]}
    full = of_words["full softmax"]
    ours = of_words["adaptive trellis, width 64, three clusters, similarity"]
    yield (
        f"the next of {trained['about']['classes']} words with an NLL of {ours['NLL']:.3f}; a full "
        f"softmax has {full['NLL']:.3f} and {full['parameters'] / ours['parameters']:.0f} times as "
        "many parameters"
    )
    summary, found = results.summary, known["debfiles"]
    peers = [found[name] for name in ("omikuji", "napkinxc", "pecos")]
    sizes = (summary(of, "model_bytes") / 1e6 for of in (*peers, found["default"]))
    yield "on debfiles {:.0f}, {:.0f} and {:.0f} MB against {:.0f}".format(*sizes)
    leads = [100 * (summary(of, "p1") - summary(found["default"], "p1")) for of in peers]
    yield f"P@1 {-min(leads):.1f} points lower to {max(leads):.1f} points higher"


def claims():
    """Return what the overview has to say in its own words."""
    known = report.compared(results.read_all())
    above = report.above_best(known)
    yield f"the best of six peers on {len(above)} of {len(known)} data sets"
    behind = [-100 * results.lead(of) for name, of in known.items() if name not in above]
    yield f"On the others it is {max(0.0, min(behind)):.1f} to {max(behind):.1f} points behind"
    times = {
        name: {m: report.costs(of[m])["predict"] for m in of if "runs" in of[m]}
        for name, of in known.items()
    }
    ours = [of["default"] for of in times.values()]
    yield f"ltls takes {min(ours):.0f} to {max(ours):.0f} µs per row"
    trees = ("omikuji", "napkinxc", "pecos")
    large = [times[name] for name in times if results.read(name, "set")["labels"] > 9000]
    leads = [min(of[tree] for tree in trees) / of["default"] for of in large]
    yield f"Above 9,000 labels it is {min(leads):.0f} to {max(leads):.0f} times as fast"
    averages = report.averages(known)
    assert max(averages, key=lambda method: averages[method]["p1"]) == "default"
    size = f"{averages['size_of_omikuji']['bytes'] / 1e6:.1f} MB* and "
    yield f"*ltls, {size}*{averages['size_of_napkinxc']['bytes'] / 1e6:.1f} MB*"
    models = [of for each in measured("rounding")["sets"].values() for of in each.values()]
    lost = max(100 * (of["float32"]["p1"] - of["int8"]["p1"]) for of in models)
    yield f"lose at most {lost:.2f} points of P@1"
    billion = measured("growth")["series"]["C"][-1]
    yield f"a model of 10⁹ classes takes {billion['model bytes'] / 1e6:.0f} MB"
    yield "bibtex, delicious, rcv1sub1, stackex_cs, makupalat, debtags, banking77 and icd10cm"
    assert len(report.shared(known)) == 8


@pytest.mark.parametrize(
    ("page", "said"),
    [("README.md", quotations), ("docs/results.md", claims)],
    ids=["README", "results"],
)
def test_prose_quotes_what_was_measured(page, said):
    text = " ".join((ROOT / page).read_text("utf-8").split())
    assert [words for words in said() if words not in text] == []
