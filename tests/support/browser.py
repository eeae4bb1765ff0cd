"""A real browser: the chromium of the system, driven by Playwright."""

import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium():
    """Return the path of a browser; skip the test if there is none."""
    pytest.importorskip("playwright", reason="needs playwright: run make test-all")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("needs chromium (apt-get install chromium); make test-all runs it then")
    return found


@contextmanager
def running():
    """Yield a browser that can reach nothing but this machine."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    with sync_playwright() as playwright:
        # No names are resolved: what the page needs, it has.
        words = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        browser = playwright.chromium.launch(executable_path=path, args=words)
        try:
            yield browser
        finally:
            browser.close()
