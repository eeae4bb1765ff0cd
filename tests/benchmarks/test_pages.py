"""Figures are measured: the tables of all pages are drawn from stored JSON."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import machine, pages, tables

ROOT = Path(__file__).parent.parent.parent
PAGES = pages.pages()
RESULTS = [pages.DOCS / "results.md", *sorted((pages.DOCS / "results").glob("*.md"))]


def tables_of(page):
    return [name for _, name, _ in pages.BLOCK.findall(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tables_of_a_page_are_drawn_from_what_was_measured(page):
    text = page.read_text("utf-8")
    assert pages.filled(text) == text


def test_every_result_is_shown():
    shown = {name for page in PAGES for name in tables_of(page)}
    stored = {path.stem for path in machine.RESULTS.glob("*.json")}
    assert stored <= set(pages.TABLES)
    for name in stored:
        assert shown & set(pages.TABLES[name]), name


def test_an_unknown_table_is_an_error():
    with pytest.raises(ValueError, match="no table is called 'nothing'"):
        pages.filled("<!-- table: nothing -->\n<!-- end -->")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_table_says_machine_date_and_command(page):
    for name in tables_of(page):
        if name != "paper_orders":  # a sentence below a table
            day, command = r"\d{4}-\d\d-\d\d", r"`python -m benchmarks\.[^`]+`"
            some = rf"(, some heads {day}; {command})?"
            measured = rf"\*.+; {day}( to {day})?; {command}{some}\.\*"
            missing = rf"\*Not measured with this version yet: {command}\.\*"
            assert re.fullmatch(f"{measured}|{missing}", pages.drawn(name)[-1])


@pytest.mark.parametrize("stored", pages.TABLES)
def test_a_table_that_is_not_measured_names_the_command(stored, tmp_path):
    (line,) = pages.drawn(next(iter(pages.TABLES[stored])), tmp_path)
    module, *words = re.search(r"`python -m ([^`]+)`", line)[1].split()
    path = ROOT / module.replace(".", "/")
    source = (path / "__main__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    assert all(re.search(rf"\b{word}\b", source) for word in words)


def test_a_tool_that_was_not_measured_is_shown():
    about = {"machine": "a machine", "date": "2026-01-01", "command": "a command"}
    peer = {"p50_seconds": 1e-4, "p99_seconds": 2e-4, "load_seconds": 0.03}
    lines = tables.speed({"about": about, "sets": {"a": {"pecos": peer}}})
    assert "| a | `LTLSClassifier()` | not measured | – | – |" in lines
    assert "| a | PECOS | 100 | 200 | 30 |" in lines


@pytest.mark.parametrize("page", RESULTS, ids=lambda page: page.stem)
def test_pages_of_results_begin_with_a_picture(page):
    beginning = page.read_text("utf-8").partition("\n#")[0]
    assert re.search(r"^!\[", beginning, re.M)


def test_tables_fit_a_page():
    for page in PAGES:
        for line in page.read_text("utf-8").splitlines():
            assert line.count(" | ") < 7, line


def test_what_is_stored_was_measured_by_a_script_that_exists():
    for path in machine.RESULTS.rglob("*.json"):
        about = json.loads(path.read_text("utf-8")).get("about")
        if about is None:
            assert path.stem == "set"
            continue
        module = about["command"].split()[2].replace(".", "/")
        assert (ROOT / f"{module}.py").exists() or (ROOT / module / "__main__.py").exists()


def test_no_result_holds_data_of_single_rows():
    for path in machine.RESULTS.rglob("*.json"):
        assert path.stat().st_size < 30_000, path


def test_figures_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    pages.draw(tmp_path)
    for name in pages.FIGURES:
        assert "<svg" in (tmp_path / f"{name}.svg").read_text("utf-8")
        assert (ROOT / "docs" / "results" / f"{name}.svg").exists()
