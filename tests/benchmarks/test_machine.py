"""What all benchmarks share: the command of a figure, files that are whole, data sets."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import datasets, machine

ROOT = Path(__file__).parent.parent.parent


def test_a_command_has_no_folders_of_this_machine(tmp_path):
    code = f"""
import runpy, sys
sys.argv = ["x", "growth", "--output", {str(tmp_path / "here")!r}]
runpy.run_module("said", run_name="__main__", alter_sys=True)
"""
    (tmp_path / "said.py").write_text("from benchmarks import machine; print(machine.command())")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "python -m said growth --output here"


def test_a_caption_names_machine_date_and_command_but_no_folders():
    about = {"machine": "a machine", "date": "2026-01-01", "gpu": "a GPU"}
    command = "python -m benchmarks.x a/b.npz --output r"
    caption = machine.source({**about, "command": command})
    assert caption == "*a GPU, a machine; 2026-01-01; `python -m benchmarks.x b.npz`.*"


def test_a_result_is_read_as_it_was_written(tmp_path):
    assert machine.read("x", tmp_path) == {}
    machine.write("x", {"µs": [1.5, None]}, tmp_path / "new")
    assert machine.read("x", tmp_path / "new") == {"µs": [1.5, None]}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["x.json"]


@pytest.mark.parametrize("names", [("a_train.txt", "a_test.txt"), ("sub/A.tr.svm.xz", "a-te.gz")])
def test_a_data_set_is_found_under_the_names_that_people_give_it(tmp_path, names):
    for name in (*names, "other_train.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert datasets.find(tmp_path, "a") == [tmp_path / name for name in names]
    assert datasets.find(tmp_path, "other") is None
