"""Standard streams that are closed, full, or not UTF-8."""

import json
import os
import subprocess
import sys

import pytest

from ltls import TextClassifier

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a shell of POSIX")

FULL = "ltls: standard output: No space left on device; free some space, or write elsewhere\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    model = TextClassifier(random_state=0)
    model.fit(["my card", "the fee"] * 5, ["cärd☃", "fee"] * 5).save(folder / "model.ltls")
    (folder / "rows.txt").write_text("my card\n")
    (folder / "rows.ft").write_text("__label__card my card\n__label__fee the fee\n")
    return folder


def shell(folder, line, **environment):
    """Run a line in a shell, where LTLS is the command."""
    line = line.replace("LTLS", f"{sys.executable} -m ltls")
    return subprocess.run(
        line,
        shell=True,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("LTLS predict model.ltls - <&-", "input"),
        ("LTLS train - -o m.ltls <&-", "input"),
        ("LTLS explain model.ltls - <&-", "input"),
        ("LTLS predict model.ltls rows.txt --text >&-", "output"),
        ("LTLS evaluate model.ltls rows.ft --json >&-", "output"),
        ("LTLS explain model.ltls 'my card' >&-", "output"),
        ("LTLS info model.ltls >&-", "output"),
        ("LTLS settings >&-", "output"),
        ("LTLS train rows.ft -q -o - >&-", "output"),
        ("LTLS train rows.ft -q -o /dev/stdout >&-", "output"),
        ("LTLS convert rows.ft - --to jsonl >&-", "output"),
        ("LTLS --help >&-", "output"),
    ],
)
def test_a_closed_stream_is_an_error(folder, line, name):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    result = shell(folder, line)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"ltls: standard {name}: the stream is closed\n"
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_closed_streams_that_are_not_used_do_not_matter(folder, tmp_path):
    result = shell(folder, f"LTLS predict model.ltls rows.txt --text -q -o {tmp_path}/o <&- >&-")
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "o").read_text("utf-8").startswith("cärd☃:")
    assert shell(folder, "LTLS info nowhere.ltls 2>&-").returncode == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
@pytest.mark.parametrize("words", ["predict model.ltls rows.txt --text", "--help"])
def test_full_standard_output(folder, words):
    result = shell(folder, f"LTLS {words} >/dev/full")
    assert (result.returncode, result.stderr) == (2, FULL)


def test_a_locale_without_unicode(folder):
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = "LTLS predict model.ltls rows.txt --text -k 1"
    assert shell(folder, words, **locale).stdout.startswith("cärd☃:")
    result = shell(folder, f"{words} --json", **locale)
    assert (result.returncode, json.loads(result.stdout)["labels"]) == (0, ["cärd☃"])
    result = shell(folder, "echo 'my card' | LTLS explain model.ltls - -k 1", **locale)
    assert (result.returncode, "cärd☃" in result.stdout) == (0, True)
    result = shell(folder, "LTLS explain model.ltls 'cärd☃ my' -k 1", **locale)
    assert (result.returncode, "cärd☃ my" in result.stdout) == (0, True)
    result = shell(folder, "LTLS info 'nöwhere.ltls'", **locale)
    line = "ltls: nöwhere.ltls: No such file or directory\n"
    assert (result.returncode, result.stderr) == (2, line)
    (folder / "größe.csv").write_text("größe,läbel\nmy card,cärd☃\nthe fee,fee\n", "utf-8")
    words = "LTLS train größe.csv --text größe --label läbel -o söme.ltls -q"
    result = shell(folder, words, **locale)
    assert (result.returncode, result.stderr) == (0, "")
    assert (folder / "söme.ltls").exists()
    result = shell(folder, "LTLS train rows.ft -q -o m.ltls --set 'wïngs=3'", **locale)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
