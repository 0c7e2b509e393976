"""The section Explore alone in a browser, for tests: its page, what a reader does there, and what they see."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from browser import PATIENCE
from explore_cases import explorer_data
from tokengeom.ask.neighbours import SimilarPairs
from tokengeom.page.render import EXPLORER, _environment, _policy, _template_text

THEME = """document.getElementById("theme-switch").addEventListener("click", () => {
  document.documentElement.dataset.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark"; });"""

SCRIPTS = ("csv_cell.js", *EXPLORER)


def page_of(data: Any) -> str:
    """A page with the section Explore alone, under the content policy of the whole page."""
    macros = _environment().get_template("explore.html.j2").module
    pairs = {kind: SimilarPairs(kind, (), 0, 0) for kind in ("contexts", "tokens")}
    body = macros.explore({"data": data, "pairs": pairs})  # type: ignore[attr-defined]
    script, style = ("\n".join(map(_template_text, names)) for names in (SCRIPTS, ("page.css", "explore.css")))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Explore</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(script, THEME)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style}html {{ scroll-behavior: auto; }}</style></head><body>"
        '<header class="bar"><button type="button" id="theme-switch">Light / dark</button></header>'
        '<div class="layout"><nav class="toc"></nav><main>'
        '<section id="summary"><p style="height: 1200px">Text.</p></section>'
        f'<section id="explore"><h2>Explore</h2>{body}</section></main></div>'
        f"<script>{THEME}</script><script>{script}</script></body></html>"
    )


class Opened:
    """An open page with its requests and everything that it logged."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        self.messages: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda said: self.messages.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: self.messages.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.messages.append(f"dialog: {dialog.message}"))

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)

    def wait(self, script: str) -> None:
        """Wait until an expression is true; the content policy forbids playwright's own way, which evaluates text."""
        for _ in range(PATIENCE // 50):
            if self.ask(script):
                return
            self.page.wait_for_timeout(50)
        pytest.fail(f"never true: {script}")

    def state(self) -> Any:
        return self.ask("window.tokengeomExplore.state()")

    def text(self, name: str) -> str:
        return str(self.page.locator(f"#explore-{name}").inner_text())

    def search(self, text: str) -> list[str]:
        self.page.fill("#explore-query", text)
        return list(self.page.locator("#explore-results li").all_inner_texts())

    def select(self, text: str) -> None:
        self.page.fill("#explore-query", text)
        self.page.press("#explore-query", "Enter")

    def slide(self, at: float) -> None:
        self.ask(
            f"(() => {{ const range = document.getElementById('explore-at'); range.value = {at}; "
            "range.dispatchEvent(new Event('input')); })()"
        )

    def stop_clock(self) -> None:
        """From now on time passes on the page only where a test lets it, by ``page.clock.run_for``."""
        self.page.clock.install(time=0)
        self.page.clock.pause_at(3600)

    def reset(self) -> None:
        self.page.click("[data-do=reset]")
        self.page.evaluate("history.replaceState(null, '', location.pathname)")


DATA = explorer_data()


@contextmanager
def opened(browser: Any, path: Path, fragment: str = "", *, width: int = 1280, **options: Any) -> Iterator[Opened]:
    context = browser.new_context(viewport={"width": width, "height": 900}, **options)
    context.set_default_timeout(PATIENCE)
    found = Opened(context.new_page())
    found.page.goto(path.as_uri() + fragment)
    found.page.wait_for_selector("#explore-app[data-drawn=yes]")
    yield found
    context.close()


def shown_neighbours(found: Opened, side: str) -> list[list[str]]:
    rows = found.page.locator(f".explore-near[data-side={side}] tbody tr")
    return [row.locator("th, td").all_inner_texts() for row in rows.all()]


def names_of(kind: str, items: Any) -> list[str]:
    names: list[str] = DATA[kind]["names"]
    return [names[int(i)] for i in items]


def written(cosine: float) -> str:
    """A cosine as the page rounds it."""
    return f"{round(cosine, 2) + 0.0:.2f}".replace("-", "\N{MINUS SIGN}")


def saved(found: Opened) -> list[list[str]]:
    with found.page.expect_download() as download:
        found.page.click("[data-do=csv]")
    return list(csv.reader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"), newline="")))


@contextmanager
def counted_steps(found: Opened) -> Iterator[list[int]]:
    """How often the blocks of the page's scripts run meanwhile, which does not depend on how busy the machine is."""
    profiler, steps = found.page.context.new_cdp_session(found.page), list[int]()
    profiler.send("Profiler.enable")
    profiler.send("Profiler.startPreciseCoverage", {"callCount": True, "detailed": True})
    yield steps
    scripts = profiler.send("Profiler.takePreciseCoverage")["result"]
    steps += [part["count"] for script in scripts for one in script["functions"] for part in one["ranges"]]
