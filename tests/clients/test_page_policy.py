"""What the web page may load and run, and its API key, in Chromium."""
from chromium import QUESTION
from harness import DEMO_MODEL, Cluster
from wire import ask


def test_nothing_is_loaded_from_other_sites(page, cluster):
    origin = f"http://{cluster.http}/"
    loaded = page.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert loaded and all(name.startswith(origin) for name in loaded)
    policy = ask(cluster.http, "GET", "/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
    # Text cannot become HTML or a script at all, and a script that got into the page would not run.
    for attempt in ("document.body.insertAdjacentHTML('beforeend', '<p>x</p>')", "document.createElement('p').innerHTML = '<b>x</b>'",
                    "document.createElement('script').textContent = '1'"):
        assert page.run(f"try {{ {attempt}; return 'done' }} catch (error) {{ return error.name }}") == "TypeError"
    page.run("""const script = document.createElement("script");
                script.append("document.title = 'broken'");
                document.body.append(script)""")
    assert page.driver.title == "stagecoach"
    assert page.complaints() != []


def test_the_page_asks_for_a_key(browser, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-page\n")
    with Cluster(DEMO_MODEL, flags=["--api-keys", keys]) as cluster:
        browser.driver.get(f"http://{cluster.http}/")
        browser.wait(lambda: "API key is needed" in browser.text("#model"))
        assert browser.one("#access").is_displayed() and browser.focused() == "key"
        assert browser.text("#state") == "key needed"
        browser.press("sk-wrong", "\ue007")
        browser.wait(lambda: browser.one("#access").is_displayed())
        browser.run("document.getElementById('key').value = ''")
        browser.one("#key").send_keys("sk-page", "\ue007")
        browser.wait(lambda: "demo-model" in browser.text("#model"))
        assert not browser.one("#access").is_displayed()
        browser.say(QUESTION)
        assert browser.message()["content"]
        # The page forgets it.
        assert "sk-page" not in browser.run("return JSON.stringify({ ...localStorage, ...sessionStorage })")
        browser.leave()
