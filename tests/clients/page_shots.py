#!/usr/bin/env python3
"""Takes the pictures of the web page in docs/ again: a conversation with the demo model, of whose two stages one is killed
meanwhile.

usage: build/venv/bin/python tests/clients/page_shots.py [FOLDER]
"""
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cluster"))

import chromium
from harness import DEMO_MODEL, Cluster
from lost_stages import await_workers

DOCS = pathlib.Path(__file__).parents[2] / "docs"
# The stage is killed as soon as the second answer has some tokens; then the driver is told, and the answer goes on.
TELL = """const plain = takeEvent;
          window.takeEvent = (message, event, text) => {
            plain(message, event, text);
            if (message.facts.n > 12) document.body.dataset.begun = "";
          }"""


def take(browser, cluster, size, scheme, folder):
    browser.show_as(size, scheme)
    browser.open(cluster.http)
    browser.say("Where do the coaches of the Green Line stop?")
    browser.answer()
    browser.new_chat()
    browser.say("How much is a return ticket from Juniper to Inkwell?")
    browser.answer()
    browser.new_chat()
    browser.say("Which coaches leave from Brindle for Hartsfield on Sunday?", mode="json")
    browser.answer()
    browser.run(TELL)
    browser.say(chromium.BOARD, mode="text")
    browser.wait(lambda: browser.all("body[data-begun]"))
    os.kill(await_workers(cluster)[1], signal.SIGKILL)
    browser.wait(lambda: browser.all(".assistant .notes li") and "went on" in browser.text(".assistant:last-child .notes"))
    browser.answer(2)
    browser.wait(lambda: browser.all("#tiers tbody tr"))
    browser.driver.save_screenshot(str(folder / f"page-{size}-{scheme}.png"))


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    browser = chromium.Browser()
    try:
        for size in chromium.SIZES:
            for scheme in ("light", "dark"):
                with Cluster(DEMO_MODEL, stages=2) as cluster:
                    take(browser, cluster, size, scheme, folder)
                    browser.leave()
    finally:
        browser.close()


if __name__ == "__main__":
    main()
