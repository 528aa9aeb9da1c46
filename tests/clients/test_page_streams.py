"""The streams of the web page, in Chromium: connections break, the router dies, and the answers go on."""
import concurrent.futures

from chromium import QUESTION
from harness import DEMO_MODEL, Cluster
from proxy import CuttableProxy
from resumed import await_router, kill_router
from wire import ask, metric, wait_for


def tokens_of(browser):
    return "".join(browser.run("return current.messages.at(-1).tokens.map((token) => token.text ?? token)"))


def facts(browser, n=1):
    return browser.answer(n).find_element("class name", "facts").text


def test_a_broken_stream_is_resumed(browser, cluster):
    resumed = metric(cluster.http, "stagecoach_streams_resumed_total")
    with CuttableProxy(cluster.http) as proxy:
        browser.open(proxy.address)
        for mark in (b"id: 3\n", b"id: 9\n", b"event-stream"):
            browser.new_chat()
            proxy.cut_at(mark)
            browser.say(QUESTION)
            browser.wait(lambda: browser.all(".assistant.running.lost"))
            assert browser.text(".assistant .facts").endswith("connection lost, reconnecting")
            assert browser.all(".turn .failure") == []
            proxy.mend()
            text = browser.message()["content"]
            body = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
            whole = ask(cluster.http, "POST", "/v1/chat/completions", body).json
            assert text == tokens_of(browser) == whole["choices"][0]["message"]["content"]
            assert facts(browser).startswith(f"{whole['usage']['completion_tokens']} tokens ") and "lost" not in facts(browser)
        assert metric(cluster.http, "stagecoach_streams_resumed_total") > resumed
        proxy.cut_at(b"id: 1\n")
        browser.say(QUESTION)
        browser.wait(lambda: browser.all(".assistant.running.lost"))
        browser.click("#send")
        assert facts(browser, 2).endswith("stopped")
        browser.leave()


def test_a_stream_outlives_its_router(browser, tmp_path):
    with Cluster(DEMO_MODEL, flags=["--journal", tmp_path / "journal"]) as cluster:
        browser.open(cluster.http)
        browser.new_chat(max_tokens="600")
        # The answer lasts until the router is killed, and the page may be lost only for a moment.
        browser.run("""const plain = requestFor;
                       window.requestFor = (...of) => {
                         const [path, body] = plain(...of);
                         return [path, { ...body, ignore_eos: true }];
                       };
                       window.losses = 0;
                       new MutationObserver(() => {
                         if (document.querySelector(".assistant.running.lost")) ++losses;
                       }).observe(document.getElementById("log"), { attributes: true, subtree: true })""")

        def kill_during_the_answer():
            wait_for(lambda: metric(cluster.http, "vllm:generation_tokens_total") >= 5)
            kill_router(cluster)

        # The browser is slow to tell that the first token is there: by then the answer can be complete.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            killed = pool.submit(kill_during_the_answer)
            browser.say(QUESTION)
            killed.result()
        message = browser.message()
        assert message.get("error") is None
        assert browser.run("return losses") > 0
        await_router(cluster)
        messages = [{"role": "user", "content": QUESTION}]
        body = {"messages": messages, "temperature": 0, "max_tokens": 600, "ignore_eos": True}
        assert message["content"] == ask(cluster.http, "POST", "/v1/chat/completions", body).json["choices"][0]["message"]["content"]
        browser.leave()


def test_stopping_cancels_the_request_on_the_server(browser):
    """The page stops by itself at the first token, because the whole answer can be there before a driver's next command.
    Without the page's DELETE, the server would keep the stream for an hour."""
    with Cluster(DEMO_MODEL, flags=["--resume-time", "3600"]) as cluster:
        browser.open(cluster.http)
        browser.run("""const plain = takeEvent;
                       window.takeEvent = (message, event, text) => {
                         plain(message, event, text);
                         if (message.content) stopAnswer(current);
                       }""")
        browser.say(QUESTION)
        assert facts(browser).endswith("stopped")
        wait_for(lambda: metric(cluster.http, "stagecoach_resumable_streams") == 0)
        browser.leave()


def test_a_server_without_resumable_streams(browser):
    with Cluster(DEMO_MODEL, flags=["--resume-time", "0"]) as cluster:
        browser.open(cluster.http)
        browser.say(QUESTION)
        assert browser.message()["content"]
        browser.leave()
