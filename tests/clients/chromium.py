"""The web page in Chromium: what the tests of the page, and the script of its pictures, do with it."""
import json
import pathlib
import shutil

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
QUESTION = "When does the first coach leave Greywell for Elmstead on Sunday?"
BOARD = "Everything that leaves from Coldwater on weekdays?"
SIZES = {"wide": (1280, 800), "narrow": (390, 844)}
# Every answer has this text, whatever the model: a grammar has one sentence. So a test knows what a real stream brings.
FORCED = """const plain = requestFor;
            window.requestFor = (...of) => {
              const [path, body] = plain(...of);
              return [path, { ...body, guided_choice: [%s], logprobs: undefined, top_logprobs: undefined }];
            }"""


def is_here():
    if CHROMIUM and DRIVER:
        return True
    # Ubuntu 24.04 has Chromium only as a snap; on Debian deploy/install-deps.sh --test installs it.
    assert "ubuntu" in pathlib.Path("/etc/os-release").read_text().lower(), "run deploy/install-deps.sh --test"
    return False


class Browser:
    """A browser with one window. `driver` is selenium's."""

    def __init__(self):
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server",
                         "--hide-scrollbars", "--window-size=1280,800"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        self.driver.set_script_timeout(120)

    def close(self):
        self.driver.quit()

    def open(self, address):
        """Opens the page of a server with one new chat and nothing kept."""
        self.driver.get(f"http://{address}/")
        self.run("localStorage.clear(); running.clear(); location.reload()")
        self.wait(lambda: self.all(".stage"))
        self.new_chat()

    def leave(self):
        """No request of the page runs any more. Forgets what the browser has logged: the server may have ended."""
        self.driver.get("about:blank")
        self.complaints()

    def complaints(self):
        """Errors since the last call, and what the content security policy blocked."""
        return [entry for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition):
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        # Elements of lists are made again while they are looked at.
        waiting = WebDriverWait(self.driver, 120, poll_frequency=0.05, ignored_exceptions=[StaleElementReferenceException])
        return waiting.until(lambda _: condition())

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def text(self, selector):
        return self.one(selector).text

    def texts(self, selector):
        """The texts of all elements, read at once: the page may replace them at any time."""
        return self.run("return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText)", selector)

    def click(self, selector):
        self.one(selector).click()

    def press(self, *keys):
        """Presses keys where the focus is, one after the other. A modifier stays pressed until Keys.NULL."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def focused(self):
        """The id of the element with the focus, or its name."""
        return self.run("const at = document.activeElement; return at.id || at.getAttribute('aria-label') || at.textContent")

    def new_chat(self, **settings):
        self.run("addNew(); Object.assign(current, { temperature: '0', ...arguments[0] })", settings)

    def say(self, text, mode=None):
        if mode:
            self.click(f"#modes input[value={mode}]")
        self.one("#question").send_keys(text, "\ue007")  # the Enter key

    def answer(self, n=1):
        """The n-th answer, once it is complete."""
        def complete():
            answers = self.all(".assistant")
            return len(answers) >= n and "running" not in answers[n - 1].get_attribute("class") and answers[n - 1]

        return self.wait(complete)

    def message(self, n=1):
        """What the page keeps of the n-th answer, once that is complete."""
        self.answer(n)
        return self.run("return current.messages.filter((one) => one.role === 'assistant')[arguments[0]]", n - 1)

    def force(self, text):
        """The model answers with this text from now on."""
        self.run(FORCED % json.dumps(text))

    def show_as(self, size, scheme):
        width, height = SIZES[size]
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "narrow"})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def show_as_usual(self):
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
