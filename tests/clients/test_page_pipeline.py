"""The web page's view of the pipeline, in Chromium: stages at work, tiers of the KV cache, recoveries."""
import contextlib
import os
import signal
import subprocess

import pytest
from chromium import BOARD, QUESTION
from faults import pids
from harness import DEMO_MODEL, Cluster, free_ports, parse_ready, start
from lost_stages import await_workers
from wire import ask, metric, wait_for

# The answer lasts until the test has done its part.
ENDLESS = """const plain = requestFor;
             window.requestFor = (...of) => {
               const [path, body] = plain(...of);
               return [path, { ...body, ignore_eos: true }];
             }"""
SYSTEM = ("You are the timetable desk of the Larkspur Valley Stage Line. It is Sunday, 06:30 in the morning. Answer in one short "
          "sentence, name both stops and the time, and say where to change if there is no direct coach. Be kind to everybody.")


def served(address, n_tokens):
    body = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": n_tokens, "ignore_eos": True}
    return ask(address, "POST", "/v1/chat/completions", body).json["choices"][0]["message"]["content"]


def trouble(page):
    return page.texts(".stage .trouble")


def test_the_pipeline_at_work(page):
    assert [stage.split("\n")[0] for stage in page.texts(".stage b")] == ["Stage 0", "Stage 1"]
    assert "demo-model" in page.text("#model")
    assert page.text("#state") == "ready"
    page.new_chat(max_tokens="1500")
    page.run(ENDLESS)
    page.say(BOARD)
    page.wait(lambda: page.run("""const of = (id) => document.getElementById(id);
                                  return of("pipeline").classList.contains("working")
                                      && document.querySelectorAll(".stage.working").length === 2
                                      && of("running").textContent === "1" && !of("kv").textContent.startsWith("0 of ")"""))
    page.wait(lambda: page.text("#tokens-rate") != "0 /s")  # a fast machine has ended the answer by now
    page.run("stopAnswer(current)")
    page.answer()
    page.wait(lambda: not page.all("#pipeline.working"))
    assert page.text("#running") == "0"
    assert page.texts("#tiers th[scope=row]") == ["Device"]
    assert page.text("#no-recovery") == "No stage was lost."


def test_stages_of_replicas(page):
    """Replica 1 was left."""
    page.run("""clearTimeout(pollTimer);
                n_polls = 1e9;
                const stages = [0, 2].flatMap((replica) => status.stages.map((stage) => ({ ...stage, replica })));
                const loss = { replica: 2, stage: 1, began: 1, seconds: 1, phase: "load", kv_kept: null, reason: "" };
                showStatus({ ...status, stages, recoveries: [loss] }, performance.now())""")
    names = ["Replica 0, stage 0", "Replica 0, stage 1", "Replica 2, stage 0", "Replica 2, stage 1"]
    assert page.texts(".stage b") == names
    assert trouble(page) == ["", "", "", "lost: loads its layers"]
    assert page.text("#recoveries li span") == "Stage 1 of replica 2 was lost, and loads its layers."


def test_metrics_are_read(page):
    text = '# HELP a b\n# TYPE a counter\na{x="1",y="a \\"b\\" {c}"} 2.5\na{x="2",y=""} 4\nb 1e3\n'
    samples = page.run("return parseMetrics(arguments[0])", text)
    assert [(one["name"], one["labels"].get("x"), one["value"]) for one in samples] == [("a", "1", 2.5), ("a", "2", 4), ("b", None, 1000)]
    sums = page.run("""const all = parseMetrics(arguments[0]);
                       return [sumOf(all, "a"), mostOf(all, "a"), sumOf(all, "a", { x: "1" })]""", text)
    assert sums == [6.5, 4, 2.5]


def test_a_killed_stage_is_replaced_and_the_answer_goes_on(browser):
    with Cluster(DEMO_MODEL, stages=2) as cluster:
        browser.open(cluster.http)
        browser.wait(lambda: browser.text("#state") == "ready")
        browser.new_chat(max_tokens="500")
        browser.run(ENDLESS)
        browser.say(QUESTION)
        wait_for(lambda: metric(cluster.http, "vllm:generation_tokens_total") >= 5)
        worker = await_workers(cluster)[1]
        os.kill(worker, signal.SIGKILL)
        browser.wait(lambda: browser.all("#recoveries li"))
        browser.wait(lambda: "replaced after" in browser.text("#recoveries"))
        browser.wait(lambda: browser.text("#recoveries li span").startswith("Stage 1 was lost, and replaced after "))
        browser.wait(lambda: browser.text("#state") == "ready")
        message = browser.message()
        assert message.get("error") is None
        assert message["content"] == served(cluster.http, 500)
        (note,) = list(message["notes"].values())
        assert note.startswith("Stage 1 was lost, and replaced after ") and note.endswith("The answer went on.")
        browser.wait(lambda: browser.text(".assistant .notes") == note)
        told = note.removesuffix(" The answer went on.")
        browser.wait(lambda: told in [one.get_attribute("textContent") for one in browser.all("#announcer p")])
        (listed,) = ask(cluster.http, "GET", "/status").json["recoveries"]
        assert (listed["stage"], listed["phase"]) == (1, None) and listed["seconds"] > 0
        browser.leave()
        assert pids(cluster)[1][1] != worker


@pytest.fixture
def by_hand():
    """A function that starts a worker, both workers, their router and its HTTP address. Nobody starts them again."""
    with contextlib.ExitStack() as stack:
        first = free_ports(2)
        addresses = [f"127.0.0.1:{first}", f"127.0.0.1:{first + 1}"]

        def worker(i):
            one = start(stack, "stagecoach-worker", "--listen", addresses[i], "--threads", "1", stderr=subprocess.DEVNULL)
            parse_ready(one.stdout.readline(), "listening")
            return one

        workers = [worker(0), worker(1)]
        router = start(stack, "stagecoach-router", "--model", str(DEMO_MODEL), "--stages", ",".join(addresses), "--grpc", "off",
                       "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", stderr=subprocess.DEVNULL)
        yield worker, workers, router, parse_ready(router.stdout.readline())["http"]


def test_a_recovery_that_takes_long_and_the_end_of_the_server(browser, by_hand):
    worker, workers, router, address = by_hand
    browser.open(address)
    browser.new_chat(max_tokens="500")
    browser.run(ENDLESS)
    browser.say(QUESTION)
    wait_for(lambda: metric(address, "vllm:generation_tokens_total") >= 5)
    workers[1].kill()
    browser.wait(lambda: browser.text("#state") == "recovering")
    browser.wait(lambda: browser.all(".stage.lost"))
    assert trouble(browser) == ["", "lost: waits for its new process"]
    assert "stage 1" in browser.text("#reason")
    browser.wait(lambda: "The answer will go on." in browser.text(".assistant .notes"))
    assert browser.all(".assistant.running") != []
    worker(1)
    browser.wait(lambda: browser.text("#state") == "ready")
    assert browser.message()["content"] == served(address, 500)
    browser.wait(lambda: "The answer went on." in browser.text(".assistant .notes"))
    assert trouble(browser) == ["", ""] and not browser.one("#reason").is_displayed()
    # The server is told to stop, and finishes what runs.
    browser.new_chat(max_tokens="1900")
    browser.say(QUESTION)
    browser.wait(lambda: browser.text("#running") == "1")
    router.terminate()
    browser.wait(lambda: browser.text("#state") == "draining")
    browser.run("stopAnswer(current)")
    browser.wait(lambda: browser.text("#state") == "no answer")
    browser.leave()


def test_cached_tokens_by_tier(browser):
    """The second chat's prompt begins as the first one's. Meanwhile another request took the device's blocks."""
    with Cluster(DEMO_MODEL, flags=["--max-model-len", "512", "--kv-memory", "3MiB", "--host-kv", "64MiB"]) as cluster:
        browser.open(cluster.http)
        browser.new_chat(system=SYSTEM, max_tokens="8")
        browser.say(QUESTION)
        browser.answer()
        wait_for(lambda: metric(cluster.http, "stagecoach_stage_host_kv_blocks") >= 5)
        for i in range(3):
            text = f"{i} " + " ".join(str(n * n + i) for n in range(80))
            assert ask(cluster.http, "POST", "/v1/completions", {"prompt": text, "max_tokens": 2}).status == 200
        browser.new_chat(system=SYSTEM, max_tokens="8")
        browser.say(QUESTION)
        stored = browser.message()["facts"]["stored"]
        assert stored["host"] >= 64
        assert f"({stored['host']} from host memory)" in browser.answer().text
        browser.wait(lambda: [cell.text for cell in browser.all("#tiers th[scope=row]")] == ["Device", "Host memory"])
        browser.wait(lambda: browser.text("#tiers tbody tr:last-child td:last-child") != "0")
        browser.leave()
