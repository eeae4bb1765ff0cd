"""What a release says of itself in several files is the same everywhere."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def text_of(name):
    return (ROOT / name).read_text("utf-8")


def test_the_version_and_its_date_are_the_same_everywhere():
    version = re.search(r'^version = "(.+)"$', text_of("pyproject.toml"), re.M)[1]
    date = re.search(
        rf"^## {re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)$", text_of("CHANGELOG.md"), re.M
    )
    citation = text_of("CITATION.cff")
    assert re.findall(r"^ *version: (.+)$", citation, re.M) == [version, version]
    assert date
    assert re.findall(r"^date-released: (.+)$", citation, re.M) == [date[1]]


def test_commits_are_checked_by_the_tools_of_make_lint():
    lint = set(re.findall(r'"([\w-]+==[\d.]+)"', text_of("pyproject.toml")))
    hooks = re.findall(r"additional_dependencies: \[(.+)\]", text_of(".pre-commit-config.yaml"))
    assert hooks
    assert set(hooks) <= lint


def test_targets_of_workflows_exist():
    makefile = text_of("Makefile")
    workflows = "\n".join(each.read_text("utf-8") for each in ROOT.glob(".github/workflows/*.yml"))
    targets = " ".join(re.findall(r"run: make ([a-z -]+)", workflows)).split()
    assert {"lint", "test-all", "coverage", "docs"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M), target
