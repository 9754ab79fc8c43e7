"""The page in a real Chromium, before the real service with a small model."""

import csv
import html.parser
import io
import json
import re
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import unidex
from helpers.synthetic import QUICK, topics
from helpers.waits import PATIENCE
from page_picture import Service, chromium_arguments, find_chromium
from unidex.scoring.boosted_trees import _PARTS
from unidex.scoring.ranking_features import FEATURES
from unidex.verbs.calibrate import calibrate
from unidex.verbs.train import train

FOLDER = Path(unidex.__file__).parent / "server" / "page"
SCRIPTS = sorted(FOLDER.glob("*.js"))
PATIENCE_MS = 1000 * PATIENCE
TOKEN = "a-token-of-the-tests"
# The words of the labels "w0a w1b" and "w6g w7h"; JavaScript counts the first letter twice, Python once.
TEXT = "\U0001d54f w0a w7h w60i w1b w6g"
HOSTILE = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script> w2c w3d"
SETTINGS = ["predict.knn=0.2", "predict.knn_texts=4", "predict.snippet_length=40"]


def test_the_page_is_small_and_loads_nothing_from_other_hosts():
    files = [file for file in FOLDER.iterdir() if file.is_file()]
    assert sum(file.stat().st_size for file in files if not file.name.startswith("api")) < 76_000
    assert sum(file.stat().st_size for file in files) < 88_000
    for file in files:
        text = file.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?://|url\(|@import", text), file.name


def test_page_scripts_never_parse_html_or_run_strings():
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|\beval\b|new Function"
    for script in SCRIPTS:
        assert not re.search(forbidden, re.sub(r"//.*", "", script.read_text(encoding="utf-8"))), script.name


def test_the_page_names_every_part_of_a_score():
    script = (FOLDER / "reasons.js").read_text(encoding="utf-8")
    named = set(re.findall(r"(\w+): \"", script[script.index("const PARTS") : script.index("};")]))
    # Comparisons within the text belong to their feature, and a decision tree and the base are no features.
    parts = {_PARTS.get(feature, feature) for feature in FEATURES} | {"decision_tree", "base"}
    assert named == parts
    # Each has a colour of its own; the label prior and what an average candidate has are grey.
    style = (FOLDER / "page.css").read_text(encoding="utf-8")
    assert {name for name in parts if f"--{name}: light-dark(" in style} == parts - {"base", "label_prior"}


def test_the_page_has_no_inline_script_or_style():
    class Page(html.parser.HTMLParser):
        def handle_starttag(self, tag, attributes):
            given = dict(attributes)
            assert tag != "style"
            assert tag not in ("script", "iframe", "object", "embed", "base") or (tag == "script" and "src" in given)
            for name, value in attributes:
                assert not name.startswith("on"), (tag, name)
                assert name != "style", (tag, name)
                assert not re.match(r"\s*(javascript|data|https?|//)", value or "") or name == "content", (tag, value)

    for name in ("index.html", "api.html"):
        Page().feed((FOLDER / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    if find_chromium() is None:
        pytest.skip("no Chromium: install one (Debian: apt-get install chromium) or name it in UNIDEX_CHROMIUM")
    pytest.importorskip("playwright.sync_api", reason="playwright drives Chromium: pip install playwright")
    folder = tmp_path_factory.mktemp("page")
    train(topics(), "unidec", settings=[*QUICK, *SETTINGS], out=folder / "topics")
    calibrate(folder / "topics", topics())
    (folder / "token").write_text(TOKEN + "\n", encoding="utf-8")
    (folder / "token").chmod(0o600)
    running = Service(folder / "topics", "--token-file", str(folder / "token"))
    running.start(PATIENCE)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser(service):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        running = started.chromium.launch(executable_path=find_chromium(), args=chromium_arguments())
        yield running
        running.close()


def new_context(browser, **options):
    context = browser.new_context(reduced_motion="reduce", **options)
    context.set_default_timeout(PATIENCE_MS)
    return context


class Tab:
    """A browser's window of its own, and what it has complained of and asked for.

    Tests share a context, because one costs as much as a test does. A page has routes, media and a session of its own;
    what it keeps beyond them, the theme, is deleted with it.
    """

    def __init__(self, context, url):
        self.context = context
        self.page = self.context.new_page()
        self.url = url
        self.complaints, self.requests = [], []
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, fragment=""):
        self.page.goto(self.url + fragment)
        # They are drawn when the page has read the model.
        self.page.locator("#modes input").first.wait_for(state="attached")
        return self.page

    def close(self):
        if self.page.url.startswith(self.url):
            self.page.evaluate("localStorage.clear()")
        self.page.close()
        # That an answer was an error is said by the browser itself.
        assert [said for said in self.complaints if not said.startswith("Failed to load resource: ")] == []
        assert [url for url in self.requests if not url.startswith((self.url, f"blob:{self.url}"))] == []


@pytest.fixture(scope="module")
def screens(browser):
    return new_context(browser)


@pytest.fixture(scope="module")
def phones(browser):
    return new_context(browser, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)


@pytest.fixture
def tab(screens, service):
    opened = Tab(screens, service.url)
    yield opened
    opened.close()


@pytest.fixture
def phone(phones, service):
    opened = Tab(phones, service.url)
    yield opened
    opened.close()


def ask(service, method, path, body=None, token=None):
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(service.url + path, data=data, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def predicted(service, *texts, k=5, mode="both", **asked):
    answer = ask(service, "POST", "v1/predict", {"texts": list(texts), "k": k, "mode": mode, **asked})
    return [found["labels"] for found in answer["predictions"]]


def has(locator, text):
    """Wait until it says this."""
    from playwright.sync_api import expect

    expect(locator).to_have_text(text, timeout=PATIENCE_MS)


def number(said):
    """A number as the page shows it: 87%, -0.123 with a true minus."""
    found = re.search(r"(\N{MINUS SIGN}?)([\d.]+)(%?)$", said)
    return float(found[2]) * (-1 if found[1] else 1) / (100 if found[3] else 1)


def shows(page, rows, column=0):
    """Wait until a column has these labels with these numbers.

    The numbers are read until they agree: an answer with the same labels may stand there before the one that is
    awaited.
    """
    listed = page.locator(".rows").nth(column).locator("> li")
    names = ["score" if row["probability"] is None else "probability" for row in rows]
    values = [row["score"] if row["probability"] is None else row["probability"] for row in rows]
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while True:
        has(listed.locator(".label-text"), [row["text"] for row in rows])
        has(listed.locator(".mark"), [f"frequency: {row['frequency']}" for row in rows])
        said = listed.locator(".value").all_text_contents()
        # A percent is rounded to a whole one in the middle of the range, scores to three places.
        expected = pytest.approx(values, abs=0.0051)
        agrees = [value.split()[0] for value in said] == names and [number(value) for value in said] == expected
        if agrees or time.monotonic() > deadline:
            break
        page.wait_for_timeout(20)
    assert [value.split()[0] for value in said] == names
    assert [number(value) for value in said] == expected


def test_predictions_appear_while_typing(tab, service):
    page = tab.open()
    has(page.locator(".empty > p").first, "Labels appear here as you type.")
    page.locator("#text").press_sequentially(TEXT, delay=5)
    (rows,) = predicted(service, TEXT)
    shows(page, rows)
    # Keys that follow each other fast are one request, or a few on a slow machine.
    assert len([url for url in tab.requests if url.endswith("v1/predict")]) <= len(TEXT) // 2
    has(page.locator("#found-said"), re.compile(rf"^5 labels, best: {rows[0]['text']}"))
    page.locator("#k").fill("3")
    shows(page, rows[:3])
    page.locator("#clear").click()
    # Texts to try, from the model.
    examples = ask(service, "GET", "v1/model")["examples"]
    assert set(examples) <= {text[:40] for text in topics().train.texts}
    has(page.locator(".examples button"), examples)
    page.locator(".examples button").nth(1).click()
    shows(page, predicted(service, examples[1], k=3)[0])
    assert page.locator("#text").input_value() == examples[1]


def test_the_page_says_that_no_word_is_known(tab, service):
    page = tab.open("#k=2")
    page.locator("#text").fill("qwertz asdfgh")
    shows(page, predicted(service, "qwertz asdfgh", k=2)[0])
    has(page.locator(".column > .problem:visible"), re.compile("^No known words: the model has seen none"))
    page.locator("#text").fill(TEXT)
    shows(page, predicted(service, TEXT, k=2)[0])
    assert page.locator(".column > .problem").is_hidden()
    page.get_by_role("tab", name="Many texts").click()
    page.locator("#lines").fill("w0a w1b\nqwertz asdfgh")
    page.get_by_role("button", name="Predict").click()
    has(page.locator("tbody .hint"), ["No known words: guesses."])
    assert page.locator("tbody tr").nth(1).locator(".hint").count() == 1


def test_a_late_answer_does_not_replace_a_newer_one(tab, service):
    page = tab.open()
    held = []

    def hold(route):
        if "w0a" in route.request.post_data and not held:
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/predict", hold)
    with page.expect_request("**/v1/predict"):
        page.locator("#text").fill("w0a w1b")
    page.locator("#text").fill("w6g w7h")
    (rows,) = predicted(service, "w6g w7h")
    shows(page, rows)
    held[0].continue_()
    page.wait_for_timeout(200)
    shows(page, rows)


def test_the_why_button_shows_the_explanation_of_the_service(tab, service):
    page = tab.open()
    page.locator("#text").fill(TEXT)
    why = page.locator(".why").first
    why.click()
    page.locator(".stack").wait_for()
    assert why.get_attribute("aria-expanded") == "true"
    (rows,) = predicted(service, TEXT)
    asked = {"text": TEXT, "labels": [rows[0]["id"]], "mode": "both"}
    (reason,) = ask(service, "POST", "v1/explain", asked)["labels"]
    panel = page.locator(f"#{why.get_attribute('aria-controls')}")
    for name, value in {**reason["parts"], "score": reason["score"]}.items():
        assert number(panel.locator(f"[data-part={name}]").text_content()) == pytest.approx(value, abs=6e-4)
    assert set(reason["parts"]) >= {"dual", "classifier", "knn"}
    assert sum(reason["parts"].values()) == pytest.approx(rows[0]["score"], abs=1e-4)
    # The words stand where they stand in the text, also behind a letter that JavaScript counts twice.
    assert panel.locator(".words").text_content() == TEXT
    marked = panel.locator(".words mark").all_text_contents()
    assert marked
    assert set(marked) <= {token["token"] for token in reason["tokens"]}
    strongest = max(reason["tokens"], key=lambda token: abs(token["score"]))
    first = panel.locator(".strongest li").first.text_content()
    assert first.startswith(strongest["token"] + " ")
    assert number(first) == pytest.approx(strongest["score"], abs=6e-4)
    assert panel.locator(".texts li > :first-child").all_text_contents() == [near["text"] for near in reason["texts"]]
    assert reason["texts"]
    assert panel.locator(".together li").count() == len(reason["together"])
    # Reasons that are open follow the text.
    page.locator("#text").fill(TEXT + " w1b")
    has(panel.locator(".words"), TEXT + " w1b")
    page.keyboard.press("Escape")
    assert why.get_attribute("aria-expanded") == "false"
    assert panel.is_hidden()


def test_modes_can_be_chosen_and_compared(tab, service):
    page = tab.open()
    page.locator("#text").fill(TEXT)
    found = {mode: predicted(service, TEXT, mode=mode)[0] for mode in ("both", "dual", "classifier")}
    for mode in ("dual", "classifier"):
        page.get_by_role("radio", name={"dual": "Dual encoder", "classifier": "Classifier"}[mode]).check()
        shows(page, found[mode])
    switch = page.get_by_role("radio", name="Compare")
    before = switch.bounding_box()
    switch.check()
    has(page.locator(".column h2"), ["Both", "Dual encoder", "Classifier"])
    assert switch.bounding_box() == before  # it stays under the cursor
    for column, (mode, rows) in enumerate(found.items()):
        shows(page, rows, column)
        others = {row["id"] for other in found if other != mode for row in found[other]}
        alone = [row["text"] for row in rows if row["id"] not in others]
        listed = page.locator(".rows").nth(column).locator("> li")
        assert listed.filter(has_text="only here").locator(".label-text").all_text_contents() == alone
    page.locator(".rows").nth(1).locator(".why").first.click()
    panel = page.locator(".rows").nth(1).locator(".reasons").first
    panel.locator(".stack").wait_for()
    assert number(panel.locator("[data-part=score]").text_content()) == pytest.approx(
        found["dual"][0]["score"], abs=6e-4
    )


def test_labels_below_the_minimum_probability_are_hidden(tab, service):
    page = tab.open()
    page.locator("#text").fill(TEXT)
    (rows,) = predicted(service, TEXT, k=10)
    page.locator("#k").fill("10")
    shows(page, rows)
    thresholds = ask(service, "GET", "v1/model")["thresholds"]
    marks = page.locator("#marks button")
    names = [{"best-f1": "best F1"}.get(name, name.replace("-", " ")) for name in thresholds]
    assert [said.split(" \N{MIDDLE DOT} ")[0] for said in marks.all_text_contents()] == names
    assert "best F1" in names
    for place, threshold in enumerate(thresholds.values()):
        marks.nth(place).click()
        kept = [row for row in rows if row["probability"] >= threshold["probability"]]
        assert 0 < len(kept) < 10
        assert kept == predicted(service, TEXT, k=10, min_probability=threshold["probability"])[0]
        shows(page, kept)
        has(page.locator(".note"), re.compile(rf"^{10 - len(kept)} labels? below the minimum probability of "))
    slider = page.get_by_role("slider", name="Minimum probability")
    slider.fill("1")
    has(page.locator("#min-said"), "100%")
    # An empty list says why, and has the way out.
    has(page.locator(".note"), re.compile(r"^No label reaches the minimum probability of 100%; the best has \d+%\."))
    page.get_by_role("button", name="Show all labels").click()
    shows(page, rows)
    # A threshold that leaves no label of this text cannot be chosen.
    assert marks.first.is_enabled()

    def improbable(route):
        answer = route.fetch().json()
        for row in answer["predictions"][0]["labels"]:
            row["probability"] = 0.001
        route.fulfill(json=answer)

    page.route("**/v1/predict", improbable)
    page.locator("#text").fill(TEXT + " w0a")
    has(page.locator(".value").first, "probability 0.1%")
    assert not any(mark.is_enabled() for mark in marks.all())
    page.unroute("**/v1/predict")
    page.locator("#text").fill(TEXT)
    shows(page, rows)
    assert all(mark.is_enabled() for mark in marks.all())
    slider.press("Home")
    shows(page, rows)
    slider.press("ArrowRight")
    has(page.locator("#min-said"), "1.0%")
    # Scores of one head alone are no probabilities: none is hidden.
    slider.fill("1")
    page.get_by_role("radio", name="Dual encoder").check()
    shows(page, predicted(service, TEXT, k=10, mode="dual")[0])
    has(page.locator(".note"), re.compile("not probabilities"))


def test_many_texts_give_a_table_and_a_csv(tab, service):
    texts = ["w0a w1b", "=1+1", '+w6g, "w7h"', "  w8i\tw9j ", "@w2c", "-w3d", "\N{SNOWMAN} w4e"]
    page = tab.open("#k=2")
    page.get_by_role("tab", name="Many texts").click()
    page.locator("#lines").fill("\n\n".join(texts))
    has(page.locator("#lines-count"), "7 texts")
    page.get_by_role("button", name="Predict").click()
    has(page.locator("#many-said"), "7 texts predicted.")
    found = predicted(service, *[text.strip() for text in texts], k=2)
    has(page.locator("tbody th"), [text.strip() for text in texts])
    assert page.locator("tbody tr").nth(2).locator(".chips li > :first-child").all_text_contents() == [
        row["text"] for row in found[2]
    ]
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download CSV").click()
    content = Path(waiting.value.path()).read_bytes()
    assert waiting.value.suggested_filename == "unidex-predictions.csv"
    assert content.startswith(b"\xef\xbb\xbf")
    assert content.count(b"\r\n") == 1 + 7 * 2
    rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    # Spreadsheets would run what begins like a formula.
    safe = ["w0a w1b", "'=1+1", '\'+w6g, "w7h"', "w8i\tw9j", "'@w2c", "'-w3d", "\N{SNOWMAN} w4e"]
    assert [row["text"] for row in rows] == [text for text in safe for _ in range(2)]
    assert [row["line"] for row in rows] == [str(2 * place + 1) for place in range(7) for _ in range(2)]
    flat = [label for labels in found for label in labels]
    assert [row["uid"] for row in rows] == [label["uid"] for label in flat]
    assert [row["rank"] for row in rows] == ["1", "2"] * 7
    assert [float(row["score"]) for row in rows] == pytest.approx([label["score"] for label in flat], abs=1e-4)


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_a_file_is_uploaded_and_comes_back_with_labels(tab, service, tmp_path, kind):
    texts = ["w0a w1b", "w6g w7h, too", "w8i w9j"]
    file = tmp_path / "tickets.csv"
    file.write_text("number,words\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(texts)), encoding="utf-8")
    page = tab.open("#k=2")
    page.get_by_role("tab", name="Many texts").click()
    page.get_by_label("File").set_input_files(file)
    page.get_by_label("Result").select_option(kind)
    predict = page.get_by_role("button", name="Label the file")
    # A column that cannot be guessed is asked for.
    page.get_by_label("Column of the texts").fill("no such")
    predict.click()
    has(page.locator("#many-problem"), re.compile("no such"))
    page.get_by_label("Column of the texts").fill("words")
    with page.expect_download() as waiting:
        predict.click()
    assert waiting.value.suggested_filename == f"tickets-labels.{kind}"
    has(page.locator("#many-said"), f"Done: tickets-labels.{kind} is downloaded.")
    content = Path(waiting.value.path())
    if kind == "csv":
        rows = list(csv.reader(io.StringIO(content.read_text(encoding="utf-8-sig"))))
    else:
        openpyxl = pytest.importorskip("openpyxl")
        sheet = openpyxl.load_workbook(io.BytesIO(content.read_bytes())).active
        rows = [[str(cell) for cell in row] for row in sheet.iter_rows(values_only=True)]
    assert rows[0] == ["number", "words", *(f"{part}_{n}" for n in (1, 2) for part in ("label", "uid", "probability"))]
    found = predicted(service, *texts, k=2)
    assert [row[1:4] for row in rows[1:]] == [
        [text, labels[0]["text"], labels[0]["uid"]] for text, labels in zip(texts, found, strict=True)
    ]
    assert [float(row[4]) for row in rows[1:]] == pytest.approx(
        [labels[0]["probability"] for labels in found], abs=1e-4
    )


def test_csv_cells_are_quoted(tab):
    page = tab.open()
    cells = ["plain", 'a "b"', "a,b", "a\r\nb", " a", "=a", "+a", "-a", "@a", "\ta", "\ra", '=a,"b"', -0.5, 2, None]
    said = page.evaluate("async cells => (await import('./page/csv.js')).csv([{line: 1, text: '=x', labels: []}]) + "
                         "cells.map((await import('./page/csv.js')).cell).join()", cells)  # fmt: skip
    head, row, body = said.split("\r\n", 2)
    assert head == "\ufeffline,text,rank,uid,label,score,probability,frequency"
    assert row == "1,'=x,,,,,,"
    (parsed,) = csv.reader(io.StringIO(body, newline=""))
    assert parsed == ["plain", 'a "b"', "a,b", "a\r\nb", " a", "'=a", "'+a", "'-a", "'@a", "'\ta", "'\ra", "'=a,\"b\"",
                      "-0.5", "2", ""]  # fmt: skip


def test_labels_can_be_browsed(tab, service):
    page = tab.open()
    page.get_by_role("tab", name="Labels").click()
    listed = page.locator(".label-rows > li")
    first = ask(service, "GET", "v1/labels?limit=50")
    has(listed.locator(".label-text"), [row["text"] for row in first["labels"]])
    has(page.locator("#place"), "1\N{EN DASH}24 of 24 labels")
    assert page.locator("#before").is_disabled()
    assert page.locator("#after").is_disabled()
    page.locator("#frequency").select_option("tail")
    tail = ask(service, "GET", "v1/labels?frequency=tail")["labels"]
    has(listed.locator(".label-text"), [row["text"] for row in tail])
    page.locator("#frequency").select_option("")
    page.locator("#order").select_option("id")
    page.locator("#search").fill("W1")
    searched = ask(service, "GET", "v1/labels?search=w1&order=id")["labels"]
    has(listed.locator(".label-text"), [row["text"] for row in searched])
    page.get_by_role("button", name=f"Labels similar to {searched[0]['text']}").click()
    near = ask(service, "GET", f"v1/labels/{searched[0]['id']}/similar?k=10")["similar"]
    has(page.locator(".near li > button"), [row["text"] for row in near])
    page.locator("#search").fill("no such label")
    has(page.locator("#labels .empty"), "No label matches.")


def test_pages_of_labels(tab, service):
    made = [{"uid": f"page-{place}", "text": f"paged {place:03}"} for place in range(60)]
    ids = [row["id"] for row in ask(service, "POST", "v1/labels", {"labels": made}, TOKEN)["labels"]]
    page = tab.open("#tab=labels&search=paged")
    page.locator("#order").select_option("text")
    has(page.locator("#place"), "1\N{EN DASH}50 of 60 labels")
    page.get_by_role("button", name="Next").click()
    has(page.locator("#place"), "51\N{EN DASH}60 of 60 labels")
    has(page.locator(".label-rows .label-text"), [row["text"] for row in made[50:]])
    page.get_by_role("button", name="Previous").click()
    has(page.locator(".label-rows .label-text"), [row["text"] for row in made[:50]])
    for label in ids:
        ask(service, "DELETE", f"v1/labels/{label}", token=TOKEN)


def test_labels_are_added_renamed_and_removed_on_the_page(tab, service):
    """Added with a token, tried, renamed, removed: each seen at once."""
    page = tab.open("#tab=labels")
    page.get_by_role("button", name="Add a label").click()
    dialog = page.get_by_role("dialog", name="Add a label")
    dialog.get_by_label("Text").fill("zeppelin hangar")
    dialog.get_by_label("uid").fill("L3")
    dialog.get_by_role("button", name="Add").click()
    token = page.get_by_role("dialog", name="Token")
    token.get_by_label("Token").fill("wrong")
    token.get_by_role("button", name="Continue").click()
    # In the words of the dialog, not of HTTP.
    has(token.locator(".problem"), re.compile("^The service does not know this token. Check it"))
    assert page.evaluate("sessionStorage.getItem('unidex-token')") is None
    token.get_by_label("Token").fill(TOKEN)
    token.get_by_role("button", name="Continue").click()
    # The uid is taken: in the service's own words, and what was written stays.
    taken = ask(service, "POST", "v1/labels", {"uid": "L3", "text": "zeppelin hangar"}, TOKEN)["detail"]
    has(dialog.locator(".problem"), taken)
    dialog.get_by_label("uid").fill("Z1")
    dialog.get_by_role("button", name="Add").click()
    dialog.wait_for(state="detached")
    has(page.locator("#model"), re.compile("25 labels"))
    assert page.evaluate("[sessionStorage.getItem('unidex-token'), localStorage.length]") == [TOKEN, 0]

    page.get_by_role("button", name="Try it").click()
    assert page.locator("#text").input_value() == "zeppelin hangar"
    shows(page, predicted(service, "zeppelin hangar")[0])
    assert page.locator(".label-text").first.text_content() == "zeppelin hangar"

    page.get_by_role("tab", name="Labels").click()
    page.locator("#search").fill("zeppelin")
    # The page says that other words hardly find a new label, and offers to teach it.
    paraphrase = "w70s w71t w72u"
    assert predicted(service, paraphrase)[0][0]["text"] != "zeppelin hangar"
    has(page.locator("#labels-done .hint"), re.compile("in other words will hardly get it"))
    page.get_by_role("button", name="Teach it with examples").click()
    dialog = page.get_by_role("dialog", name="Teach a label")
    dialog.get_by_label("Examples").fill("w70s w71t\n\nw71t w72u\n w72u w70s ")
    dialog.get_by_role("button", name="Teach").click()
    has(page.locator("#labels-done"), re.compile("^Learned from 3 texts: zeppelin hangar"))
    assert predicted(service, paraphrase)[0][0]["text"] == "zeppelin hangar"

    page.get_by_role("button", name="Rename zeppelin hangar").click()
    dialog = page.get_by_role("dialog", name="Rename a label")
    assert dialog.get_by_label("Text").input_value() == "zeppelin hangar"
    dialog.get_by_label("Text").fill("zeppelin mast")
    dialog.get_by_role("button", name="Rename").click()
    has(page.locator(".label-rows .label-text"), ["zeppelin mast"])

    remove = page.get_by_role("button", name="Remove zeppelin mast")
    remove.click()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert ask(service, "GET", "v1/labels?search=zeppelin")["total"] == 1
    remove.click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    has(page.locator("#labels .empty"), "No label matches.")
    assert ask(service, "GET", "v1/labels?search=zeppelin")["total"] == 0


def test_hostile_texts_stay_texts(tab, service):
    (row,) = ask(service, "POST", "v1/labels", {"uid": HOSTILE + "!", "text": HOSTILE}, TOKEN)["labels"]
    page = tab.open()
    page.locator("#text").fill(HOSTILE)
    shows(page, predicted(service, HOSTILE)[0])
    assert page.locator(".label-text").first.text_content() == HOSTILE
    page.locator(".why").first.click()
    has(page.locator(".words"), HOSTILE)
    page.get_by_role("tab", name="Labels").click()
    page.locator("#search").fill("<img")
    has(page.locator(".label-rows .label-text"), [HOSTILE])
    page.get_by_role("button", name="Labels similar to <img").click()
    page.locator(".near li").first.wait_for()
    page.get_by_role("button", name="Remove <img").click()
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Many texts").click()
    page.locator("#lines").fill(HOSTILE)
    page.get_by_role("button", name="Predict").click()
    has(page.locator("tbody th"), [HOSTILE])
    assert page.locator("main img, main script").count() == 0
    assert page.title() != "run"
    ask(service, "DELETE", f"v1/labels/{row['id']}", token=TOKEN)


def test_the_page_shows_the_error_of_the_service(tab, service):
    page = tab.open()
    page.locator("#text").fill("w0a")
    page.locator(".rows").wait_for()
    most = ask(service, "GET", "v1/model")["limits"]["text_length"]
    long = "x" * (most + 1)
    page.locator("#text").fill(long)
    said = ask(service, "POST", "v1/predict", {"texts": [long], "k": 5, "mode": "both"})
    assert said["status"] == 422
    has(page.locator("#problem"), said["detail"])
    # Labels of another text would be wrong here.
    assert page.locator(".rows").count() == 0
    page.locator("#text").fill("w0a")
    page.locator(".rows").wait_for()
    assert page.locator("#problem").is_hidden()


def test_the_request_is_kept_in_the_url_fragment_only(tab, service):
    page = tab.open("#text=w6g+w7h&k=3&mode=dual")
    shows(page, predicted(service, "w6g w7h", k=3, mode="dual")[0])
    assert page.get_by_role("radio", name="Dual encoder").is_checked()
    page.locator("#text").fill("secret w0a & #b")
    page.wait_for_url("**#text=secret+w0a+%26+%23b&k=3&mode=dual")
    page.evaluate("location.hash = 'text=w8i+w9j&k=2'")
    shows(page, predicted(service, "w8i w9j", k=2)[0])
    assert not [url for url in tab.requests if "secret" in url.split("#")[0]]


def test_the_page_tells_when_the_service_is_gone_and_recovers(tab, service):
    page = tab.open()
    page.locator("#text").fill("w0a")
    page.locator(".rows").wait_for()
    service.stop()
    page.locator("#text").fill(TEXT)
    has(page.locator("#gone"), re.compile("^The service does not answer"))
    # Labels of the former text would be wrong here.
    has(page.locator("#results"), re.compile("^No labels: the service does not answer"))
    assert page.locator(".rows").count() == 0
    page.get_by_role("tab", name="Labels").click()
    has(page.locator("#labels-list"), re.compile("^No labels: the service does not answer"))
    page.get_by_role("tab", name="One text").click()
    service.start()
    page.locator("#gone").wait_for(state="hidden")
    shows(page, predicted(service, TEXT)[0])
    assert page.locator("#text").input_value() == TEXT


def test_the_api_is_shown_and_tried_at_docs(tab, phone, service):
    page = tab.open()
    page.get_by_role("link", name="HTTP API").click()
    paths = ask(service, "GET", "v1/openapi.json")["paths"]
    has(page.locator(".route > summary > code"), [path for path, methods in paths.items() for _ in methods])
    route = page.locator("#post-v1-predict")
    route.locator("summary").click()
    assert "min_probability" in route.locator(".fields").first.text_content()
    route.get_by_label("Request").fill(json.dumps({"text": TEXT, "k": 2}))
    route.get_by_role("button", name="Send").click()
    route.locator("pre").wait_for()
    assert (
        json.loads(route.locator("pre").text_content())["predictions"][0]["labels"] == predicted(service, TEXT, k=2)[0]
    )
    route.get_by_label("Request").fill('{"text": "a", "k": 0}')
    route.get_by_role("button", name="Send").click()
    has(route.locator(".problem"), "k must be at least 1, but is 0")
    # A route that needs a token takes it from the field above.
    added = page.locator("#post-v1-labels")
    added.locator("summary").click()
    added.get_by_role("button", name="Send").click()
    has(added.locator(".problem"), re.compile("token"))
    page.get_by_label("Token, for").fill(TOKEN)
    added.get_by_label("Request").fill('{"text": "made at docs"}')
    added.get_by_role("button", name="Send").click()
    added.locator("pre").wait_for()
    (row,) = ask(service, "GET", "v1/labels?search=made+at+docs")["labels"]
    ask(service, "DELETE", f"v1/labels/{row['id']}", token=TOKEN)
    small = phone.page
    small.goto(service.url + "docs")
    small.locator("#post-v1-predict > summary").click()
    assert small.evaluate("document.documentElement.scrollWidth - 360") <= 0


COLOURS = """() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility()) continue;
    if (element.closest(".unseen, .skip, :disabled, option")) continue;
    const grounds = [];
    for (let above = element; above; above = above.parentElement) grounds.push(getComputedStyle(above).backgroundColor);
    found.push({ text: node.data.trim().slice(0, 30), ink: getComputedStyle(element).color, grounds });
  }
  return found;
}"""


def colour(said):
    """Red, green, blue and alpha in 0..1 from rgb(), rgba() or color(srgb ...)."""
    values = [float(value) for value in re.findall(r"[\d.]+(?:e-?\d+)?", said)]
    rgb = values[:3] if said.startswith("color") else [value / 255 for value in values[:3]]
    return [*rgb, values[3] if len(values) > 3 else 1.0]


def over(above, below):
    return [a * above[3] + b * (1 - above[3]) for a, b in zip(above[:3], below, strict=True)]


def luminance(rgb):
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(ink, grounds):
    """As WCAG 2 has it, of ink on grounds that lie on each other, the uppermost first."""
    ground = [1.0, 1.0, 1.0]
    for one in reversed(grounds):
        ground = over(colour(one), ground)
    bright, dim = sorted([luminance(over(colour(ink), ground)), luminance(ground)], reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(tab, scheme):
    tab.page.emulate_media(color_scheme=scheme)
    page = tab.open()
    page.locator("#text").fill(TEXT)
    page.locator(".why").first.click()
    page.locator(".stack").wait_for()
    page.locator(".terms summary").click()
    seen = page.evaluate(COLOURS)
    page.get_by_role("tab", name="Many texts").click()
    page.locator("#lines").fill(TEXT)
    page.get_by_role("button", name="Predict").click()
    page.locator("tbody").wait_for()
    seen += page.evaluate(COLOURS)
    page.get_by_role("tab", name="Labels").click()
    page.get_by_role("button", name="Labels similar to").first.click()
    page.locator(".near li").first.wait_for()
    page.get_by_role("button", name="Remove").first.click()
    seen += page.evaluate(COLOURS)
    assert len(seen) > 100
    poor = {one["text"]: contrast(one["ink"], one["grounds"]) for one in seen}
    assert {text: value for text, value in poor.items() if value < 4.5} == {}


def test_dark_and_light_follow_the_system_until_chosen(tab):
    tab.page.emulate_media(color_scheme="dark")
    page = tab.open()
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    button = page.get_by_role("button", name="Dark")
    assert button.get_attribute("aria-pressed") == "true"
    assert luminance(colour(dark)[:3]) < 0.05
    button.click()
    assert luminance(colour(page.evaluate(ground))[:3]) > 0.8
    page.reload()
    assert luminance(colour(page.evaluate(ground))[:3]) > 0.8
    assert page.evaluate("localStorage.getItem('unidex-theme')") == "light"
    button.click()
    # Back to what the system has: nothing is kept, the system decides again.
    assert page.evaluate(ground) == dark
    page.emulate_media(color_scheme="light")
    assert luminance(colour(page.evaluate(ground))[:3]) > 0.8


def test_a_phone_scrolls_one_way_only(phone, service):
    (row,) = ask(service, "POST", "v1/labels", {"uid": "u" * 90, "text": "w" * 90}, TOKEN)["labels"]
    page = phone.open()
    # A phone widens its window to what overflows: the width of the glass is what counts.
    overflow = "document.documentElement.scrollWidth - 360"
    page.locator("#text").fill("w" * 90 + " " + TEXT)
    page.locator(".why").first.click()
    page.locator(".stack").wait_for()
    assert page.evaluate(overflow) <= 0
    page.locator("#text").fill(TEXT)
    shows(page, predicted(service, TEXT)[0])
    # The results begin on the upper half of the first screen.
    assert page.locator(".rows").bounding_box()["y"] < 370
    page.get_by_text("Settings", exact=True).click()
    page.get_by_role("radio", name="Compare").check()
    page.locator(".column").nth(2).wait_for()
    assert page.evaluate(overflow) <= 0
    page.get_by_role("tab", name="Many texts").click()
    page.locator("#lines").fill("w" * 90)
    page.get_by_role("button", name="Predict").click()
    page.locator("tbody").wait_for()
    assert page.evaluate(overflow) <= 0
    page.get_by_role("tab", name="Labels").click()
    page.locator("#search").fill("www")
    # What is clicked before the labels are found is drawn anew with them.
    has(page.locator(".label-rows .label-text"), [row["text"]])
    page.get_by_role("button", name="Labels similar to").first.click()
    page.locator(".near li").first.wait_for()
    assert page.evaluate(overflow) <= 0
    page.get_by_role("button", name="Rename").first.click()
    assert page.evaluate(overflow) <= 0
    ask(service, "DELETE", f"v1/labels/{row['id']}", token=TOKEN)


FOCUS = """() => {
  const now = document.activeElement;
  const style = getComputedStyle(now);
  const seen = parseFloat(style.outlineWidth) > 0 && style.outlineStyle !== "none"
    || now.type === "radio" && parseFloat(getComputedStyle(now.nextElementSibling).outlineWidth) > 0;
  return [now.id || now.ariaLabel || now.value || now.textContent, seen];
}"""


def test_every_action_works_with_the_keyboard(tab, service):
    page = tab.open()
    keys = page.keyboard
    assert page.evaluate(FOCUS)[0] == "text"
    keys.type(TEXT)
    rows = predicted(service, TEXT)[0]
    shows(page, rows)
    walked = []
    for _ in range(40):
        keys.press("Tab")
        name, seen = page.evaluate(FOCUS)
        assert seen, f"{name} shows no focus"
        walked.append(name)
        if name == f"Why {rows[-1]['text']}":
            break
    assert walked[:3] == ["clear", "share", "both"]
    assert [name for name in walked if name.startswith("Why")] == [f"Why {row['text']}" for row in rows]
    keys.press("Enter")
    page.locator(".stack").wait_for()
    keys.press("Escape")
    assert page.locator(".reasons:visible").count() == 0
    assert page.evaluate(FOCUS)[0] == f"Why {rows[-1]['text']}"
    keys.press("/")
    assert page.evaluate(FOCUS)[0] == "text"
    keys.type("/")
    assert page.locator("#text").input_value() == TEXT + "/"
    keys.press("Shift+Tab")
    assert page.evaluate(FOCUS)[0] == "tab-one"
    keys.press("ArrowRight")
    assert page.locator("#many").is_visible()
    keys.press("End")
    assert page.evaluate(FOCUS)[0] == "tab-labels"
    assert page.locator("[role=tab][aria-selected=true]").all_text_contents() == ["Labels"]
    keys.press("ArrowRight")
    assert page.evaluate(FOCUS)[0] == "tab-one"
    keys.press("Shift+Tab")
    keys.press("Shift+Tab")
    assert page.evaluate(FOCUS)[0] == "To the text"
    keys.press("Enter")
    assert page.evaluate(FOCUS)[0] == "text"


def test_every_control_has_a_name_and_every_reference_a_target(tab):
    page = tab.open()
    page.locator("#text").fill(TEXT)
    page.locator(".why").first.click()
    page.locator(".stack").wait_for()
    for name in ("One text", "Many texts", "Labels"):
        page.get_by_role("tab", name=name).click()
        panel = page.get_by_role("tabpanel", name=name)
        panel.wait_for()
        if name == "Labels":
            panel.locator(".label-rows").wait_for()
        nameless = r"^- (button|textbox|searchbox|combobox|slider|spinbutton|radio|tab|dialog|list|link)( \[.*\])?:?$"
        tree = page.locator("body").aria_snapshot()
        unnamed = [line.strip() for line in tree.splitlines() if re.match(nameless, line.strip())]
        assert [line for line in unnamed if not line.startswith("- list")] == []
    wrong = page.evaluate(
        """() => ["aria-controls", "aria-labelledby", "aria-describedby", "for"].flatMap(name =>
          [...document.querySelectorAll(`[${name}]`)].map(one => one.getAttribute(name)))
          .filter(id => !document.getElementById(id))"""
    )
    assert wrong == []
    doubled = (
        "() => [...document.querySelectorAll('[id]')].map(one => one.id).filter((id, at, all) => all.indexOf(id) < at)"
    )
    assert page.evaluate(doubled) == []


def test_the_page_takes_little_cpu_time_to_load(tab):
    """CPU time of the page's main thread, which other work on the machine does not change much."""
    page = tab.open()
    session = tab.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    seconds = []
    for _ in range(3):
        page.reload()
        page.locator("#modes input").first.wait_for(state="attached")
        # Since the navigation.
        metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
        seconds.append(metrics["TaskDuration"])
    assert 0 < min(seconds) < 0.3
