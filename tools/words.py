"""Check the words: retired and vague names, prose that is hard to read, and public class names used for two things.

    python tools/words.py FOLDER ...      # of pages (*.md) the prose

`docs/glossary.md` says which word to use instead.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

SOURCE = Path("src/pinnace")
SDK = SOURCE / "sdk"

RETIRED = {
    r"faults?|Faults?|\w*_faults?|Cause": "FieldError, or validate_… for the function",
    r"\w*[Ss]hel(f|ves)\w*": "WatchCache, cached objects",
    r"Settler|settler|_settler": "prune and default",
    r"\w*[Ff]acets?": "subresource",
    r"\w*[Rr]enditions?": "representation",
    r"newborn\w*|give_birth|_newborn": "bootstrap",
    r"upkeep": "background jobs",
    r"fair_shares": "default flow schemas",
    r"_?Surroundings|surroundings": "the context it names: server context, manager services, container context",
    r"_?[Pp]atience|TakesLong": "CEL executor, ExceedsInlineBudget",
    r"Intake|_?intake": "body decoder",
    r"Corks?|_?corks?|_?corked": "write coalescer",
    r"\w*Sink|_?sinks?": "response stream",
    r"_?Inbox|_?inbox": "byte pipe",
    r"Heads": "header cache",
    r"Rounds": "large-response queue, or reinvocation",
    r"alike|sameness": "one of the three equalities in schema/equality.py",
    r"problems?|troubles?|refusals?|complaints?": "error",
}
FOLDER_WORDS = {
    "refusal": ("scheduler", "scheduling"),
    "refusals": ("scheduler", "scheduling"),
    **dict.fromkeys(("fault", "faults", "_fault", "Fault", "Faults", "_faults"), ("testing", "tests", "tools")),
}
"""Retired words that have a meaning of their own in some folders.

A refusal is a plug-in's answer that a node cannot run a pod; a fault is what a test lets go wrong.
"""
PROSE = {
    r"\b(somebody|nobody|anybody|whoever|whomever|whom)\b": "name the user, client or part",
    r"\b(is|are|was|were|be|been) (told|let)\b": "say who does what: 'the server sends', 'may'",
    r"\btold of\b": "say who does what",
    r"\b(he|him|his|himself)\b": "the user, they",
    r"\b(shel(f|ves)|rendition|facet|newborn|upkeep)s?\b": "see docs/glossary.md",
}
SHARED_CLASSES = {
    "Conflict": "a lost race in the store, and the 409 answer of the API; both are imported by their module",
    "Scheduler": "the loop that binds pods, and the declaration of a custom one in the SDK",
}
"""Public class names that two modules may have, and why."""
PARTICIPLES = re.compile(r"_?(\w+_)?(shown|told|meant|said|called)|_?(asked|found)")
"""Names of functions that are no verbs."""
VAGUE = ("one", "ones", "found", "said", "shown", "told", "asked", "meant", "called")
"""Names of variables, parameters and attributes that say nothing of the value."""
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`|^    .*?$|^#.*?$", re.MULTILINE | re.DOTALL)
_PARAGRAPH = re.compile(r"(?:^\|.*$)|(?:^(?!\|).+\n?(?:^(?![|#-]|\d\.).+\n?)*)", re.MULTILINE)
_WH_SUBJECT = re.compile(r"\s*(What|Who|Whom|Whoever|Whatever)\b(?! is\b.*\?)")

Finding = tuple[Path, int, str]


def check_names(path: Path, text: str) -> Iterator[Finding]:
    patterns = [(re.compile(rf"({pattern})\Z"), instead) for pattern, instead in RETIRED.items()]
    seen: set[str] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.NAME or token.string in seen or token.string.startswith("test_"):
            continue
        seen.add(token.string)
        for pattern, instead in patterns:
            if pattern.match(token.string) and not set(FOLDER_WORDS.get(token.string, ())) & set(path.parts):
                yield path, token.start[0], f"{token.string}: retired; use {instead}"


def check_functions(path: Path, tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if node.name.startswith("test_"):  # A sentence.
            sentence = node.name.removeprefix("test_").replace("_", " ").capitalize()
            yield from check_prose(path, [(node.lineno, sentence)])
        elif PARTICIPLES.fullmatch(node.name):
            yield path, node.lineno, f"{node.name}: name a function by a verb in the imperative"


def check_variables(path: Path, tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg in VAGUE:
            yield path, node.lineno, f"{node.arg}: name a parameter by the thing that it holds"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE:
            yield path, node.lineno, f"{node.id}: name a variable by the thing that it holds"
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr.lstrip("_") in VAGUE:
            yield path, node.lineno, f"{node.attr}: name an attribute by the thing that it holds"


def check_prose(path: Path, passages: Iterable[tuple[int, str]]) -> Iterator[Finding]:
    for line, prose in passages:
        for pattern, instead in PROSE.items():
            if match := re.search(pattern, prose, re.IGNORECASE):
                yield path, line, f'"{match[0]}" in prose: {instead}'
        for sentence in re.split(r"(?<=[.!?:])\s+", prose):
            if _WH_SUBJECT.match(sentence):
                yield path, line, f'"{sentence.split(maxsplit=1)[0]} …" as a subject: name the thing'


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def _comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def _paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs, list items and table cells of a page of Markdown, without its code."""
    text = _CODE.sub(lambda code: "\n" * code[0].count("\n"), page)  # Headings may be questions.
    for paragraph in _PARAGRAPH.finditer(text):
        line = text.count("\n", 0, paragraph.start()) + 1
        for prose in paragraph[0].split(" | "):
            yield line, prose.lstrip("|-# *").replace("\n", " ")


def check_classes(trees: dict[Path, ast.Module]) -> Iterator[Finding]:
    offered = _offered_names(trees)
    places: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            if not (path.is_relative_to(SDK) and node.name in offered):
                places[node.name].append((path, node.lineno))
    for name, classes in sorted(places.items()):
        for path, line in classes[1:] if name not in SHARED_CLASSES else ():
            yield path, line, f"class {name}: the name is taken by {classes[0][0]}"


def _offered_names(trees: dict[Path, ast.Module]) -> set[str]:
    """Return the names that the SDK offers: they are its users' words, which other folders may have too."""
    names: set[str] = set()
    for path, tree in trees.items():
        if path in (SDK / "__init__.py", SDK / "kubectl" / "__init__.py"):
            for node in tree.body:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    names |= set(ast.literal_eval(node.value)) if node.targets[0].id == "__all__" else set()
    return names


def main(folders: list[str]) -> int:
    roots = [Path(folder) for folder in folders]
    findings: list[Finding] = []
    trees = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    for path in sorted(path for root in roots for path in root.rglob("*.py")):
        text = path.read_text()
        tree = trees.get(path) or ast.parse(text)
        findings += check_names(path, text)
        findings += check_functions(path, tree)
        findings += check_variables(path, tree)
        findings += check_prose(path, (*_docstrings(tree), *_comments(text)))
    for page in sorted(page for root in roots for page in ([root] if root.suffix == ".md" else root.rglob("*.md"))):
        findings += check_prose(page, _paragraphs(page.read_text()))
    findings += (finding for finding in check_classes(trees) if any(map(finding[0].is_relative_to, roots)))
    for path, line, message in sorted(findings):
        print(f"{path}:{line}: {message}")
    if findings:
        print(f"{len(findings)} findings; docs/glossary.md has the words to use")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
