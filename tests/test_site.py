"""The documentation: its check finds what is broken, and the site builds without a warning and without a network."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tokengeom
from browser import FOUND, NEEDS_BROWSER

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BUILD_OFFLINE = """
import socket, sys
def refuse(*address, **settings):
    raise AssertionError(f"the build must not use the network; it asked for {address}")
socket.getaddrinfo = socket.socket.connect = refuse
from sphinx.cmd.build import main
sys.exit(main(sys.argv[1:]))
"""


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


check_site = load(DOCS / "check_site.py")


@pytest.fixture
def small_site(tmp_path: Path) -> Path:
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "style.css").write_text("body { color: black; background: url(picture.png) }")
    (tmp_path / "picture.png").write_bytes(b"")
    (tmp_path / "index.html").write_text(
        '<link rel="stylesheet" href="_static/style.css?v=1"><img src="picture.png">'
        '<a href="other.html#part%20one">in</a><a href="#top">up</a><h1 id="top"></h1>'
        '<a href="https://example.org">out</a><a href="mailto:a@example.org">mail</a>'
    )
    (tmp_path / "other.html").write_text('<p id="part one"></p><a href="./">home</a>')
    return tmp_path


def test_a_site_without_faults_passes(small_site: Path) -> None:
    assert check_site.problems(small_site) == []


@pytest.mark.parametrize(
    ("added", "sentence"),
    [
        ('<a href="gone.html">', "the link gone.html leads to no file."),
        ('<img src="gone.png">', "the link gone.png leads to no file."),
        ('<a href="other.html#gone">', "leads to an anchor that other.html does not have."),
        ('<a href="#gone">', "leads to an anchor that index.html does not have."),
        (
            '<script src="https://cdn.example.org/a.js"></script>',
            "loads https://cdn.example.org/a.js from the network.",
        ),
        ('<link rel="stylesheet" href="//fonts.example.org/a">', "loads //fonts.example.org/a from the network."),
        ('<img srcset="picture.png 1x, http://example.org/b.png 2x">', "loads http://example.org/b.png"),
        ("<style>@import 'https://example.org/c.css'</style>", "loads https://example.org/c.css"),
    ],
)
def test_a_fault_of_a_page_is_found(small_site: Path, added: str, sentence: str) -> None:
    page = small_site / "index.html"
    page.write_text(page.read_text() + added)
    (found,) = check_site.problems(small_site)
    assert sentence in found


def test_a_font_from_the_network_is_found(small_site: Path) -> None:
    (small_site / "_static" / "style.css").write_text("@font-face { src: url('https://example.org/f.woff2') }")
    assert check_site.problems(small_site) == ["_static/style.css loads https://example.org/f.woff2 from the network."]


def test_every_public_name_is_in_the_reference_once() -> None:
    listed = [line.strip(" ~") for line in (DOCS / "api.md").read_text(encoding="utf-8").splitlines()]
    assert [name for name in tokengeom.__all__ if listed.count(f"tokengeom.{name}") != 1] == []


def test_docstrings_become_lists_with_types_and_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "_extensions"))
    import docstring_markup  # type: ignore[import-not-found]

    def rewritten(what: str, thing: Any) -> str:
        lines = [*(thing.__doc__ or "").split("\n")]
        lines = [lines[0], *(line.removeprefix("    ") for line in lines[1:])] if what == "class" else lines
        docstring_markup.rewrite(None, what, "", thing, None, lines)
        return "\n".join(lines)

    verb = rewritten("function", tokengeom.train)
    assert '**model** : str, default "ufm"' in verb
    assert verb.count("**model**") == 1
    assert '**reduction** : "mean" | "sum" | None, default None' in verb
    record = rewritten("class", tokengeom.Run)
    assert ".. py:attribute:: H\n   :type: array\n\n   Decoder (V x d) and context embeddings" in record
    assert ":py:meth:`~tokengeom.AbstractResult.save`" in record
    cited = ["As shown in [zhao2024,", "Thm 2]."]
    docstring_markup.rewrite(None, "module", "", sys, None, cited)
    assert cited == ["As shown in :cite:p:`zhao2024{Thm 2}`."]


def test_the_page_of_commands_has_every_command_and_option_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "_extensions"))
    import command_pages  # type: ignore[import-not-found]

    from tokengeom.cli.app import EXIT_CODES, command_names

    text = "\n".join(command_pages._pages())
    headings = [line for line in text.splitlines() if line.startswith("## `")]
    assert headings == [f"## `tokengeom {name}`" for name in sorted(command_names())]
    assert text.count(EXIT_CODES) == 1
    train = text[text.index("## `tokengeom train`") : text.index("## `tokengeom verify`")]
    assert "`--steps` *whole number*\n: Number of steps. Default: `10000`." in train
    assert "*one of linear, ufm," in train
    assert "`--debug`" not in train


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built from a copy of its sources, without running the gallery."""
    work = tmp_path_factory.mktemp("site")
    left_out = shutil.ignore_patterns("examples", "generated", "sg_execution_times.rst", "__pycache__")
    shutil.copytree(DOCS, work / "docs", ignore=left_out)
    for page in ROOT.glob("*.md"):
        shutil.copy(page, work)
    shutil.copytree(ROOT / "paper", work / "paper")
    options = ["-q", "-W", "--keep-going", "-b", "html", "-D", "plot_gallery=0"]
    built = subprocess.run(
        [sys.executable, "-c", BUILD_OFFLINE, *options, str(work / "docs"), str(work / "site")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return work / "site"


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_every_link_leads_somewhere(site: Path) -> None:
    assert check_site.problems(site) == []


@pytest.mark.slow
def test_a_broken_link_in_the_site_is_found(site: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(site, tmp_path / "site")
    (copy / "commands.html").unlink()
    assert any("commands.html leads to no file" in sentence for sentence in check_site.problems(copy))


@pytest.mark.slow
def test_every_public_name_has_an_entry(site: Path) -> None:
    for name in tokengeom.__all__:
        page = check_site.read_page(site / "generated" / f"tokengeom.{name}.html")
        assert f"tokengeom.{name}" in page.anchors


@pytest.mark.slow
def test_the_search_index_has_words_of_every_part_of_the_site(site: Path) -> None:
    index = check_site.search_index(site)
    assert "generated/tokengeom.theory.concepts" in check_site.pages_with(index, "singular")
    assert "commands" in check_site.pages_with(index, "toml")
    assert "examples/two_texts" in check_site.pages_with(index, "bird")
    assert "theory" in check_site.pages_with(index, "theorem")
    assert check_site.pages_with(index, "nosuchword") == set()


@pytest.mark.slow
@NEEDS_BROWSER
def test_the_search_page_finds_a_function_in_a_browser(site: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=FOUND, args=["--no-sandbox"])
        page = browser.new_page()
        outside: list[str] = []
        page.on("request", lambda request: None if request.url.startswith("file:") else outside.append(request.url))
        page.goto(f"{(site / 'search.html').as_uri()}?q=compare_texts")
        page.wait_for_selector("#search-results li a")
        results = page.locator("#search-results li a").all_inner_texts()
        browser.close()
    assert any("compare_texts" in one for one in results)
    assert outside == []
