"""What README and documentation show: their code runs, their commands work, their pages exist."""

import gzip
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tickets import TICKETS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUNNABLE = [page for page in PAGES if page.name != "tuning.md"]  # whose search takes a minute
SHELL = [ROOT / "README.md", ROOT / "docs" / "terminal.md"]  # what other pages repeat


def blocks(language, pages=PAGES):
    """Return the code blocks of a language, page by page."""
    found = [
        (page, code)
        for page in pages
        for code in re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    ]
    return [pytest.param(code, id=f"{page.name}-{i}") for i, (page, code) in enumerate(found)]


def run(command, folder):
    scripts = sysconfig.get_path("scripts")
    return subprocess.run(
        command,
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "MPLBACKEND": "Agg",
        },
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )


@pytest.mark.parametrize("code", blocks("python", RUNNABLE))
def test_python(code, tmp_path):
    if "torch" in code:
        pytest.importorskip("torch", reason="needs torch, which `make test-all` installs")
    done = run([sys.executable, "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(os.name == "nt", reason="the commands are written for a POSIX shell")
@pytest.mark.parametrize("commands", blocks("sh", SHELL))
def test_shell(commands, tmp_path):
    if "make" in commands:
        for target in re.findall(r"^make ([\w-]+)", commands, re.M):
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)
        return
    for name in ("tickets.csv", "held_out.csv"):
        (tmp_path / name).write_text(TICKETS)
    rows = "".join(f"{i % 7} {i % 7 + 1}:1 {i % 3 + 8}:0.5\n" for i in range(200))
    for name in ("train.txt.gz", "test.txt.gz"):
        (tmp_path / name).write_bytes(gzip.compress(rows.encode()))
    done = run(["sh", "-e", "-c", commands], tmp_path)
    assert done.returncode == 0, done.stderr


def test_other_pages_repeat_commands_that_were_tried():
    def lines(pages):
        return {line for block in blocks("sh", pages) for line in block.values[0].splitlines()}

    tried = {line.split("   #")[0] for line in lines(SHELL)}
    assert lines(PAGES) <= tried | lines(SHELL)


def test_there_are_blocks_to_test():
    assert len(blocks("python", [ROOT / "README.md"])) == 2  # the estimator and torch
    assert len(blocks("sh", [ROOT / "README.md"])) == 2  # set up, and the terminal
    assert len(blocks("python")) >= 9


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text("utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.relative_to(ROOT / "docs").as_posix() in navigation


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_knows_what_is_documented():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([\w-]+)", (ROOT / "CONTRIBUTING.md").read_text()):
        assert re.search(rf"^{re.escape(target)}:", makefile, re.M), target
