"""The web page's conversations, in Chromium."""
import json
import re

import pytest
from chromium import BOARD, QUESTION
from harness import DEMO_MODEL, Cluster
from recovery import TOOLS_TEMPLATE
from selenium.webdriver.common.keys import Keys
from wire import ask


def served(cluster, messages, **fields):
    whole = ask(cluster.http, "POST", "/v1/chat/completions", {"messages": messages, "temperature": 0, **fields}).json
    return whole["choices"][0]["message"]["content"]


def question(text=QUESTION):
    return {"role": "user", "content": text}


def titles(page):
    return page.texts("#chat-list .open")


def test_a_conversation(page, cluster):
    page.say(QUESTION)
    first = page.message()["content"]
    assert first == served(cluster, [question()])
    facts = page.answer().find_element("class name", "facts").text
    assert re.fullmatch(r"\d+ tokens · \d+\.\d tokens/s · first token after \d+ ms · prompt of \d+ tokens(, \d+ cached)?", facts)
    # The second request has the first answer in it, so a part of its prompt is cached.
    page.say("And the last?")
    messages = [question(), {"role": "assistant", "content": first}, question("And the last?")]
    assert page.message(2)["content"] == served(cluster, messages)
    assert " cached" in page.answer(2).text


def test_a_system_message_and_settings(page, cluster):
    page.click("#open-settings")
    page.one("#system").send_keys("Today is Sunday.")
    page.one("#max_tokens").send_keys("7")
    page.press(Keys.ESCAPE)
    page.say(QUESTION)
    expected = served(cluster, [{"role": "system", "content": "Today is Sunday."}, question()], max_tokens=7)
    assert page.message()["content"] == expected
    assert "cut off" in page.answer().text
    page.new_chat()  # has settings of its own
    page.click("#open-settings")
    assert page.one("#system").get_attribute("value") == ""
    page.press(Keys.ESCAPE)


def test_an_answer_is_made_again(page, cluster):
    page.say(QUESTION)
    page.answer()
    page.say("And the last?")
    page.answer(2)
    page.run("current.max_tokens = 5")
    page.answer(1).find_element("css selector", "[aria-label='Answer again']").click()
    page.wait(lambda: len(page.all(".turn")) == 2)
    assert page.message()["content"] == served(cluster, [question()], max_tokens=5)


def test_a_question_is_edited(page, cluster):
    page.say(QUESTION)
    page.answer()
    page.say("And the last?")
    page.answer(2)
    page.one("#question").send_keys(Keys.ARROW_UP)
    area = page.one(".edit textarea")
    assert area.get_attribute("value") == "And the last?"
    area.send_keys(Keys.ESCAPE)
    assert page.all(".edit") == []
    page.all("[aria-label='Edit this question']")[0].click()
    page.press(Keys.CONTROL, "a", Keys.NULL, Keys.BACKSPACE, BOARD, Keys.ENTER)
    page.wait(lambda: len(page.all(".turn")) == 2)
    assert page.message()["content"] == served(cluster, [question(BOARD)])
    assert page.text(".user .text") == BOARD


def test_chats_are_kept_renamed_and_deleted(page, cluster):
    page.say(QUESTION)
    page.answer()
    page.click("#new")
    page.say(BOARD)
    kept = page.message()["content"]
    assert titles(page) == [BOARD, QUESTION]
    page.run("document.querySelector('#chat-list [aria-label^=Rename]').click()")
    page.press(Keys.CONTROL, "a", Keys.NULL, "Coldwater", Keys.ENTER)
    assert titles(page) == ["Coldwater", QUESTION]
    page.run("""localStorage.setItem("stagecoach.chat.broken", "{");
                localStorage.setItem("stagecoach.chat.odd", '{"id": "odd", "messages": [1]}')""")
    page.driver.refresh()
    page.wait(lambda: page.all(".stage"))
    assert titles(page) == ["Coldwater", QUESTION]
    assert page.message()["content"] == kept
    assert page.answer().text.splitlines()[-1].startswith(f"{page.message()['facts']['n']} tokens")
    page.all("#chat-list .open")[1].click()
    assert page.text(".user .text") == QUESTION
    for button, left in (("cancel", ["Coldwater", QUESTION]), ("delete", ["Coldwater"])):
        page.run("document.querySelectorAll('#chat-list [aria-label^=Delete]')[1].click()")
        assert page.text("#confirm-name") == QUESTION
        page.click(f"#confirm [value={button}]")
        page.wait(lambda left=left: titles(page) == left)
    page.driver.refresh()
    page.wait(lambda: page.all(".stage"))
    assert titles(page) == ["Coldwater"]


def test_a_reload_keeps_what_was_written(page):
    # The answer waits after its first words, so that it cannot end before the page is gone.
    page.run("""const plain = answerEvents;
                window.answerEvents = async function* (...request) {
                  for await (const event of plain(...request)) {
                    yield event;
                    if (!event.choices?.[0]?.delta?.content) continue;
                    location.reload();
                    await new Promise(() => {});
                  }
                }""")
    page.say(BOARD)
    page.wait(lambda: page.run("return document.readyState === 'complete' && running.size === 0 && current.messages.length === 2"))
    message = page.message()
    assert message["content"] and message["facts"]["stopped"]
    assert "stopped" in page.answer().text


def test_answers_of_two_chats_at_once(page, cluster):
    page.run("""for (const question of arguments[0]) {
                  addNew();
                  current.temperature = "0";
                  askIn(current, question);
                }""", [QUESTION, BOARD])
    assert page.message()["content"] == served(cluster, [question(BOARD)])
    page.run("showChat(chats.find((chat) => chat.title === arguments[0]))", QUESTION)
    assert page.message()["content"] == served(cluster, [question()])


def test_a_full_store(page):
    page.run("""const piece = "x".repeat(100_000);
                try {
                  for (let i = 0; ; ++i) localStorage.setItem(`filler${i}`, piece);
                } catch {
                  // it is full
                }
                try {
                  for (let i = 0; ; ++i) localStorage.setItem(`small${i}`, "x");
                } catch {
                  // to the last byte
                }""")
    page.say(QUESTION)
    assert page.message()["content"]
    assert "full" in page.text("#store-note")
    page.run("localStorage.clear()")
    page.say("And the last?")
    page.answer(2)
    assert not page.one("#store-note").is_displayed()
    assert page.run("return Object.keys(localStorage).length") == 1


def test_stopping_and_errors(page):
    page.run("askIn(current, arguments[0]); stopAnswer(current)", QUESTION)
    assert page.answer().text == "stopped"
    page.run("current.max_tokens = 999999")
    page.say(QUESTION)
    assert "maximum context length" in page.answer(2).find_element("class name", "failure").text
    page.complaints()  # the browser logs the 400 itself
    page.run("current.max_tokens = 3")
    page.say(QUESTION)
    assert "cut off" in page.answer(3).text
    # Questions without an answer are not sent again.
    sent = page.run("return conversation(current, current.messages.length)")
    assert [one["role"] for one in sent] == ["user", "assistant"]


def test_values_of_a_json_answer_are_shown_as_they_come(page, cluster):
    page.run("""window.seen = [];
                new MutationObserver(() => seen.push(document.querySelector(".json")?.innerText))
                  .observe(document.getElementById("log"), { childList: true, characterData: true, subtree: true })""")
    page.say(QUESTION, mode="json")
    message = page.message()
    schema = json.loads(page.run("return current.schema"))
    expected = json.loads(served(cluster, [question()], guided_json=schema))
    assert json.loads(message["content"]) == expected
    shown = {row.find_element("tag name", "dt").text: row.find_element("tag name", "dd").text for row in page.all(".json > div")}
    assert shown["from"] == expected["from"]
    assert [shown[name] for name in shown if name.startswith("departures")] == expected["departures"]
    assert "{" not in "".join(filter(None, page.run("return seen")))
    # The conversation goes on from there.
    page.say("And the last?", mode="text")
    assert page.message(2)["content"]


def test_json_values_become_a_document(page):
    values = [["/a~1b", "x"], ["/list/0/n", "1.5"], ["/list/0/yes", "true"], ["/list/1/n", "07"], ["/none", "null"]]
    assert page.run("return documentOf(arguments[0])", values) == {
        "a/b": "x", "list": [{"n": 1.5, "yes": True}, {"n": "07"}], "none": None}
    assert page.run("return documentOf([['/__proto__/polluted', 'x']]) && ({}).polluted") is None


@pytest.fixture(scope="module")
def tool_cluster(tmp_path_factory):
    """A template that renders tools and knows thinking."""
    template = tmp_path_factory.mktemp("template") / "template.jinja"
    template.write_text(TOOLS_TEMPLATE.read_text() + "{% if enable_thinking %}<think></think>{% endif %}")
    with Cluster(DEMO_MODEL, flags=["--chat-template", template]) as cluster:
        yield cluster


@pytest.fixture
def tool_page(browser, tool_cluster):
    browser.open(tool_cluster.http)
    browser.new_chat(max_tokens="200", seed="1", tool_choice="required")
    yield browser
    browser.leave()


def test_the_demo_model_calls_the_tool_by_itself(page):
    page.say(QUESTION, mode="tool")
    (call,) = page.message()["calls"]
    assert json.loads(call["args"]) == {"from": "Greywell", "to": "Elmstead", "day": "sunday"}
    first = json.loads(call["result"])["departures"][0]
    assert page.message(2)["content"] == (f"On Sundays the first coach from Greywell to Elmstead leaves at {first['departure']} "
                                          f"and arrives at {first['arrival']}.")
    page.say("Thank you!", mode="tool")
    assert page.message(3).get("calls", []) == []


def test_a_tool_runs_in_the_page(tool_page):
    tool_page.say(QUESTION, mode="tool")
    called = tool_page.message()
    (call,) = called["calls"]
    assert call["name"] == "departures"
    arguments = json.loads(call["args"])
    assert json.loads(call["result"])["from"] == arguments["from"] or arguments["from"] == arguments["to"]
    # The model has the result, and answers.
    after = tool_page.message(2)
    assert after.get("error") is None and after["facts"]["prompt"] > called["facts"]["prompt"]
    details = tool_page.one(".call")
    assert details.get_attribute("open") is None
    assert details.find_element("tag name", "summary").text.startswith("Tool departures")
    details.find_element("tag name", "summary").click()
    assert details.find_element("class name", "result").text == call["result"]


def test_a_template_that_takes_no_results(tool_page):
    """The page shows the result, and the chat goes on without it."""
    tool_page.run("""const plain = answerEvents;
                     window.answerEvents = (path, request, ...of) => {
                       if (request.messages.at(-1).role !== "tool") return plain(path, request, ...of);
                       window.answerEvents = plain;
                       throw new Refused(400, { message: "roles are system, user and assistant" });
                     }""")
    tool_page.say(QUESTION, mode="tool")
    tool_page.wait(lambda: "takes no results" in tool_page.one("#log").text)
    assert tool_page.all(".turn .failure") == []
    tool_page.say("And the last?", mode="text")
    assert tool_page.message(3)["content"]
    sent = tool_page.run("return conversation(current, current.messages.length)")
    assert [one["role"] for one in sent] == ["user", "assistant"]


def test_the_tool_knows_the_timetable_of_the_demo_model(page, timetable):
    asked = [(origin, destination, day) for day in timetable.DAYS for origin in timetable.STOPS for destination in timetable.STOPS
             if origin != destination]
    results = page.run("return arguments[0].map(([from, to, day]) => departures(JSON.stringify({ from, to, day })))", asked)
    for one, result in zip(asked, results, strict=True):
        expected = [{"departure": timetable.clock(journey.departure), "arrival": timetable.clock(journey.arrival)}
                    for journey in timetable.journeys(*one)]
        assert result["departures"] == expected
    for odd in ("", "null", "[]", '{"from": "Rome", "to": "Greywell", "day": "sunday"}',
                '{"from": "Greywell", "to": "Greywell", "day": "sunday"}'):
        assert "error" in page.run("return departures(arguments[0])", odd)


def test_thinking_is_folded(tool_page):
    tool_page.force("<think>The first is the earliest.</think>At a quarter to eight.")
    tool_page.say(QUESTION)
    message = tool_page.message()
    assert (message["thinking"], message["content"]) == ("The first is the earliest.", "At a quarter to eight.")
    assert tool_page.answer().find_element("class name", "text").text == "At a quarter to eight."
    details = tool_page.one(".thinking")
    assert details.get_attribute("open") is None
    details.find_element("tag name", "summary").click()
    assert "The first is the earliest." in details.text
    assert "tokens of thinking" in tool_page.answer().text


def test_tokens_show_their_alternatives(page):
    page.say(QUESTION)
    page.answer()
    page.click("[aria-label^='Show tokens']")
    tokens = page.all(".token")
    assert "".join(token.get_attribute("textContent") for token in tokens) == page.message()["content"]
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    tip = page.one("#tip")
    assert tip.is_displayed()
    assert len(tip.find_elements("tag name", "li")) == 5
    assert len(tip.find_elements("class name", "chosen")) == 1
    assert "log-probability" in tip.text
    assert page.all(".token.shown") == [tokens[2]]
    page.click("[aria-label^='Show tokens']")
    assert not tip.is_displayed() and page.all(".token") == []
