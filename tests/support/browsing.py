"""A real browser in front of a real service, watched for anything that must not happen."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NO_BROWSER = "no chromium on this machine"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: What the page shows where an answer, or a better one, is on its way.
UNDER_WAY = "[aria-busy=true], .busy, .waiting, .waiting-room"
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
COMMON_PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
#: Milliseconds until something that was to appear is missing; a service needs some to start.
PATIENCE = 30_000
#: Set it to a folder to get a picture of every state the tests pass through.
PICTURES = os.environ.get("DEEPJOIN_PICTURES")


@contextmanager
def serving(index: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `deepjoin serve` as a user would; gives its address and the process."""
    command = [sys.executable, "-m", "deepjoin", "serve", str(index), "--port", "0"]
    service = subprocess.Popen(
        [*command, "--workers", "1", *options], stderr=subprocess.PIPE, text=True
    )
    try:
        yield _address(service), service
    finally:
        service.terminate()
        service.communicate()


def _address(service: subprocess.Popen[str]) -> str:
    lines = []
    for line in service.stderr or ():
        lines.append(line)
        if found := re.search(r" at (http://\S+)", line):
            return found[1]
    raise AssertionError("The service did not start: " + "".join(lines))


@contextmanager
def browsing() -> Iterator[Browser]:
    """Start Chromium without a window."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


@dataclass
class Watched:
    """What a page did that no page of ours may do."""

    host: str
    wrongs: list[str] = field(default_factory=list)
    #: Failures a test asks for, such as a refused token, are written by the browser itself.
    expected: str = ""

    def listen(self, page: Page) -> None:
        """Hear of dialogs, errors and requests that leave the host."""
        page.on("dialog", self._dialog)
        page.on("pageerror", lambda error: self.wrongs.append(f"error: {error}"))
        page.on("console", self._console)
        page.on("request", self._request)

    def _dialog(self, dialog: Any) -> None:
        self.wrongs.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _console(self, message: Any) -> None:
        if message.type not in ("error", "warning"):
            return
        if not self.expected or not re.search(self.expected, message.text):
            self.wrongs.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        url = urlsplit(request.url)
        if url.scheme != "blob" and url.netloc != self.host:
            self.wrongs.append(f"request: {request.url}")


@contextmanager
def visiting(browser: Browser, address: str, expected: str = "", **options: Any) -> Iterator[Page]:
    """Open the page in a context of its own; fails at its end if it did something wrong."""
    watched = Watched(urlsplit(address).netloc, expected=expected)
    chosen = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **options}
    context = browser.new_context(base_url=address, **chosen)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    watched.listen(page)
    try:
        page.goto(address)
        yield page
    finally:
        context.close()
    assert watched.wrongs == []


def settled(page: Page) -> None:
    """Wait until what is shown answers the last question, and no better answer is on its way."""
    from playwright.sync_api import expect

    expect(page.locator(UNDER_WAY)).to_have_count(0)


def link(**parts: object) -> str:
    """Write the address of a view."""
    return "?" + urlencode(parts, doseq=True)


def downloaded(page: Page, button: str, folder: Path) -> Path:
    """Press a button that downloads; returns the file."""
    with page.expect_download() as waiting:
        page.get_by_role("button", name=button).click()
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def picture(page: Page, name: str) -> None:
    """Keep what the page looks like, where a folder for that is given."""
    if PICTURES:
        page.wait_for_load_state("networkidle")
        page.screenshot(path=Path(PICTURES) / f"{name}.png", full_page=True)


#: The checks of accessibility; `npm ci` in web/ brings them.
AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
_AXE_RUN = """async () => {
  const rules = {'label-content-name-mismatch': {enabled: true}};
  const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
  const found = await axe.run({runOnly: {type: 'tag', values: tags}, rules});
  return found.violations.map(({id, nodes}) => `${id}: ${nodes[0].html.slice(0, 200)}`);
}"""


def inaccessible(page: Page) -> list[str]:
    """Return what axe finds wrong with a page, label in name included."""
    page.evaluate(AXE.read_text("utf-8"))
    found: list[str] = page.evaluate(_AXE_RUN)
    return found


def too_wide(page: Page) -> int:
    """Return by how many pixels the page scrolls sideways."""
    return int(
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    )


#: Texts whose colour has too little contrast with what is behind them (WCAG 2 AA).
FAINT = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b]
    .map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const faint = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const ink = element instanceof SVGElement ? style.fill : style.color;
    const [one, other] = [light(rgba(ink)), light(behind(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) faint.push(`${element.textContent.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return faint;
}"""
