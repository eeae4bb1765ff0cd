import errno
import gzip
import io
import json
import os
import subprocess
import sys
from dataclasses import astuple

import numpy as np
import pytest

import ltls
from ltls import LTLSClassifier, readers
from ltls.cli import app
from ltls.settings import Trellises
from ltls.storage import model_file

SINGLE = "1 1:1 2:0.5\n2 2:1 3:1\n3 1:1 3:2\n1 1:2\n2 2:2\n"  # svmlight, one label a row
SEVERAL = "4 4 3\n0,1 0:1 1:1\n2 2:1\n\n1 3:1\n"  # xmc, and a row without labels
FILES = {
    "single.txt": SINGLE,
    "several.txt": SEVERAL,
    "wide_xmc.txt": "2 9 3\n0 0:1\n1 8:1\n",
    "bad_value.txt": "1 1:1\n2 2:x\n",
    "bad_label.txt": "cat 1:1\n2 1:1\n",
    "one_class.txt": "1 1:1\n1 2:1\n",
    "no_labels.txt": " 1:1\n 2:1\n",
    "empty.txt": "",
    "long_line.txt": "x" * 100_000 + " 1:1\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of data files and of models, whole and damaged."""
    folder = tmp_path_factory.mktemp("cli")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "cut.gz").write_bytes(gzip.compress(SINGLE.encode() * 100)[:-20])
    single = readers.read(folder / "single.txt")
    model = LTLSClassifier(trellises=Trellises(epochs=50), random_state=0)
    model.fit(single.X, single.y).save(folder / "single.ltls")
    several = readers.read(folder / "several.txt")
    model.fit(several.X, several.Y).save(folder / "several.ltls")
    whole = (folder / "single.ltls").read_bytes()
    (folder / "cut.ltls").write_bytes(whole[:-10])
    header_end = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:header_end])
    weights = next(name for name in header if name.endswith(".values"))
    place = header_end + header[weights]["data_offsets"][0]
    changed = bytes([whole[place] ^ 1])
    (folder / "changed.ltls").write_bytes(whole[:place] + changed + whole[place + 1 :])
    (folder / "folder").mkdir()
    return folder


@pytest.fixture
def run(folder, tmp_path, monkeypatch, command):
    """Run a command line in the folder, in this process; OUT is a new folder for what it writes."""
    monkeypatch.chdir(folder)
    return lambda *words: command(*(str(word).replace("OUT", str(tmp_path)) for word in words))


def process(*arguments, **options):
    """Start the real entry point in a process of its own."""
    command = [sys.executable, "-m", "ltls", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, **{"stdout": pipe, "stderr": pipe, "text": True, **options})


def answers(text):
    """Read the lines of predict: a list of (label, score) for every row."""
    rows = [[word.rsplit(":", 1) for word in line.split("\t")] for line in text.splitlines()]
    return [[(label, float(score)) for label, score in row] for row in rows]


# The commands


def test_from_training_to_evaluation(tmp_path):
    def output(*arguments):
        running = process(*arguments, cwd=tmp_path)
        out, _ = running.communicate()
        assert running.returncode == 0
        return out

    (tmp_path / "data.txt").write_text(SINGLE)
    train = ("train", "data.txt", "-o", "model.ltls", "--epochs", 50, "--random-state", 0)
    assert "model.ltls" in output(*train)
    report = json.loads(output("evaluate", "model.ltls", "data.txt", "--json"))
    assert report["metrics"][0]["precision"] == 1
    best = [row[0][0] for row in answers(output("predict", "model.ltls", "data.txt"))]
    assert best == ["1", "2", "3", "1", "2"]
    assert "softmax" in output("info", "model.ltls")


@pytest.mark.parametrize("arguments", [["--help"], []], ids=["--help", "no arguments"])
def test_help(run, arguments):
    result = run(*arguments)
    assert (result.code, result.err) == (0, "")
    assert all(name in result.out for name in ("train", "predict", "evaluate", "info", "Examples:"))


def test_the_list_of_commands_has_the_first_line_of_their_help():
    for command in app.COMMANDS:
        first = command.load().help.splitlines()[0]
        assert first == command.help


@pytest.mark.parametrize("name", ["", *(command.name for command in app.COMMANDS)])
def test_help_imports_nothing_slow(name):
    code = (
        "import sys; from ltls.cli import main; sys.argv = sys.argv[1:]\n"
        "try: main()\n"
        "finally: print(sorted({'numpy', 'scipy', 'sklearn'} & {*sys.modules}), file=sys.stderr)"
    )
    words = [sys.executable, "-c", code, "ltls", *filter(None, [name]), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: ltls")
    assert done.stderr == "[]\n"


def test_version(run):
    assert astuple(run("--version")) == (0, f"ltls {ltls.__version__}\n", "")


def test_train_shows_progress_and_a_summary(run):
    result = run("train", "single.txt", "-o", "OUT/model.ltls", "--epochs", 3)
    assert result.code == 0
    assert "epoch 3/3" in result.err
    plan = "trellises: fewer than 1,000 rows or 64 labels; "
    assert result.err.index(plan) < result.err.index("epoch 1/3")
    facts = dict(line.strip("│").split("│") for line in result.out.splitlines()[1:-1])
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    assert facts.pop("model").endswith("kB)")
    assert float(facts.pop("seconds")) >= 0
    assert "Trellises(average=False, density=1.0, epochs=3, " in facts.pop("plan")
    assert facts == {
        "rows": "5",
        "features": "3",
        "labels": "3",
        "multilabel": "False",
        "parts": "trellises",
        "epochs": "3",
    }


@pytest.mark.parametrize("name", ["single", "several"])
def test_predict_writes_what_the_model_says(run, tmp_path, name):
    printed = run("predict", f"{name}.ltls", f"{name}.txt", "-k", 2)
    assert (printed.code, printed.err) == (0, "")
    written = run("predict", f"{name}.ltls", f"{name}.txt", "-k", 2, "-o", "OUT/answers")
    assert astuple(written) == (0, "", "")
    assert (tmp_path / "answers").read_text() == printed.out
    assert os.listdir(tmp_path) == ["answers"]
    labels, scores = ltls.load(f"{name}.ltls").predict_topk(readers.read(f"{name}.txt").X, 2)
    rows = answers(printed.out)
    assert [[int(label) for label, _ in row] for row in rows] == labels.tolist()
    np.testing.assert_allclose([[score for _, score in row] for row in rows], scores, rtol=1e-5)


def test_predict_gives_no_more_labels_than_there_are(run):
    assert {len(row) for row in answers(run("predict", "single.ltls", "single.txt").out)} == {3}


def test_predict_in_batches(run, monkeypatch):
    whole = run("predict", "single.ltls", "single.txt").out
    monkeypatch.setattr("ltls.cli.predict.BATCH_SIZE", 2)
    assert run("predict", "single.ltls", "single.txt").out == whole


def test_predict_counts_features_from_the_given_base(run, tmp_path):
    (tmp_path / "rows.txt").write_text("1 1:1\n")
    (tmp_path / "shifted.txt").write_text("1 2:1\n")
    shifted = run("predict", "single.ltls", "OUT/shifted.txt").out
    assert run("predict", "single.ltls", "OUT/rows.txt", "--zero-based").out == shifted
    assert run("predict", "single.ltls", "OUT/rows.txt").out != shifted


def test_predict_keeps_lines_whole_whatever_the_labels(run, tmp_path):
    model = LTLSClassifier(random_state=0)
    model.fit([[1, 0], [0, 1]], ["a b:c", "tab\tline\n"]).save(tmp_path / "model.ltls")
    (tmp_path / "rows.txt").write_text("0 1:1\n0 2:1\n")
    rows = answers(run("predict", "OUT/model.ltls", "OUT/rows.txt", "-k", 1).out)
    assert [row[0][0] for row in rows] == ["a b:c", r"tab\tline\n"]


def test_evaluate_counts_unseen_labels_as_missed(run, tmp_path):
    (tmp_path / "rows.txt").write_text("1 1:2\n2,9 2:2\n")
    result = run("evaluate", "single.ltls", "OUT/rows.txt", "-k", "5,1", "--json")
    report = json.loads(result.out)
    assert report.pop("microseconds_per_row") > 0
    groups = {group.pop("group"): group for group in report.pop("by_frequency")}
    assert groups["unseen"]["found"] == {"1": 0.0, "5": 0.0}
    first, fifth = report.pop("metrics")
    assert first.pop("psp") < 1
    del fifth["psp"]
    assert report == {"rows": 2, "labels": 3, "unknown_labels": 1}
    labels = {"macro_f1": 2 / 3, "coverage": 2 / 3}
    rows = {"precision": 1.0, "recall": 0.75, "ndcg": 1.0}
    assert first == pytest.approx({"k": 1, **rows, **labels})
    assert 0 < fifth.pop("macro_f1") <= 2 / 3
    ndcg = (1 + 1 / (1 + 1 / np.log2(3))) / 2
    rows = {"precision": 0.2, "recall": 0.75, "ndcg": ndcg}
    assert fifth == pytest.approx({"k": 5, **rows, "coverage": 2 / 3})


def test_evaluate_finds_labels_by_how_they_are_written(run, tmp_path):
    """Labels of a table are texts, those of a model from Python may be numbers."""
    LTLSClassifier(random_state=0).fit(np.eye(2), [3, 7]).save(tmp_path / "model.ltls")
    words = ("evaluate", "OUT/model.ltls", "OUT/rows.csv", "--features", "a,b", "--label", "c")
    (tmp_path / "rows.csv").write_text("a,b,c\n1,0,3\n0,1,7\n0,1,8\n")
    report = json.loads(run(*words, "-k", 1, "--json").out)
    assert (report["unknown_labels"], report["metrics"][0]["precision"]) == (1, 2 / 3)
    (tmp_path / "rows.csv").write_text("a,b,c\n1,0,x\n")
    result = run(*words, "-k", 1)
    assert (result.code, "the model knows none of the labels of" in result.err) == (0, True)


def test_evaluate_prints_tables(run):
    result = run("evaluate", "several.ltls", "several.txt", "-k", "1,2")
    assert (result.code, result.err) == (0, "")
    heads = ("P@k", "R@k", "nDCG@k", "PSP@k", "macro-F1@k", "coverage@k")
    assert all(word in result.out for word in (*heads, "microseconds per row"))


def test_info(run):
    facts = json.loads(run("info", "single.ltls", "--json").out)
    described = model_file.describe("single.ltls")
    assert facts.keys() == described.keys()
    assert facts["parameters"]["trellises"]["epochs"] == 50
    assert (facts["labels"], facts["loss"]) == (described["labels"], described["loss"])
    table = run("info", "single.ltls").out
    assert all(word in table for word in ("edges", "softmax", "'epochs': 50"))


def test_info_checks_the_weights_unless_told_not_to(run):
    assert run("info", "changed.ltls").code == 2
    assert run("info", "changed.ltls", "--no-verify").code == 0


@pytest.mark.parametrize("name", ["single.txt", "several.txt"])
def test_train_on_a_stream(run, tmp_path, name):
    words = ("--set", "trellises.shuffle=false", "--random-state", 0, "--epochs", 3)
    for way in ("--stream", "--no-stream"):
        assert run("train", name, "-o", f"OUT/model{way}", way, *words).code == 0
    streamed, read = (ltls.load(tmp_path / f"model{way}") for way in ("--stream", "--no-stream"))
    assert np.array_equal(streamed.coef_, read.coef_)
    assert streamed.classes_.tolist() == read.classes_.tolist()
    assert streamed.fitted_.provenance.n_rows == (5 if name == "single.txt" else 4)
    assert streamed.fitted_.provenance.zero_based is read.fitted_.provenance.zero_based


@pytest.mark.parametrize(("more", "expected"), [(None, "read"), (0, "read"), (-1, "Stream")])
@pytest.mark.parametrize(("compress", "times"), [(bytes, 2), (gzip.compress, 12)])
@pytest.mark.parametrize("n_files", [1, 2])
def test_train_streams_what_is_large_for_the_memory(
    run, tmp_path, monkeypatch, more, expected, compress, times, n_files
):
    content = compress(SINGLE.encode())
    for number in range(n_files):
        (tmp_path / f"rows{number}").write_bytes(content)
    free = None if more is None else times * n_files * len(content) + more
    monkeypatch.setattr("ltls.cli.rows.available_memory", lambda: free)
    used = []
    for way in ("read", "Stream"):
        monkeypatch.setattr(f"ltls.cli.rows.{way}", _noting(used, getattr(readers, way)))
    assert run("train", "OUT/rows*", "-o", "OUT/model.ltls", "-q").code == 0
    assert used == [expected]


def _noting(used, function):
    def noting(*arguments, **options):
        used.append(function.__name__)
        return function(*arguments, **options)

    return noting


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_train_and_evaluate_on_standard_input(run, monkeypatch, way):
    def from_input(*words):
        rows = io.BufferedReader(io.BytesIO(gzip.compress(SINGLE.encode())))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(rows))
        return run(*words)

    from_input("train", "-", "-o", "OUT/m", "--epochs", 50, "--random-state", 0, way)
    report = json.loads(from_input("evaluate", "OUT/m", "-", "--json").out)
    assert report["metrics"][0]["precision"] == 1


# Failures


def test_failures_are_one_line_and_exit_code_2(folder, monkeypatch, assert_mistakes):
    monkeypatch.chdir(folder)
    assert_mistakes("failures.txt")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "OUT/old: No space left on device; free some space, or write elsewhere",
        ),
        (MemoryError("Unable to allocate 9 TiB"), "not enough memory: Unable to allocate 9 TiB"),
    ],
    ids=["disk", "memory"],
)
def test_what_goes_wrong_later_leaves_the_old_file(run, tmp_path, monkeypatch, error, message):
    def fail(*_, **__):
        raise error

    (tmp_path / "old").write_text("old")
    monkeypatch.setattr(LTLSClassifier, "predict_topk", fail)
    result = run("predict", "single.ltls", "single.txt", "-o", "OUT/old")
    assert astuple(result) == (2, "", f"ltls: {message}\n".replace("OUT", str(tmp_path)))
    assert os.listdir(tmp_path) == ["old"]
    assert (tmp_path / "old").read_text() == "old"


def test_faults_of_our_own_are_not_hidden(run, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("ltls.storage.model_file.describe", fail)
    with pytest.raises(ZeroDivisionError):
        run("info", "single.ltls")


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
@pytest.mark.parametrize("n_rows", [1, 20_000])
def test_a_reader_that_goes_away_is_no_failure(folder, tmp_path, n_rows):
    (tmp_path / "rows.txt").write_text("1 1:1 2:1\n" * n_rows)
    running = process("predict", "single.ltls", tmp_path / "rows.txt", cwd=folder)
    running.stdout.close()
    assert running.stderr.read() == ""
    running.stderr.close()
    assert running.wait() == 1


def test_features_count_from_where_they_did_in_training(run, tmp_path):
    train, test = tmp_path / "train.svm", tmp_path / "test.svm"
    rows = [f"{label} {label}:1" for label in range(4)] * 10
    train.write_text("\n".join(rows) + "\n")
    test.write_text("\n".join(row for row in rows if not row.startswith("0")) + "\n")
    run("train", train, "-o", tmp_path / "model.ltls", "--random-state", "0")
    report = run("evaluate", tmp_path / "model.ltls", test, "-k", "1", "--json")
    assert json.loads(report.out)["metrics"][0]["precision"] == 1.0
