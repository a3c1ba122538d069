"""Build the documentation as a web site: docs/*.md as HTML, with search, without any network.

    python tools/site.py build/site

The search runs in the browser over an index that is part of the site.
"""

from __future__ import annotations

import html
import json
import re
import sys
from pathlib import Path

from markdown_it import MarkdownIt

DOCS = Path(__file__).parents[1] / "docs"
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title} - pinnace</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="{root}site.css"></head>
<body><nav><a href="{root}README.html">pinnace</a>
<input id="query" type="search" placeholder="Search" aria-label="Search"><ul id="found"></ul></nav>
<main>{body}</main>
<script>const ROOT = "{root}";</script><script src="{root}index.js"></script><script src="{root}search.js"></script>
</body></html>
"""
_STYLE = """body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:60rem;padding:1rem}
pre{overflow:auto;padding:.75rem;background:#8881}code{font-size:.9em}table{border-collapse:collapse}
td,th{border:1px solid #8886;padding:.25rem .5rem;vertical-align:top}nav{display:flex;gap:1rem;flex-wrap:wrap}
#found{flex-basis:100%;margin:0}
"""
_SEARCH = r"""const query = document.getElementById("query"), found = document.getElementById("found");
query.addEventListener("input", () => {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = words.length ? INDEX.filter(row => words.every(word => row.text.includes(word))).slice(0, 20) : [];
  found.replaceChildren(...rows.map(row => {
    const item = document.createElement("li"), link = document.createElement("a");
    link.href = ROOT + row.page; link.textContent = row.title; item.append(link); return item;
  }));
});
"""


def build(out: Path, docs: Path = DOCS) -> list[Path]:
    """Write the site, and return its pages."""
    render = MarkdownIt("commonmark").enable("table")
    index, pages = [], []
    for source in sorted(docs.rglob("*.md")):
        text = source.read_text()
        name = source.relative_to(docs).with_suffix(".html")
        root = "../" * (len(name.parts) - 1)
        title = next((line[2:] for line in text.splitlines() if line.startswith("# ")), name.stem)
        body = _anchor(str(render.render(_link(text, source, docs))))
        page = out / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(_PAGE.format(title=html.escape(title), root=root, body=body))
        pages.append(page)
        index += [
            {"page": f"{name}{anchor}", "title": heading, "text": words}
            for anchor, heading, words in _parts(title, text)
        ]
    (out / "index.js").write_text(f"const INDEX = {json.dumps(index)};\n")
    (out / "search.js").write_text(_SEARCH)
    (out / "site.css").write_text(_STYLE)
    return pages


def _link(text: str, source: Path, docs: Path) -> str:
    """Return a page whose links to other pages of the site end in .html."""

    def replace(match: re.Match[str]) -> str:
        target = (source.parent / f"{match[1]}.md").resolve()
        return f"]({match[1]}.html{match[2] or ''})" if target.is_relative_to(docs.resolve()) else match[0]

    return re.sub(r"\]\(([^):#]+)\.md(#[^)]*)?\)", replace, text)


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _anchor(body: str) -> str:
    def add(match: re.Match[str]) -> str:
        text = html.unescape(re.sub(r"<[^>]+>", "", match[2]))
        return f'<h{match[1]} id="{slug(text)}">{match[2]}</h{match[1]}>'

    return re.sub(r"<h([2-4])>(.*?)</h\1>", add, body)


def _parts(title: str, text: str) -> list[tuple[str, str, str]]:
    """Return the anchor, the heading and the words of each section of a page."""
    sections = re.split(r"^##+ (.*)$", text, flags=re.MULTILINE)
    entries = [("", title, " ".join(sections[0].lower().split()))]
    for heading, words in zip(sections[1::2], sections[2::2], strict=True):
        entries.append(
            (f"#{slug(heading)}", f"{title}: {heading}", f"{heading.lower()} {' '.join(words.lower().split())}")
        )
    return entries


if __name__ == "__main__":
    written = build(Path(sys.argv[1] if len(sys.argv) > 1 else "build/site"))
    print(f"{len(written)} pages")
