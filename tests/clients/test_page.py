"""The web page in a real browser. Screenshots are saved under build/page."""
import concurrent.futures
import pathlib
import re
import shutil

import pytest
from harness import DEMO_MODEL, Cluster
from proxy import CuttableProxy
from resumed import await_router, kill_router
from wire import ask, metric, wait_for

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
if not (CHROMIUM and DRIVER):
    # Ubuntu 24.04 has Chromium only as a snap; on Debian deploy/install-deps.sh --test installs it.
    assert "ubuntu" in pathlib.Path("/etc/os-release").read_text().lower(), "run deploy/install-deps.sh --test"
    pytest.skip("no Chromium on this system", allow_module_level=True)

from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

SHOTS = pathlib.Path(__file__).parents[2] / "build" / "page"
QUESTION = "When does the first coach leave Greywell for Elmstead on Sunday?"
SIZES = {"wide": (1280, 800), "narrow": (390, 844)}


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server",
                     "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(60)
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, cluster):
    browser.get(f"http://{cluster.http}/")
    wait(browser, lambda: browser.find_elements(By.CLASS_NAME, "stage"))
    fill(browser, "temperature", "0")
    yield browser
    # There was no error and nothing that the content security policy blocked.
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []


def wait(browser, condition):
    return WebDriverWait(browser, 60, poll_frequency=0.05).until(lambda _: condition())


def fill(browser, name, value):
    browser.execute_script("document.getElementById(arguments[0]).value = arguments[1]", name, value)


def say(browser, text):
    browser.find_element(By.ID, "question").send_keys(text, Keys.ENTER)


def wait_for_answer(browser, n=1):
    def done():
        answers = browser.find_elements(By.CSS_SELECTOR, ".assistant:not(.running)")
        return answers[n - 1] if len(answers) >= n else None

    return wait(browser, done)


def text_of(answer):
    return answer.find_element(By.CLASS_NAME, "text").get_attribute("textContent")


def test_a_conversation(page, cluster):
    say(page, QUESTION)
    answer = wait_for_answer(page)
    messages = [{"role": "user", "content": QUESTION}]

    def served():
        whole = ask(cluster.http, "POST", "/v1/chat/completions", {"messages": messages, "temperature": 0})
        return whole.json["choices"][0]["message"]["content"]

    first = served()
    assert text_of(answer) == first
    facts = answer.find_element(By.CLASS_NAME, "facts").text
    assert re.fullmatch(r"first token after \d+ ms · \d+\.\d tokens/s · \d+ tokens", facts)
    # The second request includes the first answer.
    say(page, "And the last?")
    messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "And the last?"}]
    assert text_of(wait_for_answer(page, 2)) == served()
    page.find_element(By.ID, "new").click()
    assert page.find_elements(By.CLASS_NAME, "turn") == []


def test_tokens_show_their_alternatives(page):
    say(page, QUESTION)
    answer = wait_for_answer(page)
    tokens = answer.find_elements(By.CLASS_NAME, "token")
    assert "".join(token.get_attribute("textContent") for token in tokens) == text_of(answer)
    ActionChains(page).move_to_element(tokens[2]).perform()
    tip = page.find_element(By.ID, "tip")
    assert tip.is_displayed()
    rows = tip.find_elements(By.TAG_NAME, "tr")
    assert len(rows) == 5
    assert len(tip.find_elements(By.CLASS_NAME, "chosen")) == 1
    assert rows[0].find_elements(By.TAG_NAME, "td")[1].text.endswith("%")
    assert "log-probability" in tip.text
    ActionChains(page).move_to_element(page.find_element(By.TAG_NAME, "h1")).perform()
    assert not tip.is_displayed()


def test_the_page_shows_the_pipeline_at_work(page):
    stages = page.find_elements(By.CLASS_NAME, "stage")
    assert [stage.text.split("\n")[0].split(" ", 2)[:2] for stage in stages] == [["Stage", "0"], ["Stage", "1"]]
    assert "demo-model" in page.find_element(By.ID, "model").text
    say(page, "List all the coaches from Coldwater on weekdays, please.")
    wait(page, lambda: page.find_elements(By.CSS_SELECTOR, "#pipeline.working"))
    wait(page, lambda: len(page.find_elements(By.CSS_SELECTOR, ".stage.working")) == 2)
    wait_for_answer(page)
    wait(page, lambda: not page.find_elements(By.CSS_SELECTOR, "#pipeline.working"))
    assert page.find_element(By.ID, "running").text == "0"


def test_stopping_and_errors(page):
    page.execute_script("document.getElementById('question').value = arguments[0]; send(); stop.abort()", QUESTION)
    assert wait_for_answer(page).find_element(By.CLASS_NAME, "facts").text == "stopped"
    fill(page, "max", "999999")
    say(page, QUESTION)
    failure = wait_for_answer(page, 2).find_element(By.CLASS_NAME, "failure")
    assert "maximum context length" in failure.text
    # The browser logs the 400 itself; this clears its log.
    page.get_log("browser")
    fill(page, "max", "3")
    say(page, QUESTION)
    assert "cut off" in wait_for_answer(page, 3).text


def test_a_broken_stream_is_resumed(browser, cluster):
    resumed = metric(cluster.http, "stagecoach_streams_resumed_total")
    with CuttableProxy(cluster.http) as proxy:
        browser.get(f"http://{proxy.address}/")
        wait(browser, lambda: browser.find_elements(By.CLASS_NAME, "stage"))
        fill(browser, "temperature", "0")
        for mark in (b"id: 3\n", b"id: 9\n", b"event-stream"):
            browser.find_element(By.ID, "new").click()
            proxy.cut_at(mark)
            say(browser, QUESTION)
            wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".assistant.running.lost"))
            facts = browser.find_element(By.CSS_SELECTOR, ".assistant .facts").text
            assert facts.endswith("connection lost, reconnecting")
            assert browser.find_elements(By.CLASS_NAME, "failure") == []
            proxy.mend()
            answer = wait_for_answer(browser)
            body = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
            whole = ask(cluster.http, "POST", "/v1/chat/completions", body).json
            assert text_of(answer) == whole["choices"][0]["message"]["content"]
            tokens = answer.find_elements(By.CLASS_NAME, "token")
            assert "".join(token.get_attribute("textContent") for token in tokens) == text_of(answer)
            facts = answer.find_element(By.CLASS_NAME, "facts").text
            assert facts.endswith(f" {whole['usage']['completion_tokens']} tokens") and "lost" not in facts
        assert metric(cluster.http, "stagecoach_streams_resumed_total") > resumed
        proxy.cut_at(b"id: 1\n")
        say(browser, QUESTION)
        wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".assistant.running.lost"))
        browser.find_element(By.ID, "send").click()
        assert wait_for_answer(browser, 2).find_element(By.CLASS_NAME, "facts").text.endswith("stopped")
        browser.get("about:blank")
    browser.get_log("browser")


def test_a_stream_outlives_its_router(browser, tmp_path):
    with Cluster(DEMO_MODEL, flags=["--journal", tmp_path / "journal"]) as cluster:
        browser.get(f"http://{cluster.http}/")
        wait(browser, lambda: browser.find_elements(By.CLASS_NAME, "stage"))
        fill(browser, "temperature", "0")
        fill(browser, "max", "600")
        # The answer lasts until the router is killed, and the page may be lost only for a moment.
        browser.execute_script("""const plain = requestBody;
                                  window.requestBody = () => {
                                    const [path, body] = plain();
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
            say(browser, QUESTION)
            killed.result()
        answer = wait_for_answer(browser)
        assert answer.find_elements(By.CLASS_NAME, "failure") == []
        assert browser.execute_script("return losses") > 0
        await_router(cluster)
        messages = [{"role": "user", "content": QUESTION}]
        body = {"messages": messages, "temperature": 0, "max_tokens": 600, "ignore_eos": True, "separate_reasoning": False}
        assert text_of(answer) == ask(cluster.http, "POST", "/v1/chat/completions", body).json["choices"][0]["message"]["content"]
        browser.get("about:blank")
    browser.get_log("browser")


def test_stopping_cancels_the_request_on_the_server(browser):
    """The page stops by itself at the first token, because the whole answer can be there before a driver's next command.
    Without the page's DELETE, the server would keep the stream for an hour."""
    with Cluster(DEMO_MODEL, flags=["--resume-time", "3600"]) as cluster:
        browser.get(f"http://{cluster.http}/")
        wait(browser, lambda: browser.find_elements(By.CLASS_NAME, "stage"))
        browser.execute_script("""new MutationObserver((_, observer) => {
                                    if (!document.querySelector(".token")) return;
                                    observer.disconnect();
                                    stop.abort();
                                  }).observe(document.getElementById("log"), { childList: true, subtree: true })""")
        say(browser, QUESTION)
        assert wait_for_answer(browser).find_element(By.CLASS_NAME, "facts").text.endswith("stopped")
        wait_for(lambda: metric(cluster.http, "stagecoach_resumable_streams") == 0)
        browser.get("about:blank")
    browser.get_log("browser")


def test_a_server_without_resumable_streams(browser):
    with Cluster(DEMO_MODEL, flags=["--resume-time", "0"]) as cluster:
        browser.get(f"http://{cluster.http}/")
        wait(browser, lambda: browser.find_elements(By.CLASS_NAME, "stage"))
        say(browser, QUESTION)
        assert text_of(wait_for_answer(browser))
        browser.get("about:blank")
    browser.get_log("browser")


def test_user_text_is_not_html(page):
    text = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
    say(page, text)
    wait_for_answer(page)
    assert page.find_element(By.CSS_SELECTOR, ".user .text").get_attribute("textContent") == text
    assert page.find_elements(By.TAG_NAME, "img") == []
    assert page.title == "stagecoach"


def test_nothing_is_loaded_from_other_sites(page, cluster):
    origin = f"http://{cluster.http}/"
    loaded = page.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert loaded and all(name.startswith(origin) for name in loaded)
    policy = ask(cluster.http, "GET", "/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
    # Even if a script got into the page, it would not run.
    page.execute_script("""const script = document.createElement('script');
                           script.textContent = "document.title = 'broken'"; document.body.append(script)""")
    assert page.title == "stagecoach"
    assert any("Content Security Policy" in entry["message"] for entry in page.get_log("browser"))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_appearance(page, size, scheme):
    width, height = SIZES[size]
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                         {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "narrow"})
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    page.execute_script("document.getElementById('settings').open = arguments[0]", size == "wide")
    say(page, QUESTION)
    wait_for_answer(page)
    say(page, "Everything that leaves from Coldwater on weekdays?")
    answer = wait_for_answer(page, 2)
    tokens = answer.find_elements(By.CLASS_NAME, "token")
    ActionChains(page).move_to_element(tokens[min(20, len(tokens) - 1)]).perform()
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.save_screenshot(str(SHOTS / f"{size}-{scheme}.png"))
    assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    background = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    red, green, blue = (int(value) for value in re.findall(r"\d+", background)[:3])
    assert (red + green + blue < 200) == (scheme == "dark")
    for name in ("question", "send", "new"):
        box = page.find_element(By.ID, name).rect
        assert 0 <= box["x"] and box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= height and box["height"] >= 24
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_page_asks_for_a_key(browser, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-page\n")
    with Cluster(DEMO_MODEL, flags=["--api-keys", keys]) as cluster:
        browser.get(f"http://{cluster.http}/")
        wait(browser, lambda: "API key is needed" in browser.find_element(By.ID, "model").text)
        fill(browser, "key", "sk-page")
        wait(browser, lambda: "demo-model" in browser.find_element(By.ID, "model").text)
        say(browser, QUESTION)
        assert text_of(wait_for_answer(browser))
        browser.get_log("browser")
        browser.get("about:blank")
