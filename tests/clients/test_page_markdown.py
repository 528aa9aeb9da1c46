"""Markdown on the web page, in Chromium: what a model writes becomes elements, and never HTML that runs."""
from chromium import QUESTION

# The model writes this, token by token: a grammar has nothing else.
RICH = """## Lines
The **Red** and the *Blue* ~~or Green~~ line, `by coach`:
- [x] one
- two
  1. deep

| line | leaves |
|:--|--:|
| Red | 07:45 |

> a quote

```py
a = "<b>"
```
[site](https://example.com/a) &amp; end"""
HOSTILE = """<script>document.title='broken'</script> <img src=x onerror="document.title='broken'">

<iframe src="javascript:parent.document.title='broken'"></iframe>

[a](javascript:document.title='broken') [b](data:text/html,<script>1</script>) [c](JaVaScRiPt:1) [d](/v1/models) [e](//example.com)
![f](x" onerror="document.title='broken') <a href="javascript:1" onclick="1">g</a> [h](vbscript:1 "t") <style>*{display:none}</style>

```html
<script>document.title='broken'</script>
```"""


def show(page, text):
    """Shows an answer with this text."""
    page.run("""current.messages = [{ role: "user", content: "?" }, { role: "assistant", mode: "text", content: arguments[0] }];
                showChat(current)""", text)
    return page.one(".assistant .text")


def markup(page, selector):
    return page.one(f".assistant .text {selector}").get_attribute("textContent")


def test_markdown_of_a_stream(page):
    page.force(RICH)
    page.say(QUESTION)
    assert page.message()["content"] == RICH
    assert markup(page, "h2") == "Lines"
    assert (markup(page, "strong"), markup(page, "em"), markup(page, "del")) == ("Red", "Blue", "or Green")
    assert markup(page, "p code") == "by coach"
    assert [item.split("\n")[0] for item in page.texts(".assistant .text li")] == ["☑ one", "two", "deep"]
    assert page.texts(".assistant td") == ["Red", "07:45"]
    assert page.one(".assistant td:last-child").value_of_css_property("text-align") == "right"
    assert markup(page, "blockquote") == "a quote"
    assert markup(page, "pre code") == 'a = "<b>"'
    assert page.one(".assistant figcaption span").text == "py"
    link = page.one(".assistant .text a")
    assert (link.get_attribute("href"), link.get_attribute("rel"), link.get_attribute("target")) == (
        "https://example.com/a", "noopener noreferrer", "_blank")
    assert page.one(".assistant .text").text.endswith("site & end")


def test_code_is_copied(page):
    page.driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
    show(page, RICH)
    page.click("[aria-label='Copy code']")
    page.wait(lambda: page.all("[aria-label='Copy code'].done"))
    assert page.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])") == 'a = "<b>"'
    # Over plain HTTP from another machine, a page has no clipboard.
    page.run("navigator.clipboard.writeText = () => Promise.reject(new Error()); addEventListener('copy', () => (window.copied = true))")
    page.click("[aria-label='Copy this answer']")
    page.wait(lambda: page.run("return window.copied"))


def test_growing_text_keeps_what_is_complete(page):
    """Every prefix can be shown, and blocks that are complete keep their elements, with the reader's selection in them."""
    kept = page.run("""const body = document.createElement("div");
                       const view = new MarkdownView(body);
                       let first = null;
                       let code = null;
                       for (let n = 1; n <= arguments[0].length; ++n) {
                         view.show(arguments[0].slice(0, n));
                         if (n > arguments[0].indexOf("The")) first ??= body.firstElementChild;
                         if (n > arguments[0].indexOf("a = ")) code ??= body.querySelector("pre");
                       }
                       const whole = document.createElement("div");
                       new MarkdownView(whole).show(arguments[0]);
                       return [body.firstElementChild === first, body.querySelector("pre") === code, body.innerHTML === whole.innerHTML]""",
                    RICH)
    assert kept == [True, True, True]


def test_hostile_text_stays_text(page):
    page.force(HOSTILE)
    page.run("askIn(current, arguments[0])", HOSTILE)
    assert page.message()["content"] == HOSTILE
    for selector in ("script", "img", "iframe", "style", "a", "[onerror]", "[onclick]", "[href]", "[src]"):
        assert page.all(f".turn {selector}") == [], selector
    assert page.one(".user .text").get_attribute("textContent") == HOSTILE
    shown = page.one(".assistant .text").get_attribute("textContent")
    for text in ("<script>document.title='broken'</script>", "onerror=", "<iframe", "<style>"):
        assert text in shown
    assert page.driver.title == "stagecoach"


def test_hostile_text_in_other_places(page):
    page.run("""const bad = "<img src=x onerror=\\"document.title='broken'\\">";
                current.title = bad;
                current.messages = [
                  { role: "user", content: bad },
                  { role: "assistant", mode: "tool", content: "", thinking: bad, calls: [{ id: "1", name: bad, args: bad, result: bad }],
                    notes: { a: bad }, error: bad, facts: {} },
                  { role: "assistant", mode: "json", content: bad, values: [["/" + bad, bad]],
                    facts: { stored: { [bad]: 1 }, prompt: 1, cached: 1 } },
                ];
                showChat(current);
                announce(bad)""")
    assert page.all("img") == [] and page.driver.title == "stagecoach"


def test_text_that_is_too_deep_or_too_long_is_shown_as_it_is(page):
    for text in (">" * 20_000 + "x", "- " * 5_000 + "x", "[x" * 5_000, "**x " * 5_000, "x" * 400_000):
        assert "x" in show(page, text).get_attribute("textContent")
