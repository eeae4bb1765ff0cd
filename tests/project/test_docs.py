"""What README and documentation show: their code runs, their commands work, their pages exist."""

import gzip
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from tickets import TICKETS

from ltls import LTLSClassifier
from ltls.cli.app import COMMANDS

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
# Modules that only `make test-all` installs. A block that imports one has to run by itself.
EXTRAS = ("torch", "pandas", "polars", "pyarrow", "ray", "mlflow", "hub", "skops")
# "py" needs more than that, a server, Spark or an encoder, and runs in these tests.
RUN_ELSEWHERE = {
    "serving.md": "tests/serve/test_docs.py",
    "cluster.md": "tests/mlflow/test_flavour.py",
    "integrations.md": "tests/project/test_encoders.py",
    "encoders.md": "tests/project/test_encoders.py",
}
OTHERS = {"sh", "console", "cpp", "diff", "toml", "dockerfile", "ini", "mermaid", "text", "yaml"}
CASES = "subject,body,amount,country,kind\n" + 10 * (
    "card lost,please help,0,CH,card\nwhich fee,it was charged,25.5,,fee\nmy card,,,AT,card\n"
)


def blocks(page, *languages):
    return [code for kind, code in FENCE.findall(page.read_text("utf-8")) if kind in languages]


def extra_of(code):
    """Return the extra that a block imports, None if it needs none."""
    imported = re.findall(r"^\s*(?:import|from) (?:ltls\.)?(\w+)", code, re.M)
    return next((name for name in EXTRAS if name in imported), None)


def run(command, folder):
    scripts = sysconfig.get_path("scripts")
    done = subprocess.run(
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
        timeout=600,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the files that the pages speak of."""
    for name in ("tickets.csv", "held_out.csv"):
        (tmp_path / name).write_text(TICKETS)
    (tmp_path / "cases.csv").write_text(CASES)
    rows = "".join(f"{i % 7} {i % 7 + 1}:1 {i % 3 + 8}:0.5\n" for i in range(200))
    for name in ("train.txt.gz", "test.txt.gz"):
        (tmp_path / name).write_bytes(gzip.compress(rows.encode()))
    return tmp_path


def write_parquet(folder):
    """Write sparse rows of ten tags, to train on and to score, and a model of them."""
    arrow = pytest.importorskip("pyarrow", reason="needs pyarrow: run make test-all")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = [[i % 10, 10 + i % 3] for i in range(200)]
    tags = [f"tag{i % 10}" for i in range(200)]
    values = [[1.0, 0.5]] * 200
    for name in ("train", "in"):
        (folder / name).mkdir()
        table = arrow.table({"indices": columns, "values": values, "tag": tags})
        parquet.write_table(table, folder / name / "rows.parquet")
    indptr = np.arange(0, 401, 2)
    X = csr_array((np.ravel(values), np.ravel(columns), indptr), shape=(200, 13))
    LTLSClassifier(random_state=0).fit(X, tags).save(folder / "model.ltls")


def with_blocks(*languages):
    pages = [page for page in PAGES if blocks(page, *languages)]
    return pytest.mark.parametrize(
        "page", pages, ids=lambda page: page.relative_to(ROOT).as_posix()
    )


@with_blocks("python", "sh")
def test_the_code_of_a_page_runs_in_order(page, folder):
    """Blocks of a page follow one another, as in a session; then the commands."""
    code = "\n".join(code for code in blocks(page, "python") if extra_of(code) is None)
    if code:
        run([sys.executable, "-c", code], folder)
    commands = [code for code in blocks(page, "sh") if not code.startswith("make ")]
    if commands and os.name != "nt":  # they are written for a POSIX shell
        run(["sh", "-e", "-c", "\n".join(commands)], folder)


def blocks_with_extras():
    return [
        pytest.param(extra_of(code), code, id=f"{page.name}-{number}")
        for page in PAGES
        for number, code in enumerate(blocks(page, "python"))
        if extra_of(code) is not None
    ]


@pytest.mark.parametrize(("extra", "code"), blocks_with_extras())
def test_code_that_needs_an_extra_runs(extra, code, folder):
    package = {"hub": "huggingface_hub"}.get(extra, extra)
    pytest.importorskip(package, reason=f"needs {package}: run make test-all")
    if "model.ltls" in code:  # trained before, on Parquet files
        write_parquet(folder)
    run([sys.executable, "-c", code.replace("head:6379", "local")], folder)


def shown_commands():
    for page in PAGES:
        for block in blocks(page, "console", "sh"):
            for line in block.splitlines():
                yield page, line.removeprefix("$ ").split("  #")[0]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words[1:], id=" ".join(words[:3]))
        for _, line in shown_commands()
        if (words := shlex.split(line))[:1] == ["ltls"]
    ],
)
def test_commands_are_understood(words):
    """Also those that are not run here, such as servers."""
    command = next(each for each in COMMANDS if each.name == words[0]).load()
    assert command.make_context(words[0], words[1:]) is not None


def test_targets_and_extras_that_are_shown_exist():
    makefile = (ROOT / "Makefile").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    targets = set(re.findall(r"(?:^|`|\$ )make ([a-z][\w-]*)", text, re.M))
    assert {"demo", "test", "test-all", "docs"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M), target
    extras = {name for found in re.findall(r"'(?:ltls|\.)\[([\w,]+)\]", text)
              for name in found.split(",")}  # fmt: skip
    assert extras >= {"serve", "plot"}
    for extra in extras:
        assert re.search(rf"^{extra} = \[", project, re.M), extra


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_code_escapes_these_tests(page):
    text = page.read_text("utf-8")
    assert len(re.findall(r"^ *```", text, re.M)) == 2 * len(FENCE.findall(text))
    known = OTHERS | {"python"} | ({"py"} if page.name in RUN_ELSEWHERE else set())
    assert {language for language, _ in FENCE.findall(text)} <= known
    outside = FENCE.sub("", text)
    assert not re.search(r"^ {4,}(from \w|import \w|ltls \w)", outside, re.M)


def test_diffs_apply_to_the_files_that_their_section_names():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    sections = [each for each in re.split(r"^##+ ", text, flags=re.M) if "```diff" in each]
    assert len(sections) >= 4
    for section in sections:
        files = set(re.findall(r"`([\w/]+\.(?:py|hpp))`", section))
        lines = {line for file in files for line in (ROOT / file).read_text("utf-8").splitlines()}
        diffs = (code for kind, code in FENCE.findall(section) if kind == "diff")
        for line in "".join(diffs).splitlines():
            assert line[0] in "+@" or line[1:] in lines, f"not in {sorted(files)}: {line}"


@pytest.mark.parametrize("page", RUN_ELSEWHERE)
def test_other_tests_run_the_code_of_a_page(page):
    test = (ROOT / RUN_ELSEWHERE[page]).read_text("utf-8")
    assert f'"{page}").read_text' in test
    assert f'"{page}", "exec")' in test


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in DOCS:
        assert f": {page.relative_to(ROOT / 'docs').as_posix()}\n" in navigation
