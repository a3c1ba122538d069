"""The API reference names everything that is public, and the documentation builds as a site that can be searched."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tools import reference, site

import pinnace.sdk

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_is_up_to_date_and_describes_every_public_name() -> None:
    assert reference.page() == reference.PAGE.read_text(), "run: python tools/reference.py"
    missing = [name for name in pinnace.sdk.__all__ if f"### {name}\n" not in reference.PAGE.read_text()]
    assert missing == []


def test_a_public_name_without_a_description_is_refused() -> None:
    def undescribed() -> None: ...

    with pytest.raises(ValueError, match="undescribed is public and has no docstring"):
        reference.docstring("undescribed", undescribed)


def test_the_site_has_every_page_its_links_and_an_index(tmp_path: Path) -> None:
    pages = site.build(tmp_path)
    assert len(pages) == len(list(DOCS.rglob("*.md")))
    for page in pages:
        for link in re.findall(r'href="([^":#]+\.html)', page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
    text = (tmp_path / "index.js").read_text().removeprefix("const INDEX = ").rstrip(";\n")
    rows = json.loads(text)
    for word in ("idempotent", "back-off", "predicate", "admission webhook", "rbac", "finalizer"):
        assert any(word in row["text"] for row in rows), word
