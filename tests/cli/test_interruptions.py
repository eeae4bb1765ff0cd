"""Ctrl-C, SIGTERM and SIGKILL: what a command leaves behind, and how training continues from it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pytest

import ltls
from ltls import LTLSClassifier, readers
from ltls.settings import Trellises

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

SIGNALLED_AFTER_A_CHECKPOINT = """
import os, sys
from ltls import cli
from ltls.training.checkpoint import Checkpoint

save, number = Checkpoint.save, int(sys.argv.pop(1))

def save_and_signal(*arguments, **options):
    save(*arguments, **options)
    os.kill(os.getpid(), number)

Checkpoint.save = save_and_signal
cli.main()
"""
SETTINGS = ("--set", "trellises.n_trellises=3", "--random-state", 3, "-q")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with rows of 200 labels."""
    monkeypatch.chdir(tmp_path)
    labels = np.random.default_rng(0).integers(0, 200, 3000)
    lines = [f"{label} {label + 1}:1 {201 + i % 97}:0.5\n" for i, label in enumerate(labels)]
    (tmp_path / "rows.txt").write_text("".join(lines))
    return tmp_path


def signalled(number, *words):
    """Run a command that gets a signal when it has written its first checkpoint."""
    code = [sys.executable, "-c", SIGNALLED_AFTER_A_CHECKPOINT, int(number), *words]
    return subprocess.run([*map(str, code)], capture_output=True, text=True, check=False)


GIVEN = ("--checkpoint", "state")


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
@pytest.mark.parametrize(
    ("number", "code", "place"),
    [
        (signal.SIGINT, 130, ()),
        (signal.SIGINT, 130, GIVEN),
        (signal.SIGTERM, 143, ()),
        (signal.SIGTERM, 143, GIVEN),
        (signal.SIGKILL, -signal.SIGKILL, GIVEN),  # by default, there is one per minute
    ],
    ids=["Ctrl-C", "Ctrl-C, given", "SIGTERM", "SIGTERM, given", "SIGKILL"],
)
def test_training_resumes_to_the_same_file(folder, command, number, code, way, place):
    words = ("train", "rows.txt", "--epochs", 4, *SETTINGS, way)
    assert command(*words, "-o", "whole.ltls").code == 0
    words = (*words, *place, "-o", "model.ltls")
    checkpoint = place[1] if place else "model.ltls.checkpoint"
    ended = signalled(number, *words)
    assert (ended.returncode, ended.stdout) == (code, "")
    if number != signal.SIGKILL:
        line = f"training was interrupted; --resume continues from {checkpoint}\n"
        assert ended.stderr == f"ltls: warning: {line}"
    assert (folder / checkpoint).exists()
    assert not (folder / "model.ltls").exists()
    result = command(*words, "--resume")
    assert (result.code, result.err) == (0, "")
    assert (folder / "model.ltls").read_bytes() == (folder / "whole.ltls").read_bytes()
    assert sorted(os.listdir()) == ["model.ltls", "rows.txt", "whole.ltls"]


SIGNALLED_IN_A_CHUNK = """
import os, sys
from ltls import cli
from ltls.parts.trellis_training import TrellisTraining

run, number, last, numbers = TrellisTraining.run, int(sys.argv.pop(1)), int(sys.argv.pop(1)), []

def run_and_signal(*arguments):
    numbers.append(1)
    if len(numbers) == last:
        os.kill(os.getpid(), number)
    return run(*arguments)

TrellisTraining.run = run_and_signal
cli.main()
"""


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_at_any_moment_of_an_epoch_leaves_a_checkpoint(folder, command, number, code, way):
    words = ("train", "rows.txt", "--epochs", 4, *SETTINGS, way)
    assert command(*words, "-o", "whole.ltls").code == 0
    for chunk in (1, 4, 13):
        given = (
            int(number),
            chunk,
            *words,
            "-o",
            "model.ltls",
            *(["--resume"] if chunk > 1 else []),
        )
        ended = subprocess.run(
            [sys.executable, "-c", SIGNALLED_IN_A_CHUNK, *map(str, given)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ended.returncode, ended.stdout) == (code, "")
        assert ended.stderr.endswith("interrupted; --resume continues from model.ltls.checkpoint\n")
        assert sorted(os.listdir()) == ["model.ltls.checkpoint", "rows.txt", "whole.ltls"]
    assert command(*words, "-o", "model.ltls", "--resume").code == 0
    assert (folder / "model.ltls").read_bytes() == (folder / "whole.ltls").read_bytes()


def test_what_was_learned_until_ctrl_c_becomes_a_model(folder, command):
    words = ("train", "rows.txt", *SETTINGS, "-o", "model.ltls")
    assert signalled(signal.SIGINT, *words, "--epochs", 40).returncode == 130
    loud = [word for word in words if word != "-q"]
    result = command(*loud, "--epochs", 1, "--resume")
    assert result.code == 0
    assert "resuming from model.ltls.checkpoint after epoch 1\n" in result.err
    assert ltls.load("model.ltls").n_iter_ == 1


@pytest.mark.parametrize("hidden", [False, True])
def test_ctrl_c_after_the_epochs_leaves_the_checkpoint(folder, command, monkeypatch, hidden):
    def interrupted(*_):
        try:
            raise KeyboardInterrupt
        finally:
            if hidden:  # as by a Condition that waits
                raise RuntimeError("release unlocked lock")

    monkeypatch.setattr("ltls.training.fit.choose", interrupted)
    result = command("train", "rows.txt", *SETTINGS, "-o", "model.ltls")
    assert result.code == 130
    assert result.err.endswith("interrupted; --resume continues from model.ltls.checkpoint\n")
    assert sorted(os.listdir()) == ["model.ltls.checkpoint", "rows.txt"]


@pytest.mark.parametrize("held_out", [0, 0.1])
def test_more_epochs_continue_from_a_checkpoint(folder, command, held_out):
    words = ("train", "rows.txt", "-q", "--random-state", 3, "--set")
    words = (*words, f"validation_fraction={held_out}", "--stream", "--epochs", 4)
    assert command(*words, "-o", "whole.ltls").code == 0
    given = {"random_state": 3, "validation_fraction": held_out}
    part = LTLSClassifier(trellises=Trellises(epochs=2), **given)
    part.fit_stream(readers.Stream("rows.txt"), checkpoint="state")
    result = command(*words, "--checkpoint", "state", "-o", "model.ltls", "--resume")
    assert (result.code, result.err) == (0, "")
    assert (folder / "model.ltls").read_bytes() == (folder / "whole.ltls").read_bytes()


def test_resuming_what_is_not_there(folder, command):
    result = command("train", "rows.txt", "-o", "m.ltls", "--resume")
    assert result.err == (
        "ltls: m.ltls.checkpoint: there is no checkpoint to resume from; start without resume\n"
    )


def test_a_checkpoint_takes_the_place_of_no_other_file(folder, command):
    (folder / "other.txt").write_text("other")
    words = ("train", "rows.txt", "-o", "m.ltls", "--checkpoint")
    assert "rows.txt: the input cannot also be the output" in command(*words, "rows.txt").err
    assert "other.txt is not an ltls checkpoint" in command(*words, "other.txt").err
    assert "--checkpoint and --output must be different" in command(*words, "m.ltls").err
    assert (folder / "other.txt").read_text() == "other"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_ctrl_c_elsewhere(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    words = [sys.executable, "-m", "ltls", "train", fifo, "-o", tmp_path / "model.ltls"]
    pipe = subprocess.PIPE
    running = subprocess.Popen([*map(str, words)], stdout=pipe, stderr=pipe, text=True)
    writer = None
    while writer is None and running.poll() is None:
        time.sleep(0.05)
        with suppress(OSError):  # it can be opened as soon as the process waits for its first row
            writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    try:
        err = None
        for _ in range(20):  # a signal just before the process starts to wait would be lost
            running.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                _, err = running.communicate(timeout=5)
                break
    finally:
        running.kill()
        os.close(writer)
    line = "ltls: warning: training was interrupted before there was a checkpoint\n"
    assert (running.returncode, err) == (130, line)
    assert os.listdir(tmp_path) == ["fifo"]


TERMINATED_WHILE_WRITING = """
import os, signal
from pathlib import Path
from ltls import cli

def write_half(path, content):
    with path.open("wb") as stream:
        stream.write(content[: len(content) // 2])
        stream.flush()
        os.kill(os.getpid(), signal.SIGTERM)

Path.write_bytes = write_half
cli.main()
"""


def test_sigterm_leaves_the_old_model_and_no_other_file(folder):
    (folder / "model.ltls").write_text("old")
    words = ("train", "rows.txt", "-q", "-o", "model.ltls", "--epochs", "1")
    ended = subprocess.run(
        [sys.executable, "-c", TERMINATED_WHILE_WRITING, *words],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 128 + signal.SIGTERM
    assert (folder / "model.ltls").read_text() == "old"
    assert sorted(os.listdir()) == ["model.ltls", "rows.txt"]


TERMINATED_IN_A_FINALIZER = """
import signal
from ltls import Checkpoint, LTLSClassifier, cli

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

place, name = {place}
original = getattr(place, name)

def call(*arguments, **options):
    setattr(place, name, original)
    result = original(*arguments, **options)
    Finalized()
    return result

setattr(place, name, call)
cli.main()
"""


@pytest.mark.parametrize(
    ("place", "epochs"),
    [("Checkpoint, 'save'", 500), ("LTLSClassifier, 'save'", 1)],
    ids=["in training", "at the end"],
)
def test_sigterm_in_a_finalizer_ends_the_command(folder, place, epochs):
    code = TERMINATED_IN_A_FINALIZER.replace("{place}", place)
    words = ("train", "rows.txt", "-q", "-o", "model.ltls", *GIVEN, "--epochs", epochs)
    ended = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, "")
    assert "Terminated" not in ended.stderr
    assert (folder / "model.ltls").exists() == (epochs == 1)
