"""The API reference names everything that is public, and the documentation builds as a site that can be searched."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import pytest
from tools import reference, site

import pinnace
import pinnace.sdk

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_is_up_to_date_and_describes_every_public_name() -> None:
    assert reference.page() == reference.PAGE.read_text(), "run: python tools/reference.py"
    missing = [name for name in pinnace.sdk.__all__ if f"### {name}\n" not in reference.PAGE.read_text()]
    assert missing == []


@pytest.mark.parametrize("package", ["client", "sdk", "testing"])
def test_the_reference_describes_the_names_that_a_public_package_exports(package: str) -> None:
    page = reference.PAGE.read_text()
    section = page.partition(f"\n## pinnace.{package}\n")[2].partition("\n## ")[0]
    exported = set(import_module(f"pinnace.{package}").__all__)
    described = set(re.findall(r"^### (\w+)$", section, re.MULTILINE)) - {"Errors"}
    assert described <= exported
    assert exported - described <= set(pinnace.sdk.__all__) - ({"sdk": exported}.get(package) or set())


def test_other_packages_export_nothing() -> None:
    fronts = sorted(Path(pinnace.__file__).parent.glob("*/__init__.py"))
    exporting = {front.parent.name for front in fronts if "__all__" in front.read_text()}
    assert exporting == {"client", "sdk", "testing"}


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
