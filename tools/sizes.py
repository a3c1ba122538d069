"""Check sizes in src/: no function over 60 lines, no file over 500. Exceptions are named here with their reason.

    python tools/sizes.py [FOLDER ...]      # src/pinnace without arguments

Of a command only the body counts: its parameters are flags, and their help and its docstring are what `--help` prints.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

SOURCE = Path("src/pinnace")
COMMANDS = SOURCE / "cli" / "commands"
FUNCTION_LINES = 60
FILE_LINES = 500
EXCEPTIONS: dict[str, str] = {
    "src/pinnace/schema/golang/protobuf.py::_filler": "holds fill",
    "src/pinnace/schema/golang/protobuf.py::fill": "one loop over the bytes: a call for each field doubles the time",
}
"""`path::function` or `path`, and why it stays long."""


def main(folders: list[str]) -> int:
    roots = [Path(folder) for folder in folders] or [SOURCE]
    findings = []
    for path in sorted(path for root in roots for path in root.rglob("*.py")):
        text = path.read_text()
        lines = text.count("\n")
        if lines > FILE_LINES and str(path) not in EXCEPTIONS:
            findings.append(f"{path}: {lines} lines, at most {FILE_LINES}: split it by what it holds")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = _length(node, is_command=path.is_relative_to(COMMANDS))
                if length > FUNCTION_LINES and f"{path}::{node.name}" not in EXCEPTIONS:
                    findings.append(f"{path}:{node.lineno}: {node.name} has {length} lines, at most {FUNCTION_LINES}")
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef, *, is_command: bool) -> int:
    first = node.lineno
    if is_command:
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        first = body[0].lineno if body else node.lineno
    return (node.end_lineno or node.lineno) - first + 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
