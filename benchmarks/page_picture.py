"""A picture of the page: a text, its labels, and the reasons for the first of them.

Run: python benchmarks/page_picture.py MODEL PICTURE.png [--text TEXT] [--dark] [--width 1280] [--height 1020]
Serves the model on a free port and looks at the page in Chromium (UNIDEX_CHROMIUM, or one on the path).
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
TEXT = "Ehlers-Danlos syndrome, classic-like, 2"


def find_chromium() -> str | None:
    """The program of a Chromium: UNIDEX_CHROMIUM, or one on the path."""
    chosen = os.environ.get("UNIDEX_CHROMIUM")
    return chosen or next((found for name in CHROMIUM if (found := shutil.which(name))), None)


def chromium_arguments() -> list[str]:
    """A sandbox needs rights that root in a container lacks; the page that is looked at is ours."""
    return ["--no-sandbox"] if os.geteuid() == 0 else []


class Service:
    """``unidex serve`` in a process of its own, on a port that it keeps when it is stopped and started again."""

    def __init__(self, model: Path, *arguments: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/"
        self._command = [sys.executable, "-m", "unidex", "serve", str(model), "--port", str(port), *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, seconds: float = 60.0) -> None:
        """Start it, and wait until it is ready."""
        with tempfile.TemporaryFile() as said:
            self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=said)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and self._process.poll() is None:
                try:
                    with urllib.request.urlopen(self.url + "ready", timeout=5):
                        return
                except OSError:
                    time.sleep(0.05)
            self.stop()
            said.seek(0)
            raise RuntimeError(f"the service must be ready within {seconds:.0f} s, but said: {said.read().decode()}")

    def stop(self) -> None:
        """End it at once, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def draw(url: str, picture: Path, text: str, *, dark: bool, width: int, height: int) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_chromium(), args=chromium_arguments())
        scheme = "dark" if dark else "light"
        page = browser.new_page(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        page.goto(f"{url}#{urllib.parse.urlencode({'text': text})}")
        page.locator(".why").first.click()
        page.locator(".stack").wait_for()
        page.mouse.move(0, 0)
        page.locator(":focus").evaluate("element => element.blur()")
        page.screenshot(path=picture)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=1020)
    chosen = parser.parse_args()
    if find_chromium() is None:
        parser.error("a Chromium must be on the path, but there is none; install one or name it in UNIDEX_CHROMIUM")
    service = Service(chosen.model)
    service.start()
    try:
        draw(service.url, chosen.picture, chosen.text, dark=chosen.dark, width=chosen.width, height=chosen.height)
    finally:
        service.stop()
    print(f"{chosen.picture}: {chosen.picture.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
