"""Figures are measured: the tables of all pages are drawn from stored JSON."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import machine, pages

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
    drawn_from = {pages.stored(name) for name in shown - set(pages.OF_ACCURACY)}
    assert drawn_from == {path.stem for path in machine.RESULTS.glob("*.json")}


def test_an_unknown_table_is_an_error():
    with pytest.raises(ValueError, match="no table is called 'nothing'"):
        pages.filled("<!-- table: nothing -->\n<!-- end -->")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_table_says_machine_date_and_command(page):
    for name in tables_of(page):
        if name not in ("paper_orders", "readme_costs"):  # sentences, beside a table
            day, command = r"\d{4}-\d\d-\d\d", r"`python -m benchmarks\.[^`]+`"
            some = rf"(, some heads {day}; {command})?"
            assert re.fullmatch(
                rf"\*.+; {day}( to {day})?; {command}{some}\.\*", pages.drawn(name)[-1]
            )


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
