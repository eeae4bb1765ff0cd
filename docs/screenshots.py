"""Take the pictures of the server's page: ``python docs/screenshots.py tickets.ltls 'some text'``.

It needs Playwright and a chromium of the system. The documentation shows a model of banking77.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from pathlib import Path

import uvicorn
from playwright.sync_api import Browser, sync_playwright

from ltls.serve import Settings
from ltls.serve.running import configuration

DOCS = Path(__file__).parent
SIZE = {"width": 900, "height": 700}


def picture(browser: Browser, url: str, text: str, scheme: str) -> None:
    """Type a text, and take a picture when the answer is there."""
    context = browser.new_context(color_scheme=scheme, viewport=SIZE)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(url)
    for shown in (f"{text} ", text):  # the first answer takes longer
        page.fill("#text", shown)
        page.wait_for_function(
            "text => document.querySelector('#marked').textContent === text", arg=shown
        )
    page.wait_for_selector("#trellis", state="visible")
    page.wait_for_timeout(300)  # the bars move
    page.screenshot(path=DOCS / f"serving_{scheme}.png", full_page=True)
    context.close()


def main() -> None:
    """Serve a model and take two pictures of its page."""
    path, text = Path(sys.argv[1]), sys.argv[2]
    config = configuration(Settings(models={path.stem: path}), "warning")
    config.port = 0
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    with sync_playwright() as playwright:
        path_of_browser = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path_of_browser, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            picture(browser, url, text, scheme)
        browser.close()
    server.should_exit = True
    thread.join()


if __name__ == "__main__":
    main()
