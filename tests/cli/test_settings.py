"""--set takes every setting that is declared, and `ltls settings` lists them."""

import inspect
import json
import subprocess
import sys

import pytest

import ltls
from ltls import LTLSClassifier, presets
from ltls.cli import settings, train
from ltls.core.settings import parse_value
from ltls.settings import Numbers, Propensity, Text, Trellises

ROWS = "".join(f"{i % 3} {i % 3 + 1}:1\n" for i in range(30))
TEXTS = "text,kind\n" + "my card,card\nthe fee,fee\n" * 9


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.txt").write_text(ROWS)
    (tmp_path / "texts.csv").write_text(TEXTS)
    return tmp_path


def test_every_setting_of_an_estimator_is_one_of_the_terminal():
    estimators = [LTLSClassifier(features=each, propensity=True) for each in (Text(), Numbers())]
    every = {name.replace("__", ".") for each in estimators for name in each.get_params()}
    assert every - settings.known().keys() == {"features", "parts", "verbose", "warm_start"}
    assert not settings.known().keys() - every


@pytest.mark.parametrize("name", settings.known())
def test_defaults_can_be_given(name):
    default = settings.known()[name].default
    written = settings.written(default)
    given = [("--set", name, written)]
    assert settings.parse(given) == {name: default}
    assert parse_value(written) == default


def test_the_list_has_every_setting_with_its_default_and_help(command):
    out = command("settings").out
    listed = json.loads(command("settings", "--json").out)
    # The part of another package that the tests install is the last.
    assert [each["name"] for each in listed] == [*settings.known(), "parts.toy.strength"]
    for each in listed:
        assert f"{each['name']}={settings.written(each['default'])}\n" in out
        assert each["help"].split()[0] in out
    views = command("settings", "views").out
    assert "views.n_views=auto" in views
    assert "trellises.width" not in views
    error = command("settings", "wings").err
    assert error.startswith("ltls: GROUP must be one of features, trellises, ")


@pytest.mark.parametrize("words", ["--epochs x", "--set trellises.width=1", "--set wing=3"])
def test_wrong_settings_are_found_before_anything_slow_is_imported(folder, words):
    run = "import sys; from ltls.cli.app import app, run; code = run(app, sys.argv[1:]); "
    run += "print(code, 'sklearn' in sys.modules)"
    words = ["train", "texts.csv", "--text", "text", "--label", "kind", "-o", "m", *words.split()]
    found = subprocess.run([sys.executable, "-c", run, *words], capture_output=True, text=True)
    assert found.stdout == "2 False\n", found


def test_train_passes_settings_on(folder, command):
    words = ("--width", 3, "--epochs", 7, "--loss", "logistic", "--views", "false")
    words += ("--size-budget", "5MB", "--n-jobs", 2, "--random-state", 11)
    given = {
        "features.normalize": "false",
        "trellises.learning_rate": "0.125",
        "trellises.optimizer": "sgd",
        "trellises.dtype": "float16",
        "label_weights.cost": "0.5",
        "prototypes": "false",
        "neighbours.n_neighbors": "3",
        "propensity.strength": "0.5",
        "calibration": "false",
        "memory.n_rows": "7",
        "validation_fraction": "0.25",
    }
    for pair in given.items():
        words += ("--set", "=".join(pair))
    assert command("train", "rows.txt", "-o", "m.ltls", "-q", *words).code == 0
    expected = LTLSClassifier(views=False, size_budget="5MB", n_jobs=2, random_state=11)
    expected.set_params(
        trellises=Trellises(
            width=3,
            epochs=7,
            loss="logistic",
            learning_rate=0.125,
            optimizer="sgd",
            dtype="float16",
        ),
        features__normalize=False,
        label_weights__cost=0.5,
        prototypes=False,
        neighbours__n_neighbors=3,
        propensity=Propensity(strength=0.5),
        calibration=False,
        memory__n_rows=7,
        validation_fraction=0.25,
    )
    assert plain(ltls.load("m.ltls")) == plain(expected)


def plain(estimator):
    return {name: str(value) for name, value in estimator.get_params().items()}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], LTLSClassifier()),
        (["--preset", "paper"], presets.paper()),
        (["--preset", "paper", "--epochs", 4], presets.paper(epochs=4)),
    ],
    ids=["defaults", "preset", "preset with changes"],
)
def test_what_is_not_given_keeps_its_default(folder, command, words, expected):
    assert command("train", "rows.txt", "-o", "m.ltls", "-q", *words).code == 0
    assert plain(ltls.load("m.ltls")) == plain(expected)


def test_presets_are_functions():
    public = {name for name, _ in inspect.getmembers(presets, inspect.isfunction)}
    assert set(train.PRESETS) == public


def test_settings_of_texts(folder, command):
    words = ("--text", "text", "--label", "kind", "-o", "m.ltls", "-q")
    given = ("--set", "features.ngram_range=[1,3]", "--set", "features.n_features=64")
    assert command("train", "texts.csv", *words, *given).code == 0
    model = ltls.load("m.ltls")
    assert (model.features.ngram_range, model.n_features_in_) == ((1, 3), 128)
    result = command("train", "rows.txt", "-o", "m.ltls", "-q", *given)
    assert result.err == (
        "ltls: --set features.ngram_range is for texts; name the text column with --text\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trellises.widht=3", "there is no setting 'trellises.widht'; did you mean trellises.wi"),
        ("width=3", "there is no setting 'width'; did you mean trellises.width?"),
        ("wings=3", "there is no setting 'wings'; ltls settings lists them"),
        ("verbose=3", "there is no setting 'verbose'"),
        ("trellises.width", "--set must be NAME=VALUE, such as trellises.width=16"),
        ("trellises.width=1", "--set trellises.width must be an integer of at least 2 or 'auto'"),
        ("trellises.width=true", "got True"),
        ("trellises.learning_rate=nan", "--set trellises.learning_rate must be a number above 0"),
        ("trellises.l1=inf", "--set trellises.l1 must be a number of at least 0"),
        ("views=maybe", "--set views must be settings.Views or 'auto' or True or False"),
        ("features.ngram_range=3,x", "--set features.ngram_range must be a pair (min, max)"),
        ("features.tokenizer=(", "must be a regular expression that matches a word"),
        (
            "size_budget=5XB",
            "--set size_budget must be an integer of at least 1 or a size such as '5MB'",
        ),
        ("class_weight=heavy", "--set class_weight must be a dict of weights or 'balanced'"),
    ],
)
def test_wrong_settings_are_said_before_data_is_read(folder, command, words, message):
    (folder / "never-read").write_bytes(b"\xff")
    result = command("train", "never-read", "-o", "m.ltls", "--set", words)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_settings_of_a_group_that_is_off(folder, command):
    words = ("train", "rows.txt", "-o", "m.ltls", "-q", "--set", "views.n_views=2")
    assert command(*words, "--views", "false").err == (
        "ltls: --set views.n_views is a setting of views, which is false: leave out one of them\n"
    )
