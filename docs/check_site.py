"""Check a built site: every link leads somewhere, and no page needs the network. ``python docs/check_site.py site``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LOADED = {"link": "href", **dict.fromkeys(("audio", "iframe", "img", "script", "source", "video"), "src")}
"""Elements that a browser loads without a click, and the attribute that says from where."""
NOT_LOADED = {"canonical", "next", "prev", "index", "search", "author", "license", "copyright"}
"""Relations of a link element that only name another page."""
OUTSIDE = re.compile(r"(?:https?:)?//")
IN_STYLES = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)")
SEARCH_INDEX = "searchindex.js"


@dataclass
class Page:
    """What a page links to, what it loads, and which anchors it has."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)


class PageParser(HTMLParser):
    """Collects the links of one page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self._in_style = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what an element links to, loads or names."""
        given = {name: value or "" for name, value in attributes}
        self._in_style = tag == "style"
        if given.get("id"):
            self.page.anchors.add(given["id"])
        if tag == "a":
            self.page.anchors.add(given.get("name", ""))
            self.page.links += [given["href"]] if "href" in given else []
        elif tag in LOADED and given.get(LOADED[tag]):
            named = tag == "link" and set(given.get("rel", "").split()) & NOT_LOADED
            (self.page.links if named else self.page.loaded).append(given[LOADED[tag]])
        self.page.loaded += [one.split()[0] for one in given.get("srcset", "").split(",") if one.split()]
        self.page.loaded += IN_STYLES.findall(given.get("style", ""))

    def handle_data(self, data: str) -> None:
        """Note what a style inside the page loads."""
        if self._in_style:
            self.page.loaded += IN_STYLES.findall(data)

    def handle_endtag(self, tag: str) -> None:
        """A style ends."""
        self._in_style = False


def read_page(path: Path) -> Page:
    """What a page links to, loads and has."""
    parser = PageParser()
    parser.feed(path.read_text(encoding="utf-8"))
    return parser.page


def html_pages(site: Path) -> list[Path]:
    """Every page; ``_static`` has the theme's templates, which are not pages."""
    return sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)


def problems(site: Path) -> list[str]:
    """Sentences about links that lead nowhere, and about files that would come from the network."""
    pages = {path.resolve(): read_page(path) for path in html_pages(site)}
    found = [] if pages else [f"{site} has no pages."]
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        found += [f"{name} loads {one} from the network." for one in page.loaded if OUTSIDE.match(one)]
        inside = [one for one in (*page.links, *page.loaded) if not OUTSIDE.match(one)]
        found += [f"{name}: {sentence}" for one in dict.fromkeys(inside) for sentence in _broken(one, path, pages)]
    for path in sorted(site.rglob("*.css")):
        outside = IN_STYLES.findall(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(site)} loads {one} from the network." for one in outside]
    return found


def _broken(link: str, page: Path, pages: dict[Path, Page]) -> Iterator[str]:
    parts = urlsplit(link)
    if parts.scheme:
        return
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        yield f"the link {link} leads to no file."
    elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        yield f"the link {link} leads to an anchor that {target.name} does not have."


def search_index(site: Path) -> dict[str, Any]:
    """The index of the site's search, as data."""
    text = (site / SEARCH_INDEX).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    return found


def pages_with(index: dict[str, Any], word: str) -> set[str]:
    """Pages that the search finds for a word, which must be its own stem: those with it in a title or in the text."""
    found: set[str] = set()
    for table in ("terms", "titleterms"):
        numbers = index[table].get(word, [])
        found |= {index["docnames"][one] for one in ([numbers] if isinstance(numbers, int) else numbers)}
    return found


def main() -> None:
    """Print what is wrong, and exit with 1 where anything is."""
    site = Path(sys.argv[1])
    found = problems(site)
    for sentence in found:
        sys.stderr.write(f"{sentence}\n")
    pages = len(html_pages(site))
    sys.stdout.write(f"{pages} pages, {len(found)} broken links or files from the network.\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
