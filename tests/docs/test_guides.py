"""The Python of each guide runs, as one file, with the tests in it. Every page is listed, and every link is alive."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

LEFT_OUT = {
    "write-an-operator.md": """
from tests.sdk.websites import deployment_of, service_of
""",
    "serve-your-own-api.md": """
import os
from tests.sdk.cms import Cms
os.environ["CMS_URL"] = Cms().url
""",
}
"""Code that a page leaves out because it is beside its point."""


def code_of(page: Path) -> str:
    return LEFT_OUT.get(page.name, "") + "\n\n".join(BLOCK.findall(page.read_text()))


GUIDES = (
    "write-an-operator",
    "control-built-in-kinds",
    "refuse-and-complete-objects",
    "change-a-kind",
    "extend-kubectl",
    "schedule-pods",
    "serve-your-own-api",
    "serve-metrics",
    "test-against-it",
)
PAGES = [DOCS / f"{name}.md" for name in GUIDES]


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_code_of_a_guide_runs_and_its_tests_pass(page: Path, tmp_path: Path) -> None:
    file = tmp_path / "test_guide.py"
    file.write_text(code_of(page))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", str(file)]
    fixtures = "from pinnace.testing.plugin import cluster, kubeconfig\n"
    (tmp_path / "conftest.py").write_text(fixtures)  # Whether or not the plug-in is installed.
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout or ran.stdout.startswith("."), ran.stdout


def test_every_page_is_listed() -> None:
    listed = (DOCS / "README.md").read_text()
    missing = [page.name for page in DOCS.glob("*.md") if page.name != "README.md" and page.name not in listed]
    assert missing == []


CODE = re.compile(r"^```.*?^```|`[^`\n]*`(?!\])", re.MULTILINE | re.DOTALL)


def prose_of(page: Path) -> str:
    """Return a page without its code, where brackets are not links."""
    return CODE.sub("", page.read_text())


WRITTEN = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


@pytest.mark.parametrize("page", WRITTEN, ids=[str(page.relative_to(ROOT)) for page in WRITTEN])
def test_every_link_leads_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)  # Patterns in code look like links.
    for link, heading in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", prose):
        target = page.parent / link if link else page
        assert target.exists(), link
        if heading:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert heading in [re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings], (
                f"{link}#{heading}"
            )


FILES = re.compile(
    r"`((?:[\w.-]+/)+[\w-]+\.(?:py|txt|md|jsonl|toml)|(?:src|tests|tools|bench|examples|docs)/[\w./-]*)`"
)
ROOTS = (ROOT, ROOT / "src" / "pinnace", DOCS)


@pytest.mark.parametrize("page", WRITTEN, ids=[str(page.relative_to(ROOT)) for page in WRITTEN])
def test_every_file_and_folder_that_is_named_exists(page: Path) -> None:
    """Files are named from the root, or from src/pinnace."""
    assert [name for name in FILES.findall(page.read_text()) if not any((root / name).exists() for root in ROOTS)] == []
