"""The web page with a keyboard, for screen readers, and checked by axe, in Chromium."""
import pytest
from chromium import BOARD, QUESTION, SIZES
from harness import protos
from selenium.webdriver.common.keys import Keys
from test_page_markdown import RICH, show

AXE = protos.ROOT / "build" / "node" / "node_modules" / "axe-core" / "axe.min.js"
# Everything that answers can have.
EVERYTHING = """current.messages = [
                  { role: "user", content: "?" },
                  { role: "assistant", mode: "text", content: arguments[0], thinking: "*so*",
                    notes: { a: "Stage 1 was lost." }, error: "no", facts: { n: 3, stopped: true },
                    tokens: [{ token: "a", text: "a", logprob: -1, ms: 1, top_logprobs: [{ token: "b", logprob: -0.5 }] }] },
                  { role: "user", content: "?" },
                  { role: "assistant", mode: "json", content: "{}", values: [["/a", "1"]], facts: {} },
                  { role: "user", content: "?" },
                  { role: "assistant", mode: "tool", content: "", facts: {},
                    calls: [{ id: "1", name: "departures", args: "{}", result: "{}" }] },
                ];
                current.title = "All";
                showChat(current);
                document.querySelectorAll("details").forEach((one) => (one.open = true))"""
OPEN = {
    "page": "",
    "settings": "openSettings()",
    "keys": "document.getElementById('keys').showModal()",
    "confirm": "remove(current)",
    "edit": "document.querySelector('[aria-label=\"Edit this question\"]').click()",
    "tokens": "document.querySelector('[aria-label^=\"Show tokens\"]').click()",
    "rename": "document.querySelector('#chat-list [aria-label^=Rename]').click()",
    "key": "askForKey(true)",
    "recovery": """showStatus({ ...status, state: "recovering", reason: "stage 1 is lost",
                                recoveries: [
                                  { replica: 0, stage: 0, began: 1, seconds: 1, phase: null, kv_kept: true, reason: "" },
                                  { replica: 0, stage: 1, began: 2, seconds: 1, phase: "load", kv_kept: null, reason: "" },
                                ] }, 1)""",
}
OPEN_NARROW = {"chats": "openDrawer('chats')", "pipeline": "openDrawer('pipeline')"}


# Scrolling hides the tip: true if it is still seen two frames later.
SHOW_TIP = """showTip(document.querySelector(".token"));
              return new Promise((done) =>
                requestAnimationFrame(() => requestAnimationFrame(() => done(!document.getElementById("tip").hidden))))"""


def findings(page):
    """What axe finds, as text."""
    if not page.run("return Boolean(window.axe)"):
        page.run(AXE.read_text())
    result = page.driver.execute_async_script("axe.run(document).then(arguments[0])")
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in result["violations"] for node in one["nodes"]]


@pytest.mark.skipif(not AXE.exists(), reason="no axe-core here")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page, size, scheme):
    page.show_as(size, scheme)
    # Nothing moves, so that no colour is seen half way.
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
        {"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}]})
    page.run("clearTimeout(pollTimer); n_polls = 1e9")  # no look at the server changes what is shown
    assert findings(page) == []  # without any chat
    for name, script in {**OPEN, **(OPEN_NARROW if size == "narrow" else {})}.items():
        page.run(EVERYTHING, RICH)
        page.run(script)
        if name == "tokens":
            page.wait(lambda: page.run(SHOW_TIP))
        assert findings(page) == [], name
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), name
        page.run("""document.querySelectorAll("dialog[open]").forEach((one) => one.close());
                    document.activeElement.blur();
                    closeDrawers();
                    askForKey(false)""")
    page.show_as_usual()


def test_everything_by_keyboard(page):
    """A conversation without a pointer: each control is reached by Tab, and its focus is seen."""
    page.run("document.querySelector('.skip').focus()")
    reached = [page.focused()]
    for _ in range(40):
        page.press(Keys.TAB)
        if not page.run("return document.hasFocus() && document.activeElement !== document.body"):
            break
        style = page.run("const of = getComputedStyle(document.activeElement); return [of.outlineStyle, of.outlineWidth]")
        name = page.focused()
        # The message's frame shows its focus, and the label of a form of answer shows that of its button.
        assert style[0] == "solid" and float(style[1].removesuffix("px")) >= 2 or name == "question" or "mode" in page.run(
            "return document.activeElement.name ?? ''"), name
        if name in reached:
            break
        reached.append(name)
    for name in ("Skip to the message", "open-settings", "open-keys", "new", "log", "question", "send"):
        assert name in reached, (name, reached)
    page.one("#question").send_keys(QUESTION, Keys.ENTER)
    page.answer()
    assert page.focused() == "question"  # the answer took nothing away
    page.press(Keys.SHIFT, Keys.TAB, Keys.NULL)
    assert page.focused().startswith("Show tokens")
    page.press(Keys.ENTER)
    assert page.focused().startswith("Tokens of the answer")
    page.press(Keys.ALT, "n", Keys.NULL)
    assert page.focused() == "question" and page.all(".turn") == []
    page.one("#question").send_keys(QUESTION, Keys.SHIFT, Keys.ENTER, Keys.NULL, "Please.")
    assert page.one("#question").get_attribute("value") == f"{QUESTION}\nPlease."
    page.run("document.getElementById('open-settings').focus()")
    page.press(Keys.ENTER)
    assert page.focused() == "system"
    page.press(Keys.ESCAPE)
    assert page.focused() == "open-settings"


def test_escape_stops_an_answer(page):
    page.run("""const plain = takeEvent;
                window.takeEvent = (message, event, text) => {
                  plain(message, event, text);
                  if (message.content) document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
                }""")
    page.say(BOARD)
    assert page.message()["facts"]["stopped"]


def test_a_screen_reader_hears_blocks_and_not_tokens(page):
    page.run("""window.heard = [];
                new MutationObserver((changes) => {
                  for (const change of changes) heard.push(...[...change.addedNodes].map((node) => node.textContent));
                }).observe(document.getElementById("announcer"), { childList: true })""")
    page.say(BOARD)
    message = page.message()
    heard = page.run("return heard")
    assert 1 <= len(heard) <= 4 < message["facts"]["n"] / 10
    assert "Coldwater" in heard[0]
    for live in page.all("[aria-live], [role=log], [role=status], [role=alert]"):
        assert page.run("return !arguments[0].contains(document.querySelector('.assistant'))", live)
    assert page.one(".assistant").get_attribute("aria-busy") == "false"


def test_drawers_of_a_narrow_window(page):
    page.show_as("narrow", "light")
    page.wait(lambda: not page.one("#chats").is_displayed() and not page.one("#pipeline").is_displayed())
    for opener, drawer in (("open-chats", "chats"), ("strip", "pipeline")):
        page.click(f"#{opener}")
        page.wait(lambda drawer=drawer: page.one(f"#{drawer}").is_displayed())
        assert page.one(f"#{opener}").get_attribute("aria-expanded") == "true"
        assert page.run("return document.activeElement.closest('#' + arguments[0]) !== null", drawer)
        assert page.run("return document.querySelector('main').inert")
        page.press(Keys.ESCAPE)
        page.wait(lambda drawer=drawer: not page.one(f"#{drawer}").is_displayed())
        assert page.focused() == opener
    page.show_as_usual()


def test_motion_is_reduced(page):
    page.run(EVERYTHING, RICH)
    page.run("document.getElementById('pipeline').classList.add('working'); clearTimeout(pollTimer); n_polls = 1e9")
    moving = "return document.getAnimations().filter((one) => one.playState === 'running').length"
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]})
    assert page.run(moving) == 0
    page.show_as_usual()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_appearance(page, size, scheme):
    page.show_as(size, scheme)
    show(page, RICH)
    width, height = SIZES[size]
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")
    red, green, blue = page.run("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)")
    assert (red + green + blue < 200) == (scheme == "dark")
    for name in ("question", "send", "open-settings"):
        box = page.one(f"#{name}").rect
        assert 0 <= box["x"] and box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= height and box["height"] >= 24
    page.show_as_usual()
