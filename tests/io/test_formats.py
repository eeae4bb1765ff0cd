"""A format is one entry in the registry: a new one works everywhere, the terminal included."""

import json
import pickle

import pytest

import ltls
from ltls.io import formats
from ltls.io.errors import (
    ColumnError,
    EmptyFileError,
    FormatError,
    RowError,
    TooManyFeaturesError,
)
from ltls.io.formats import FORMATS, Sample, by_suffix, detect
from ltls.io.lines import LineFormat

ROWS = [(f"{word} please", label) for label, words in {
    "card": ["card", "cards", "visa"], "fee": ["fee", "fees", "charge"],
}.items() for word in words]  # fmt: skip
TEXT = "toy\n" + "".join(f"{label} = {text}\n" for text, label in ROWS)


class Toy(LineFormat):
    """``label|label = text`` lines below a line ``toy``."""

    name = "toy"
    kind = "text"
    suffixes = (".toy",)

    def detect(self, sample):
        return sample.first_line == b"toy"

    def parse(self, line, columns, labelled):
        if line == "toy\n":
            return None
        labels, equals, text = line.rstrip("\n").partition(" = ")
        if not equals:
            raise RowError("syntax", "it has no ' = '")
        return {"text": text, "label": labels.split("|")}

    def write(self, stream, rows, columns):
        stream.write(b"toy\n")
        for text, labels in rows:
            stream.write(f"{'|'.join(labels)} = {text}\n".encode())


@pytest.fixture
def toy():
    yield formats.register(Toy())
    formats.FORMATS.pop("toy")


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (b"PAR1", "parquet"),
        (b'\n{"a": 1}', "jsonl"),
        (b"__label__a b", "fasttext"),
        (b"3 4 5\n1 1:1", "xmc"),
        (b"# made by hand\n3 4 5\n1 1:1", "xmc"),
        (b"1,2 qid:3 4:5 # note", "svmlight"),
        (b"a\tb,c", "tsv"),
        (b"a;b", "csv"),
        (b"", "svmlight"),
    ],
)
def test_formats_are_detected_by_content(start, name):
    assert detect(Sample("rows.txt", start)).name == name


def test_hints_and_suffixes_decide_where_content_does_not():
    assert detect(Sample("rows", b"1 2 3", columns_named=True)).name == "csv"
    assert detect(Sample("rows", b"words", expects_table=True)).name == "csv"
    assert detect(Sample("rows.csv.gz", b"words")).name == "csv"


def test_suffixes():
    for name, each in FORMATS.items():
        for suffix in each.suffixes:
            assert by_suffix(f"rows{suffix}").name == by_suffix(f"rows{suffix}.gz").name == name
    with pytest.raises(FormatError, match=r"rows\.doc: the suffix must be one of .*, got '\.doc'"):
        by_suffix("rows.doc")


def test_a_new_format_works_in_the_terminal(toy, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.toy").write_text(TEXT)
    train = ("train", "rows.toy", "-o", "m.ltls", "-q", "--random-state", 0)
    for words in (train, (*train, "--format", "toy")):
        assert command(*words).code == 0
    assert ltls.load("m.ltls").classes_.tolist() == ["card", "fee"]
    lines = command("predict", "m.ltls", "rows.toy", "-k", 1).out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [label for _, label in ROWS]
    report = json.loads(command("evaluate", "m.ltls", "rows.toy", "--json").out)
    assert report["metrics"][0]["precision"] == 1
    assert command("convert", "rows.toy", "rows.jsonl.gz").code == 0
    back = ("convert", "rows.jsonl.gz", "back.toy", "--text", "text", "--label", "label")
    assert command(*back).code == 0
    assert (tmp_path / "back.toy").read_text() == TEXT


def test_bad_rows_of_a_new_format_are_skipped(toy, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").write_text(TEXT + "nothing\n")
    words = ("train", "rows", "-o", "m.ltls", "-q")
    place = f"rows, line {len(ROWS) + 2}: it has no ' = '"
    assert command(*words).err == (
        f"ltls: {place}; fix it, or skip such rows with --skip-bad-rows\n"
    )
    result = command(*words, "--skip-bad-rows")
    assert result.code == 0
    assert result.err == f"ltls: warning: 1 bad row was skipped; the first is {place}\n"


@pytest.mark.parametrize(
    "error",
    [
        RowError("label", "bad", path="rows", line=3),
        ColumnError("a", ["b"], path="rows"),
        EmptyFileError(path="rows"),
        TooManyFeaturesError(9, 4, path="rows"),
        FormatError("bad"),
    ],
    ids=repr,
)
def test_errors_cross_processes_with_their_attributes(error):
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))
