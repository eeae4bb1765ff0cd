"""The page at /, in a real browser."""

import re
from dataclasses import replace

import pytest
from browser import running
from serving import in_thread

from ltls import LTLSClassifier
from ltls.estimators.explain import Contribution
from ltls.serve import Settings

TEXT = "my card is gone 🙂 today"


CONTRIBUTIONS = [
    Contribution("card", 2.0, ((3, 7),)),
    Contribution("gone", -1.0, ((11, 15),)),
    Contribution("today", 1.0, ((18, 23),)),
    Contribution("chars: my ", -0.5, ((0, 3),)),
    Contribution("chars:card", 0.5, ((3, 7),)),
]
real = LTLSClassifier.explain


def explain(self, X, labels=None, k=5):
    """Explanations of known form: "card" speaks for every label, "gone" against it."""
    known = {"linear_score": 2.5, "intercept": 0.5, "contributions": CONTRIBUTIONS}
    return [[replace(each, **known) for each in row] for row in real(self, X, labels, k)]


@pytest.fixture(scope="module")
def browser():
    with running() as browser:
        yield browser


@pytest.fixture(scope="module")
def site(models):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LTLSClassifier, "explain", explain)
        with in_thread(Settings(models=models, reload=0)) as server:
            yield server


@pytest.fixture(params=["light", "dark"])
def page(request, browser, site):
    """The page of all models; it must neither fail nor ask for anything of another server."""
    context = browser.new_context(color_scheme=request.param)
    page, troubles = context.new_page(), []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda line: troubles.append(line.text) if line.type == "error" else None)
    page.on(
        "request",
        lambda asked: (
            None if asked.url.startswith((site.url, "data:")) else troubles.append(asked.url)
        ),
    )
    page.goto(site.url)
    page.locator("#about:not(:empty)").wait_for()
    yield page
    context.close()
    assert troubles == []


def choose(page, model):
    page.select_option("#model", label=model)


def labels(page):
    page.wait_for_selector("#labels button")
    return page.locator("#labels .name").all_inner_texts()


def has_text(page, place, text):
    """Wait until the first element of a place has a text."""
    from playwright.sync_api import expect

    expect(page.locator(place).first).to_have_text(text, timeout=20_000)


def violations(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe")
    found = axe.Axe().run(page).response["violations"]
    return [
        (each["id"], [node["html"] for node in each["nodes"]])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


def test_labels_appear_while_one_types(page):
    choose(page, "tickets")
    page.locator("#text").press_sequentially(TEXT, delay=5)
    assert labels(page)[0] == "card"
    has_text(page, "#marked", TEXT)
    assert re.search(r"\d %", page.locator("#labels .value").first.inner_text())
    width = page.locator("#labels .bar").first.evaluate("bar => parseFloat(bar.style.width)")
    shown = float(page.locator("#labels .value").first.inner_text().split()[0])
    assert abs(width - shown) < 1
    assert re.match(r"[\d.]+ ms in the server, [\d.]+ ms in all", page.inner_text("#latency"))
    assert page.text_content("#status").startswith("Best label: card")
    page.fill("#text", "what fee")
    has_text(page, "#labels .name", "fee")
    page.fill("#text", "")
    page.wait_for_selector("#hint", state="visible")
    assert page.locator("#labels button").count() == 0


def test_words_that_speak_for_a_label_are_marked(page):
    choose(page, "tickets")
    page.fill("#text", TEXT)
    labels(page)
    assert page.locator("#marked mark.for").all_inner_texts() == ["card", "today"]
    assert page.locator("#marked mark.against").all_inner_texts() == ["my ", "gone"]
    rows = page.locator("#contributions tr").all_inner_texts()
    expected = ["card\t2.5", "gone\t-1", "today\t1", "letters of my\t-0.5"]
    assert [row.strip() for row in rows] == expected
    assert "intercept 0.5 it adds up to 2.5" in page.inner_text("#why-caption")


def test_tables_have_a_field_for_every_column(page, site):
    choose(page, "orders")
    page.fill("#named-input textarea", "green tea")
    page.fill("#named-input input[type=number]", "20")
    page.locator("#named-input input").nth(1).fill("north")
    row = {"item": "green tea", "price": 20, "shop": "north"}
    answer = site.predict(model="orders", rows=[row], proba=True).json
    has_text(page, "#labels .name", answer["predictions"][0]["labels"][0])
    has_text(page, "#marked", "green tea")


def test_the_trellis_is_drawn_with_the_path(page, site):
    choose(page, "codes")
    page.fill("#row", "3:1 5:0.5")
    best = labels(page)
    answer = site.predict(
        model="codes", rows=[{"indices": [3, 5], "values": [1, 0.5]}], trellis=0, proba=True
    ).json
    assert best == [str(label) for label in answer["predictions"][0]["labels"]]
    drawn = answer["trellis"]
    assert page.locator("#drawing .edge").count() == len(drawn["edges"])
    chosen = drawn["paths"][0]
    assert page.locator("#drawing .path.chosen").count() == len(chosen["scores"])
    assert page.locator("#drawing circle.chosen").count() == len(chosen["vertices"])
    assert str(chosen["vertices"])[1:-1] in page.text_content("#drawing-title")
    page.select_option("#which", index=1)
    has_text(page, "#drawing-title", re.compile("trellis 1"))


def test_views_are_drawn_too(page):
    choose(page, "words")
    page.fill("#text", "w7 v7")
    assert labels(page)[0] == "label 7"
    has_text(page, "#drawing-title", re.compile("Path of label 7 and labels like it .*trellis 0"))
    page.select_option("#which", index=1)
    has_text(page, "#drawing-title", re.compile("trellis 1"))


def test_long_texts_are_not_explained(page):
    choose(page, "tickets")
    page.fill("#text", "my card " * 4000)
    assert labels(page)[0] == "card"
    page.wait_for_selector("#why", state="hidden")


def test_rows_as_numbers_and_by_name(page):
    choose(page, "codes")
    page.fill("#row", "[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]")
    assert labels(page)[0] == "40"
    page.fill("#row", "1 2 x")
    has_text(page, "#error", "x is not a number")
    choose(page, "boxes")
    page.get_by_label("width").fill("1")
    assert labels(page)[0] == "b"
    page.get_by_label("width").fill("")
    page.get_by_label("größe").fill("1")
    has_text(page, "#labels .name", "d")


def test_a_model_without_probabilities_shows_scores(page):
    choose(page, "margins")
    page.fill("#row", "0:1")
    labels(page)
    assert "%" not in page.locator("#labels .value").first.inner_text()


def test_the_keyboard_is_enough(page):
    choose(page, "tickets")
    page.focus("#model")
    page.keyboard.press("Tab")
    page.keyboard.type("my card")
    labels(page)
    page.keyboard.press("Tab")  # the number of labels
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")  # the second label
    page.keyboard.press("Enter")
    pressed = page.locator("#labels button").evaluate_all(
        "buttons => buttons.map(button => button.getAttribute('aria-pressed'))"
    )
    assert pressed == ["false", "true", "false"]
    second = labels(page)[1]
    assert f"for and against {second}" in page.inner_text("#why-caption")
    assert f"Path of {second}" in page.text_content("#drawing-title")


@pytest.mark.parametrize(
    ("model", "field", "value"),
    [
        ("tickets", "#text", TEXT),
        ("codes", "#row", "3:1"),
        ("boxes", "#named-input input", "1"),
        ("orders", "#named-input textarea", "green tea"),
    ],
)
def test_axe_finds_nothing_serious(page, model, field, value):
    assert violations(page) == []
    choose(page, model)
    page.locator(field).first.fill(value)
    labels(page)
    page.wait_for_selector("#trellis", state="visible")
    assert violations(page) == []


@pytest.mark.parametrize("named", [False, True], ids=["labels", "feature names"])
def test_labels_and_names_are_text_and_never_markup(browser, models, tmp_path, named):
    hostile = "<img src=x onerror=document.title='owned'>"
    path = tmp_path / "hostile.ltls"
    model = LTLSClassifier(random_state=0).fit([[1, 0], [0, 1]], [hostile, "b"])
    if named:
        model.model_.front_end.given_names = [hostile, "<b>other</b>"]
    model.save(path)
    with in_thread(Settings(models={hostile: path}, reload=0)) as server:
        page = browser.new_page()
        page.goto(server.url)
        if named:
            page.locator("#named-input input").first.fill("1")
        else:
            page.fill("#row", "1, 0")
        assert hostile in labels(page)
        page.wait_for_selector("#contributions tr")
        if named:
            assert hostile in page.inner_text("#contributions")
        assert page.locator("img, #named-input b, #contributions b").count() == 0
        page.close()


def test_the_script_makes_no_markup_of_text(site):
    script = site.ask("GET", "/page.js").body
    assert not re.findall(rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval", script)


def test_a_token_is_asked_for(browser, serving):
    with serving(token="s3cret") as server:
        page = browser.new_page()
        page.goto(server.url)
        page.wait_for_selector("#sign-in", state="visible")
        assert violations(page) == []
        page.fill("#token", "s3cret")
        page.keyboard.press("Enter")
        page.wait_for_selector("#sign-in", state="hidden")
        page.fill("#text", "my card")
        assert labels(page)[0] == "card"
        page.close()


def test_the_page_may_load_nothing_from_elsewhere(site):
    answer = site.ask("GET", "/")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for path in ("/", "/page.js", "/page.css"):
        addresses = re.findall(rb"https?://[^\s\"')]+", site.ask("GET", path).body)
        assert set(addresses) <= {b"http://www.w3.org/2000/svg"}
