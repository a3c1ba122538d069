"""Write the API reference, docs/reference.md, from the docstrings and signatures of the public names.

    python tools/reference.py            write the page
    python tools/reference.py --check    fail if it is out of date, or if a public name has no docstring

Public are the names in `__all__` of `pinnace.sdk`, `pinnace.client` and `pinnace.testing`.
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pinnace.client
import pinnace.sdk
import pinnace.testing
from pinnace.model import errors
from pinnace.sdk.handlers.options import HandlerOptions
from pinnace.sdk.operator.runner import RunParameters
from pinnace.testing.faults import FaultOptions

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"
_LONGEST = 110
_INHERITED = (BaseException, dict, tuple, typing.Generic)
_FOREIGN = {"Field", "Object", "Maybe", "Conditions"}
"""Names of `pinnace.sdk` that are types or belong to pydantic, with their own line below."""
_LINES = {
    "Field": "A field's default, limits and description: pydantic's `Field`.",
    "Object": "Plain JSON: `dict[str, Any]`.",
    "Maybe": "A field that may be missing, but never null: `title: Maybe[str] = None`.",
    "Conditions": "The conditions of a status, at most one of each type.",
}

_BACKEND = {
    "get": "Return the object with this namespace and name; None if there is none.",
    "list": "Return all objects of a namespace; of all namespaces if it is empty.",
    "create": "Store a new object.",
    "update": "Replace the object with this name.",
    "delete": "Remove an object.",
    "watch": "Yield the key of each object that was changed elsewhere.",
    "close": "Close the connection.",
}
"""The methods of `Backend`, which every backend of the SDK documents once."""


def main() -> None:
    text = page()
    if "--check" in sys.argv:
        if PAGE.read_text() != text:
            sys.exit("docs/reference.md is out of date; run python tools/reference.py")
        return
    PAGE.write_text(text)


def page() -> str:
    """Return the whole page. Raise ValueError for a public name without a docstring."""
    lines = [
        "# API reference",
        "",
        "Generated from the code by `tools/reference.py`. These names are stable; see [Stability](stability.md).",
        "",
        "## pinnace.sdk",
        "",
    ]
    for name in sorted(pinnace.sdk.__all__, key=str.lower):
        lines += entry(name, getattr(pinnace.sdk, name))
    lines += ["### Options of handlers", "", *options(HandlerOptions)]
    lines += ["### Options of Operator.run and pinnace run", "", *options(RunParameters)]
    lines += ["## pinnace.client", ""]
    for name in sorted(set(pinnace.client.__all__) - set(pinnace.sdk.__all__), key=str.lower):
        lines += entry(name, getattr(pinnace.client, name))
    lines += ["### Errors", "", *error_lines(), ""]
    lines += ["## pinnace.testing", ""]
    for name in sorted(pinnace.testing.__all__, key=str.lower):
        lines += entry(name, getattr(pinnace.testing, name))
    lines += ["### Options of faults", "", *options(FaultOptions)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def entry(name: str, value: Any) -> list[str]:
    if name in _FOREIGN:
        return [f"### {name}", "", _LINES[name], ""]
    lines = [f"### {name}", "", f"`{name}{signature(value)}`", "", docstring(name, value), ""]
    if inspect.isclass(value):
        for method, function in sorted(methods(value)):
            text = docstring(f"{name}.{method}", function)
            lines += [f"- `{method}{signature(function)}`: {' '.join(text.split())}"]
        lines.append("")
    return lines


def methods(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the public methods that a class of ours defines or inherits from one of ours."""
    seen: set[str] = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("pinnace.") or base in _INHERITED:
            continue
        for name, value in vars(base).items():
            function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if name.startswith("_") or name in seen or not inspect.isroutine(function):
                continue
            seen.add(name)
            yield name, function


def options(kind: Any) -> list[str]:
    """Return a line for each option of a TypedDict, with the string below it in the source."""
    source = inspect.getsource(kind)
    lines = re.findall(r'^    (\w+): ([^\n]+)\n(?:    """(.*?)"""\n)?', source, re.MULTILINE | re.DOTALL)
    return [*(f"- `{name}: {kind}`{': ' + ' '.join(text.split()) if text else ''}" for name, kind, text in lines), ""]


def error_lines() -> list[str]:
    public = [cls for cls in vars(errors).values() if inspect.isclass(cls) and issubclass(cls, errors.ApiError)]
    return [f"- `{cls.__name__}` ({cls.code} {cls.reason})" for cls in public if getattr(cls, "code", 0) and cls.reason]


def signature(value: Any) -> str:
    if inspect.isclass(value) and hasattr(value, "model_fields"):
        return ""  # Pydantic's differs before and after the first use.
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
    text = re.sub(r"\b(?:pinnace|collections|typing|builtins)\.[\w.]*\.?(\w+)", r"\1", text)
    text = re.sub(r"\bForwardRef\('([^']*)'[^)]*\)", r"\1", text)  # Of named tuples, before Python 3.14.
    text = text.replace("'", "").replace("(self, ", "(").replace("(self)", "()").replace("(cls, ", "(")
    return text if len(text) <= _LONGEST else "(...)"


def docstring(name: str, value: Any) -> str:
    method = name.rpartition(".")[2]
    text = inspect.getdoc(value) or _BACKEND.get(method)
    if not text:
        raise ValueError(f"{name} is public and has no docstring")
    return re.sub(r"^( {4,}.*)$", lambda match: match[1], text, flags=re.MULTILINE)


if __name__ == "__main__":
    main()
