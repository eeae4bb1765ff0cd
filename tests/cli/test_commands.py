"""The commands on tables and texts, from training to answers, files and reports."""

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

import ltls
from ltls import LTLSClassifier, TextClassifier

ROWS = [
    (f"{opening} {word} {closing}", label)
    for label, words in {
        "card": ["card", "cards", "visa"],
        "fee": ["fee", "fees", "charge"],
        "login": ["password", "login", "email"],
    }.items()
    for word in words
    for opening in ("my", "the", "about, a")
    for closing in ("please", "is gone")
]
TRAIN = ("--text", "text", "--label", "kind", "-q", "--random-state", 0)


def csv_of(rows, delimiter=","):
    lines = [("text", "kind"), *rows]
    return "".join(delimiter.join(f'"{cell}"' for cell in line) + "\n" for line in lines)


def json_lines(rows, several=False):
    records = [{"kind": [kind] if several else kind, "text": text} for text, kind in rows]
    return "".join(json.dumps(record) + "\n" for record in records)


def fasttext(rows):
    return "".join(f"__label__{kind} {text}\n" for text, kind in rows)


FORMS = {
    "csv": csv_of(ROWS),
    "tsv": csv_of(ROWS, "\t"),
    "jsonl": json_lines(ROWS),
    "fasttext": fasttext(ROWS),
}


@pytest.fixture
def trained(folder, command, model_file):
    path = folder / "text.ltls"
    if not model_file:
        assert command("train", "rows.csv", *TRAIN, "-o", "text.ltls").code == 0
        model_file.append(path.read_bytes())
    path.write_bytes(model_file[0])
    return path


def answers(out):
    return [line.split("\t")[0].rpartition(":")[0] for line in out.splitlines()]


KINDS = [kind for _, kind in ROWS]


# Training, predicting and evaluating


@pytest.mark.parametrize("form", FORMS)
def test_every_format_trains_the_same_model(folder, command, form):
    columns = () if form == "fasttext" else TRAIN[:4]
    (folder / "data").write_text(FORMS[form])
    result = command("train", "data", "-o", "text.ltls", *columns, *TRAIN[4:])
    assert (result.code, result.out, result.err) == (0, "", "")
    model = ltls.load("text.ltls")
    texts = [text for text, _ in ROWS]
    whole = TextClassifier(random_state=0).fit(texts, KINDS)
    assert type(model) is TextClassifier
    np.testing.assert_array_equal(model.coef_, whole.coef_)
    assert model.classes_.tolist() == ["card", "fee", "login"]


@pytest.mark.parametrize("form", FORMS)
def test_every_format_is_answered_and_evaluated(folder, trained, command, form):
    result = command("predict", "text.ltls", f"rows.{form}", "-k", 1)
    assert (result.code, result.err) == (0, "")
    assert answers(result.out) == KINDS
    report = json.loads(command("evaluate", "text.ltls", f"rows.{form}", "--json").out)
    assert report["metrics"][0]["precision"] == 1


def test_parquet(folder, command):
    pytest.importorskip("pyarrow", reason="pyarrow is missing; make test-all installs it")
    columns = TRAIN[:4]
    assert command("convert", "rows.csv", "rows.parquet", *columns).code == 0
    assert command("train", "rows.parquet", *TRAIN, "-o", "text.ltls").code == 0
    result = command("predict", "text.ltls", "rows.parquet", "-k", 1)
    assert answers(result.out) == KINDS
    assert command("convert", "rows.parquet", "back.csv", *columns).code == 0
    assert command("convert", "rows.csv", "there.csv", *columns).code == 0
    assert (folder / "back.csv").read_text() == (folder / "there.csv").read_text()


def piped(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


@pytest.mark.parametrize("words", [("-", "--text"), ("--text", "-"), ("-", "--format", "text")])
def test_lines_of_standard_input(trained, command, monkeypatch, words):
    piped(monkeypatch, "where is my card\nmy login, please\n")
    result = command("predict", "text.ltls", *words, "-k", 1)
    assert answers(result.out) == ["card", "login"]


def test_plain_lines_need_the_text_option(trained, folder, command):
    (folder / "lines.txt").write_text("where is my card\n")
    result = command("predict", "text.ltls", "lines.txt")
    assert result.err == (
        "ltls: lines.txt: there is no column 'text', only 'where is my card'; "
        "if every line is a text, give --text without a column\n"
    )


def test_a_table_from_standard_input(folder, command, monkeypatch):
    piped(monkeypatch, FORMS["jsonl"])
    assert command("train", "-", *TRAIN, "-o", "text.ltls").code == 0
    piped(monkeypatch, "text\nthe fees\n")
    assert answers(command("predict", "text.ltls", "-", "-k", 1).out) == ["fee"]


def test_a_compressed_stream_from_standard_input(folder, command, monkeypatch):
    many_rows(folder, 1000)
    packed = io.BytesIO(gzip.compress((folder / "many.txt").read_bytes()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(packed))
    words = ("-q", "--stream", "--random-state", 0, "--epochs", 1)
    assert command("train", "-", "-o", "piped.ltls", *words).code == 0
    assert command("train", "many.txt", "-o", "read.ltls", *words).code == 0
    assert (folder / "piped.ltls").read_bytes() == (folder / "read.ltls").read_bytes()


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="terminals of POSIX")
def test_answers_come_while_lines_come(trained):
    """Who pipes one line after another need not end the input to be answered."""
    words = [sys.executable, "-m", "ltls", "predict", "text.ltls", "-", "--text", "-k", "1"]
    leader, follower = os.openpty()
    with subprocess.Popen(words, stdin=follower, stdout=subprocess.PIPE, text=True) as running:
        os.close(follower)
        os.write(leader, b"where is my card\n")
        assert running.stdout.readline().startswith("card:")
        running.kill()
        os.close(leader)


def test_probabilities(trained, command):
    out = command("predict", "text.ltls", "rows.csv", "--proba", "--json", "-k", 3).out
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == len(ROWS)
    for row in rows:
        assert row["scores"] == sorted(row["scores"], reverse=True)
        assert sum(row["scores"]) == pytest.approx(1, abs=1e-4)
    expected = ltls.load(trained).predict_proba([text for text, _ in ROWS]).max(axis=1)
    np.testing.assert_allclose([row["scores"][0] for row in rows], expected, rtol=1e-4)


def test_labels_of_a_file_are_the_only_ones_allowed(folder, trained, command):
    (folder / "some.txt").write_text("login\nfee\n\n")
    out = command(
        "predict", "text.ltls", "rows.csv", "--among", "some.txt", "--proba", "--json"
    ).out
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == len(ROWS)
    for row in rows:
        assert sorted(row["labels"]) == ["fee", "login"]
        assert sum(row["scores"]) == pytest.approx(1, abs=1e-4)
    (folder / "some.txt").write_text("card\nvisa\n")
    result = command("predict", "text.ltls", "rows.csv", "--among", "some.txt")
    assert result.code == 2
    assert result.err == "ltls: some.txt: the model has no label 'visa' (--among)\n"
    (folder / "some.txt").write_text("\n")
    result = command("predict", "text.ltls", "rows.csv", "--among", "some.txt")
    assert result.err == "ltls: some.txt: the file has no labels (--among)\n"
    (folder / "some.txt").write_bytes(b"\xef\xbb\xbflogin\r\nfee\r\n")  # as Windows writes it
    result = command("predict", "text.ltls", "rows.csv", "--among", "some.txt")
    assert result.code == 0, result.err
    (folder / "some.txt").write_bytes("café".encode("latin-1"))
    result = command("predict", "text.ltls", "rows.csv", "--among", "some.txt")
    assert result.err.startswith("ltls: some.txt: not UTF-8 (--among)")
    (folder / "some.txt").write_text("login\n")
    for arguments, text in [
        (["rows.csv", "--among", "some.txt", "-o", "some.txt"], "cannot also be the output"),
        (["-", "--among", "-"], "cannot both be read from standard input"),
    ]:
        result = command("predict", "text.ltls", *arguments)
        assert result.code == 2
        assert text in result.err
    assert (folder / "some.txt").read_text() == "login\n"


def test_odd_labels_are_found_as_they_are_written(folder, command):
    """A file of all labels, copied from what `predict` prints, allows all of them."""
    labels = ["tab\there", "new\nline", "cr\rhere", "back\\tslash", "u\u2028x", "f\x0cx", "a  b"]
    lines = [json.dumps({"text": f"word{i} thing{i}", "label": label})
             for i, label in enumerate(labels)]  # fmt: skip
    (folder / "odd.jsonl").write_text("\n".join(lines * 5) + "\n")
    options = ["--text", "text", "--label", "label"]
    assert command("train", "odd.jsonl", *options, "-o", "odd.ltls", "-q").code == 0
    (folder / "row.jsonl").write_text(lines[0] + "\n")
    everything = command("predict", "odd.ltls", "row.jsonl", "-k", 9, "-q").out
    written = [pair.rpartition(":")[0] for pair in everything.removesuffix("\n").split("\t")]
    assert len(written) == len(labels)
    (folder / "all.txt").write_text("\n".join(written) + "\n")
    again = command("predict", "odd.ltls", "row.jsonl", "-k", 9, "-q", "--among", "all.txt")
    assert again.code == 0, again.err
    found = [pair.rpartition(":")[0] for pair in again.out.removesuffix("\n").split("\t")]
    assert sorted(found) == sorted(written)


def test_several_labels(folder, command):
    several = [(text, f"{kind};all") for text, kind in ROWS]
    (folder / "several.csv").write_text(csv_of(several))
    result = command("train", "several.csv", *TRAIN, "--separator", ";", "-o", "m.ltls")
    assert result.code == 0
    model = ltls.load("m.ltls")
    assert model.multilabel_
    assert model.classes_.tolist() == ["all", "card", "fee", "login"]
    report = json.loads(command("evaluate", "m.ltls", "several.csv", "-k", "2", "--json").out)
    assert report["metrics"][0]["precision"] == 1
    out = command("predict", "m.ltls", "several.csv", "--threshold", "--json", "-k", 4).out
    said = [sorted(json.loads(line)["labels"]) for line in out.splitlines()]
    assert said == [sorted([kind, "all"]) for kind in KINDS]


@pytest.mark.parametrize("text", [json_lines(ROWS, several=True), fasttext(ROWS)])
def test_lists_of_one_label_are_one_label(folder, command, text):
    (folder / "data").write_text(text)
    columns = TRAIN[:4] if text.startswith("{") else ()
    command("train", "data", "-o", "m.ltls", "-q", *columns)
    assert not ltls.load("m.ltls").multilabel_


def test_columns_of_numbers(folder, command):
    lines = [f"{i % 3 == 0:d},{i % 3 == 1:d},{i % 3 == 2:d},{'abc'[i % 3]}" for i in range(30)]
    (folder / "numbers.csv").write_text("\n".join(["x,y,z,kind", *lines]) + "\n")
    words = ("--features", "x,y,z", "--label", "kind", "-q", "--epochs", 20)
    assert command("train", "numbers.csv", "-o", "m.ltls", *words).code == 0
    model = ltls.load("m.ltls")
    assert type(model) is LTLSClassifier
    (folder / "other.csv").write_text("z,more,y,x\n1,a,0,0\n0,b,0,1\n")
    result = command("predict", "m.ltls", "other.csv", "-k", 1)
    assert (answers(result.out), result.err) == (["c", "a"], "")
    assert "features=['x', 'y', 'z']" in command("info", "m.ltls").out


def test_a_column_of_vectors(folder, command):
    arrow = pytest.importorskip("pyarrow", reason="needs pyarrow: run make test-all")
    parquet = pytest.importorskip("pyarrow.parquet")
    X = np.eye(5).repeat(20, axis=0).astype(np.float16)
    vectors = arrow.FixedSizeListArray.from_arrays(arrow.array(X.ravel()), 5)
    kinds = [f"kind {i // 20}" for i in range(100)]
    parquet.write_table(arrow.table({"vector": vectors, "kind": kinds}), "v.parquet")
    words = ("--vectors", "vector", "--label", "kind", "-q")
    assert command("train", "v.parquet", "-o", "m.ltls", *words).code == 0
    assert answers(command("predict", "m.ltls", "v.parquet", "-k", 1).out) == kinds
    found = json.loads(command("evaluate", "m.ltls", "v.parquet", "-q", "--json").out)
    assert found["metrics"][0]["precision"] == 1
    shown = command("explain", "m.ltls", "v.parquet", "--row", 50, "-k", 1, "--json")
    assert json.loads(shown.out)[0]["label"] == "kind 2"


def test_train_prints_json(folder, command):
    words = ("train", "rows.csv", *TRAIN[:4], "-o", "m.ltls", "--json")
    result = command(*words)
    facts = json.loads(result.out)
    assert (facts["rows"], facts["labels"], facts["multilabel"]) == (len(ROWS), 3, False)
    assert facts["bytes"] == os.path.getsize(facts["model"])


def test_verbose_tells_what_is_read(folder, command):
    result = command("train", "rows.tsv", "-v", *TRAIN[:4], "-o", "m.ltls")
    assert "ltls: rows.tsv: format tsv\n" in result.err
    assert "\nltls: LTLSClassifier(features=Text())\n" in result.err
    assert command("convert", "rows.fasttext", "o.csv").err == ""
    result = command("convert", "rows.fasttext", "o.csv", "-v")
    assert "ltls: rows.fasttext: format fasttext" in result.err


def test_bad_rows_are_counted_and_reported(folder, command):
    (folder / "bad.csv").write_text(FORMS["csv"] + "one field\n" * 3)
    line = len(ROWS) + 2
    result = command("train", "bad.csv", *TRAIN, "-o", "m.ltls")
    assert result.err.startswith(f"ltls: bad.csv, line {line}: 1 fields, but the header has 2; ")
    result = command("train", "bad.csv", *TRAIN[:4], "-o", "m.ltls", "--skip-bad-rows", "--json")
    assert f"3 bad rows were skipped; the first is bad.csv, line {line}: 1 fields" in result.err
    assert json.loads(result.out)["bad_rows"] == 3
    report = command("evaluate", "m.ltls", "bad.csv", "--skip-bad-rows", "--json")
    assert json.loads(report.out)["bad_rows"] == 3
    result = command("predict", "m.ltls", "bad.csv", "--skip-bad-rows")
    assert result.out.splitlines()[len(ROWS) :] == ["", "", ""]  # a line for each
    assert "3 bad rows were skipped" in result.err


def test_what_cannot_be_evaluated_or_answered_is_said(folder, command):
    command("train", "rows.csv", *TRAIN, "-o", "m.ltls")
    (folder / "plain").write_text("my card\n")
    result = command("evaluate", "m.ltls", "plain", "--text")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("ltls: plain: text files have no labels to compare with; give a")
    (folder / "nothing").write_text("")
    assert command("predict", "m.ltls", "nothing").err == "ltls: nothing: the file has no rows\n"
    folder_there = "No such file or directory; create the folder no first"
    assert (
        command("predict", "m.ltls", "plain", "-o", "no/m").err == f"ltls: no/m: {folder_there}\n"
    )


@pytest.mark.parametrize(
    ("good", "rows"),
    [
        ("{} 1:1 2:0.5\n", ["x 1:1", "1 1:x", "1 3:1 3:1", "1 -1:2"]),
        ("{},2 1:1\n", ["7 1:1", "1 4:1", "1 one", "2 0:nan"]),
    ],
    ids=["svmlight", "xmc"],
)
def test_bad_rows_of_features_are_counted_and_reported(folder, command, good, rows):
    xmc = "," in good
    lines = [good.format(number % 2) for number in range(9_000)]
    for place, bad in zip((5000, 4096, 4095, 0), rows, strict=True):
        lines.insert(place, bad + "\n")
    header = f"{len(lines)} 4 3\n" if xmc else ""
    (folder / "bad.txt").write_text(header + "".join(lines))
    line = 1 + bool(header)
    result = command("train", "bad.txt", "-q", "-o", "m.ltls", "--epochs", 1)
    assert result.err.startswith(f"ltls: bad.txt, line {line}: ")
    assert result.err.endswith("; fix it, or skip such rows with --skip-bad-rows\n")
    words = ("train", "bad.txt", "--json", "-o", "m.ltls", "--epochs", 1, "--skip-bad-rows", "-q")
    result = command(*words)
    assert json.loads(result.out)["rows"] == 9_000
    assert json.loads(result.out)["bad_rows"] == 4
    assert f"4 bad rows were skipped; the first is bad.txt, line {line}: " in result.err


# Evaluating


def test_evaluate_by_frequency(folder, command):
    frequent = [(f"w{label} w{label}", label) for label in "abc" for _ in range(10)]
    rare = [(f"w{i}", f"r{i}") for i in range(10)]
    (folder / "train.csv").write_text(csv_of(frequent + rare))
    (folder / "test.csv").write_text(csv_of([*frequent[:1], ("unheard of", "new")]))
    command("train", "train.csv", *TRAIN, "-o", "m.ltls", "--epochs", 10)
    report = json.loads(command("evaluate", "m.ltls", "test.csv", "-k", "1,2", "--json").out)
    groups = {group.pop("group"): group for group in report["by_frequency"]}
    assert [group["labels"] for group in groups.values()] == [2, 1, 10, 1]
    assert list(groups) == ["head", "middle", "tail", "unseen"]
    assert groups["head"]["found"] == {"1": 1.0, "2": 1.0}
    assert groups["tail"]["found"] == {"1": None, "2": None}
    assert groups["unseen"]["found"] == {"1": 0.0, "2": 0.0}
    table = command("evaluate", "m.ltls", "test.csv", "-k", "1,2").out
    assert all(word in table for word in ("PSP@k", "head", "tail", "██", "10–10", "1–1"))


@pytest.mark.parametrize("name", ["report.html", "report.pdf"])
def test_report(folder, trained, command, name):
    pytest.importorskip("matplotlib")
    (folder / "test.csv").write_text(csv_of([*ROWS, ("my visa", "fee <b>$x$</b>")]))
    result = command("evaluate", "text.ltls", "test.csv", "--report", name)
    assert (result.code, result.err) == (0, "")
    content = (folder / name).read_bytes()
    if name.endswith("pdf"):
        assert content.startswith(b"%PDF")
        return
    text = content.decode()
    titles = (
        "Calibration",
        "Recall by label frequency",
        "Most frequent confusions",
        "nDCG@k",
        "coverage@k",
        "PSP@k, propensity-scored precision",
        "<h2>Wrong predictions</h2>",
        "<td>my visa</td>",
        "<th>recall</th>",
        "text.ltls",
    )
    assert all(title in text for title in titles)
    assert "<b>" not in text
    assert not re.search("http(?!://www.w3.org/|://matplotlib)", text.partition("<body>")[2])


def test_report_needs_matplotlib(folder, trained, command, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = command("evaluate", "text.ltls", "rows.csv", "--report", "r.html")
    assert result.err == "ltls: reports need matplotlib: pip install 'ltls[plot]'\n"


# Converting


def test_tables_come_back_from_every_format(folder, command):
    columns = TRAIN[:4]
    command("convert", "rows.csv", "a.jsonl.gz", *columns)
    command("convert", "a.jsonl.gz", "b.tsv.xz", *columns)
    command("convert", "b.tsv.xz", "c", "--to", "fasttext", *columns)
    result = command("convert", "c", "-", "--to", "csv")
    assert result.out.splitlines()[0] == "text,label"
    command("convert", "rows.csv", "straight.csv", *columns)
    assert result.out.splitlines()[1:] == (folder / "straight.csv").read_text().splitlines()[1:]


def test_features_go_between_svmlight_and_xmc(folder, command):
    (folder / "rows.txt").write_text("3 4 5\n0,2 0:1 3:0.5\n\n4 1:2\n")
    (folder / "one.txt").write_text("3 1:1 4:0.5\n7 2:2\n")
    assert command("convert", "one.txt", "two.xmc").code == 0
    assert (folder / "two.xmc").read_text() == "2 4 8\n3 0:1 3:0.5\n7 1:2\n"
    assert command("convert", "two.xmc", "three.svm").code == 0
    assert (folder / "three.svm").read_text() == (folder / "one.txt").read_text()
    assert command("convert", "rows.txt", "same", "--to", "xmc").code == 0
    lines = (folder / "same").read_text().splitlines()
    assert [line.strip() for line in lines] == (folder / "rows.txt").read_text().splitlines()


def test_models_get_smaller_files(folder, trained, command):
    whole = trained.stat().st_size
    assert command("convert", "text.ltls", "same.ltls").code == 0
    assert (folder / "same.ltls").read_bytes() == trained.read_bytes()
    result = command("convert", "text.ltls", "small.ltls", "--size-budget", whole // 2, "-v")
    assert re.fullmatch(r"ltls: [\d,]+ bytes became [\d,]+\n", result.err)
    result = command("convert", "text.ltls", "tiny.ltls", "--size-budget", 100)
    assert (result.code, "train again with fewer n-grams" in result.err) == (2, True)
    facts = json.loads(command("info", "small.ltls", "--json").out)
    assert facts["bytes"] <= whole // 2
    assert facts["columns"]["text"] == "text"
    assert answers(command("predict", "small.ltls", "rows.csv", "-k", 1).out) == KINDS
    result = command("convert", "rows.csv", "rows.jsonl", "--size-budget", "1MB")
    assert "--size-budget is for model files, but rows.csv is a data file" in result.err
    result = command("convert", "text.ltls", "rows.csv", "--to", "csv")
    assert "--to is for data files, but text.ltls is a model file" in result.err


def test_info_tells_of_texts(trained, command):
    table = command("info", "text.ltls").out
    assert all(word in table for word in ("input", "text=text, label=kind", "rows in memory"))


def many_rows(folder, n_rows):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 500, n_rows)
    lines = [f"{label} {label + 1}:1 {501 + i % 97}:0.5" for i, label in enumerate(labels)]
    (folder / "many.txt").write_text("\n".join(lines) + "\n")


# A full disk: files may have so many bytes, and no more


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
@pytest.mark.parametrize(
    "words",
    [
        ("train", "rows.csv", *TRAIN[:4], "-q", "-o", "out"),
        ("predict", "text.ltls", "rows.csv", "-o", "out"),
        ("convert", "text.ltls", "out"),
    ],
    ids=lambda words: words[0],
)
def test_a_full_disk_is_one_line_and_leaves_nothing(trained, folder, words):
    before = sorted(os.listdir())

    import resource

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    command = [sys.executable, "-m", "ltls", *map(str, words)]
    failed = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)
    assert (failed.returncode, failed.stdout) == (2, "")
    error = failed.stderr.splitlines()[-1]  # of a checkpoint, there is a warning before
    assert error == "ltls: out: File too large; free some space, or write elsewhere"
    assert sorted(os.listdir()) == before


def test_labels_that_are_joined_in_a_cell_are_noticed(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    joined = [(text, f"{label};{'please' in text}") for text, label in ROWS]
    names = [(text, f"{label}; {number}") for number, (text, label) in enumerate(ROWS)]
    for rows, noticed in ((joined, True), (names, False), (ROWS, False)):
        (tmp_path / "rows.csv").write_text(csv_of(rows))
        result = command("train", "rows.csv", *TRAIN, "-o", "m.ltls")
        assert result.code == 0
        assert ("into 5 classes, several per row, use --separator ';'" in result.err) == noticed
    result = command("train", "rows.csv", *TRAIN, "--separator", ";", "-o", "m.ltls")
    assert (result.code, result.err) == (0, "")


def test_joined_labels_are_noticed_where_most_rows_have_a_label_of_their_own(tmp_path, command):
    tags = [";".join(f"tag {n * k % 97}" for k in range(1, 2 + n % 4)) for n in range(60)]
    assert len({tag for cell in tags for tag in cell.split(";")}) > len(set(tags))
    (tmp_path / "rows.csv").write_text(csv_of([(f"word{n}", tag) for n, tag in enumerate(tags)]))
    for stream in ("--no-stream", "--stream"):
        result = command("train", tmp_path / "rows.csv", *TRAIN, stream, "-o", tmp_path / "m.ltls")
        assert (result.code, "use --separator ';'" in result.err) == (0, True)
    with pytest.warns(UserWarning, match=r"45 of 60 rows have ';' in their label, such as 'tag"):
        ltls.TextClassifier().fit([f"word{n}" for n in range(60)], tags)


def test_rows_without_a_text_are_counted(tmp_path, command):
    rows = [("", "card"), (" ", "fee"), *ROWS]
    (tmp_path / "rows.csv").write_text(csv_of(rows))
    result = command("train", tmp_path / "rows.csv", *TRAIN, "-q", "-o", tmp_path / "m.ltls")
    assert result.code == 0
    assert f"2 of {len(rows):,} rows of {tmp_path / 'rows.csv'} have no text" in result.err


def test_rows_without_a_label_are_counted(tmp_path, command):
    rows = [("unknown", ""), ("also unknown", ";"), *ROWS]
    (tmp_path / "rows.csv").write_text(csv_of(rows))
    options = (*TRAIN, "--separator", ";", "-q", "-o", tmp_path / "m.ltls")
    result = command("train", tmp_path / "rows.csv", *options)
    assert result.code == 0
    assert f"2 of {len(rows):,} rows of {tmp_path / 'rows.csv'} have no label" in result.err


MISTAKES = {
    "train no.csv -o m": "no.csv: No such file",
    "info no.ltls": "no.ltls: No such file",
    "evaluate no no": "no: No such file",
    "train rows.csv --text txt --label kind -o m": "no column 'txt', only 'text', 'kind'",
    "train rows.csv --number=a --label kind -o m": "no column 'a', only 'text', 'kind'",
    "train rows.csv --features text,b --label kind -o m": "no column 'b'",
    "train rows.jsonl --text text --label king -o m": "no column 'king', only 'text', 'kind'; did",
    "train rows.csv -o m": "with --text, --features, --number or --category and --label; it has",
    "train rows.csv --category text -o m": "name its columns with --label; it has 'text', 'kind'",
    "train rows.csv --encoding utf-9 -o m": "--encoding must be an encoding such as latin-1",
    "train latin.csv --text text --label kind -o m": "latin.csv, line 3: not UTF-8",
    "train empty.jsonl --text text --label kind -o m": "line 2: its label 'kind' is empty",
    "train empty.jsonl --text text --label kind -o m --skip-bad-rows": None,
    "train labels.txt -o m": "labels.txt, line 2: it has no __label__",
    "train rows.csv rows.jsonl --text text --label kind -o m": "must have the same format",
    "train rows.csv --text a --label b -o m": "only 'text', 'kind'; the first line must name the",
    "train rows.csv --text text,kind --label kind -o m": "repeat the option for every column",
    "train rows.csv --text text --label kind -o m --preset none": "--preset must be one of paper",
    "train rows.csv --text text --label kind": "Missing option '--output' / '-o'; see ltls train",
    "train rows.csv --text text --label kind --class-weight a -o m": "and ltls settings for --set",
    "train rows.csv --text text --label kind -o no/m": "create the folder no first",
    "train rows.csv --text text --label kind -o rows.csv": "the input cannot also be the output",
    "train rows.csv --text text --label kind -o m --set width": "--set must be NAME=VALUE",
    "train rows.csv --text text --label kind -o m --format frob": "format must be one of text, csv",
    "train rows.csv --text text --label kind -o m --set trellises.loss=a": None,
    "serve no.ltls": "no.ltls: No such file",
    "serve m.ltls rows.csv": "rows.csv is not an ltls model file",
    "train book.xlsx --text text --label kind -o m": "a spreadsheet or an archive, which is not",
    "train all.json --text text --label kind -o m": "all.json is a single JSON value: write JSON l",
    "predict rows.csv m.ltls": "rows.csv is not an ltls model file",
    "evaluate rows.csv rows.csv": "rows.csv is not an ltls model file",
    "info rows.csv": "rows.csv is not an ltls model file",
    "explain rows.csv text": "rows.csv is not an ltls model file",
    "predict m.ltls rows.csv --text txt": "no column 'txt'",
    "evaluate m.ltls rows.jsonl --format jsonl --label king": "no column 'king'",
    "convert rows.csv rows.tsv --text txt": "no column 'txt'",
    "convert rows.csv rows.tsv --text text": None,
    "predict m.ltls rows.csv --prob": "No such option",
    "evaluate m.ltls rows.csv -k 0": "-k must be comma-separated numbers",
    "explain m.ltls text -k x": "Invalid value for '-k'",
    "info m.ltls rows.csv": "unexpected extra argument",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_wrong_names_are_errors_before_anything_slow_is_imported(tmp_path, words):
    if words.startswith("serve"):
        pytest.importorskip("uvicorn", reason="needs starlette: run make test-all")
    (tmp_path / "rows.csv").write_text("text,kind\nmy card,card\n")
    (tmp_path / "rows.jsonl").write_text('{"text": "my card", "kind": "card"}\n')
    (tmp_path / "latin.csv").write_bytes(b"text,kind\nmy card,card\nd\xe9j\xe0 vu,fee\n")
    (tmp_path / "empty.jsonl").write_text('{"text": "a", "kind": "b"}\n{"text": "a", "kind": ""}\n')
    (tmp_path / "labels.txt").write_text("__label__a my card\nwhich fee\n")
    (tmp_path / "all.json").write_text('[{"text": "my card", "kind": "card"}]')
    (tmp_path / "book.xlsx").write_bytes(b"PK\3\4\24\0")
    (tmp_path / "m.ltls").write_bytes(b'\x10\0\0\0\0\0\0\0{"a": 1}')
    code = (
        "import sys; from ltls.cli import main; sys.argv[0] = 'ltls'\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, 'numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    if (message := MISTAKES[words]) is None:  # nothing that could be known early
        assert done.stdout in ("2 True\n", "0 False\n")
    else:
        assert done.stdout == "2 False\n"
        assert message in done.stderr
