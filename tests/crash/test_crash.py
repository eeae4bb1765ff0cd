"""Whatever the moment at which a process or a machine ends: files are the old ones or the new ones.

In the manner of SQLite's tests, every call that changes a file is made the last one in turn: it
fails, the process is killed there, or power is lost and with it what was not synchronized.
"""

import os
import warnings

import numpy as np
import pytest
from faults import KILLED, Faults

from ltls import Checkpoint, load
from ltls.core.streams import open_text_output
from tests.crash.points import OLD, X, Y, classifier, contents, in_child

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs fork and /proc"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
CRASHES = [("kill", True), ("power", True), ("power", False)]


def save(folder):
    """Replace one model by another."""
    NEW.save(folder / "model.ltls")


def train(folder):
    """Train with a checkpoint after every epoch, then save."""
    checkpoint = Checkpoint(folder / "state", resume=(folder / "state").exists())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = classifier(3).fit(X, Y, checkpoint=checkpoint)
    model.save(folder / "model.ltls")


def write_text(folder):
    """Write predictions."""
    with open_text_output(folder / "out.tsv") as stream:
        stream.write("new line\n" * 100)


NEW = classifier(3).fit(X, Y)


def prepared(tmp_path, number):
    folder = tmp_path / str(number)
    folder.mkdir()
    OLD.save(folder / "model.ltls")
    (folder / "out.tsv").write_text("old line\n")
    return folder


def n_calls(work, folder):
    faults = Faults()
    with faults.active():
        work(folder)
    assert faults.n_calls >= 5
    return faults.n_calls


@pytest.mark.parametrize(("mode", "renames_survive"), CRASHES)
@pytest.mark.parametrize("work", [save, write_text])
def test_a_crash_leaves_the_old_file_or_the_new_one(
    tmp_path, record_property, work, mode, renames_survive
):
    folder = prepared(tmp_path, "whole")
    old, _ = contents(folder)
    total = n_calls(work, folder)
    record_property("calls", total)
    new, _ = contents(folder)
    assert new != old
    seen = []
    for at in range(total):
        folder = prepared(tmp_path, at)
        faults = Faults(at, mode, renames_survive)

        def crash(faults=faults, folder=folder):
            with faults.active():
                work(folder)

        assert in_child(crash) == KILLED
        found, _ = contents(folder)
        assert found in (old, new), f"half a file after call {at}"
        seen.append(found == new)
        work(folder)  # the next one cleans up
        assert contents(folder) == (new, set())
    assert seen == sorted(seen)  # once it is new, it stays so
    assert not seen[0]


@pytest.mark.parametrize("work", [save, write_text])
def test_a_call_that_fails_leaves_the_old_file_and_no_other(tmp_path, record_property, work):
    folder = prepared(tmp_path, "whole")
    old, _ = contents(folder)
    total = n_calls(work, folder)
    record_property("calls", total)
    new, _ = contents(folder)
    for at in range(total):
        folder = prepared(tmp_path, at)
        with pytest.raises(OSError, match="No space left"), Faults(at).active():
            work(folder)
        found, temporary = contents(folder)
        assert found in (old, new)
        assert found == old or at >= total - 2  # only the folder was to be synchronized
        assert not temporary


@pytest.mark.parametrize(("mode", "renames_survive"), CRASHES[1:])
def test_a_training_that_crashed_is_resumed_to_the_same_model(
    tmp_path, record_property, mode, renames_survive
):
    folder = prepared(tmp_path, "whole")
    total = n_calls(train, folder)
    record_property("calls", total)
    expected, _ = contents(folder)
    for at in range(total):
        folder = prepared(tmp_path, at)
        faults = Faults(at, mode, renames_survive)

        def crash(faults=faults, folder=folder):
            with faults.active():
                train(folder)

        assert in_child(crash) == KILLED
        load(folder / "model.ltls", verify=True)
        if at % 3 == 0:  # and once more, while it is resumed
            again = Faults(total // 3, mode, renames_survive)

            def crash_again(faults=again, folder=folder):
                with faults.active():
                    train(folder)

            assert in_child(crash_again) in (KILLED, 0)
        train(folder)
        assert contents(folder) == (expected, set())


def test_a_checkpoint_that_cannot_be_written_does_not_stop_training(tmp_path):
    def train_once(path):
        return classifier(3).fit(X, Y, checkpoint=path)

    expected = train_once(tmp_path / "whole").coef_
    faults = Faults()
    with faults.active():
        train_once(tmp_path / "counted")
    for at in range(faults.n_calls):
        with warnings.catch_warnings(record=True) as caught, Faults(at).active():
            warnings.simplefilter("always")
            model = train_once(tmp_path / f"state{at}")
        assert len(caught) == 1, at
        assert "could not be written: No space left" in str(caught[0].message)
        np.testing.assert_array_equal(model.coef_, expected)
