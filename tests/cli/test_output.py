"""Output files of commands: special files and links."""

import os
import stat
import threading

import numpy as np
import pytest

import ltls
from ltls import LTLSClassifier

posix = pytest.mark.skipif(os.name == "nt", reason="files and signals of POSIX")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X = np.eye(4, dtype=np.float32)
    LTLSClassifier(random_state=0).fit(X, [1, 2, 3, 4]).save("model.ltls")
    (tmp_path / "rows.txt").write_text("1 1:1\n2 2:1\n3 3:1\n4 4:1\n")
    return tmp_path


@posix
@pytest.mark.parametrize(
    "words",
    [
        ("predict", "model.ltls", "rows.txt", "-k", 1, "-q", "-o"),
        ("convert", "rows.txt", "--to", "xmc", "-q"),
        ("convert", "model.ltls"),
        ("train", "rows.txt", "-q", "--random-state", 0, "-o"),
    ],
    ids=["predict", "convert", "convert a model", "train"],
)
def test_predictions_data_and_models_go_to_a_pipe_that_stays_one(folder, command, words):
    assert command(*words, "file").code == 0
    os.mkfifo("pipe")
    found = []
    read = lambda: found.append((folder / "pipe").read_bytes())  # noqa: E731
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    result = command(*words, "pipe")
    reader.join(60)
    assert result.code == 0, result.err
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)
    assert found == [(folder / "file").read_bytes()]
    assert command(*words, os.devnull).code == 0
    assert not os.path.isfile(os.devnull)


@posix
@pytest.mark.parametrize("name", ["pipe", "pipe.gz"])
def test_a_pipe_without_a_reader_is_an_error(folder, command, name, monkeypatch):
    monkeypatch.setattr("ltls.core.streams._READER_SECONDS", 0.1)
    os.mkfifo(name)
    with pytest.raises(OSError, match=f"No process reads from this pipe.*{name}"):
        ltls.load("model.ltls").save(name)
    for words in (("predict", "model.ltls", "rows.txt"), ("train", "rows.txt")):
        result = command(*words, "-q", "-o", name)
        assert (result.code, result.err) == (
            2,
            f"ltls: {name}: No process reads from this pipe: start the reader first\n",
        )
    assert stat.S_ISFIFO(os.stat(name).st_mode)


@posix
def test_reports_are_regular_files(folder, command):
    os.mkfifo("pipe.html")
    result = command("evaluate", "model.ltls", "rows.txt", "--report", "pipe.html")
    assert result.code == 2
    assert "pipe.html: not a regular file" in result.err.lower()
    assert stat.S_ISFIFO(os.stat("pipe.html").st_mode)


@posix
def test_a_model_is_saved_through_a_link(folder, command):
    (folder / "models").mkdir()
    os.symlink("models/current.ltls", "link.ltls")
    assert command("train", "rows.txt", "-q", "-o", "link.ltls").code == 0
    assert os.path.islink("link.ltls")
    assert len(ltls.load("models/current.ltls").classes_) == 4


@posix
def test_a_private_model_stays_private(folder, command):
    (folder / "model.ltls").chmod(0o600)
    assert command("train", "rows.txt", "-q", "-o", "model.ltls").code == 0
    assert stat.S_IMODE(os.stat("model.ltls").st_mode) == 0o600
