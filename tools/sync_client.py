"""Write the verbs of the synchronous client from those of the asynchronous one.

    python tools/sync_client.py            # writes src/pinnace/client/sync/verbs.py
    python tools/sync_client.py --check    # fails if it is out of date

Each method has the signature and the docstring of its model, and drives it; none does anything of its own.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CLIENT = Path(__file__).parents[1] / "src" / "pinnace" / "client"
SOURCES = ("reading", "writing", "streams", "waiting")
CLASSES = ("Reading", "Writing", "PodStreams", "ObjectWaits")
TARGET = CLIENT / "sync" / "verbs.py"
LEFT_OUT = ("create_many", "delete_many", "lines", "log_bytes", "patch_many", "snapshots", "update_many", "watch")
"""Methods that serve controllers in the server's process, caches and streams of bytes."""
HEAD = '''"""The verbs of `pinnace.client.sync.SyncClient`. Written by `tools/sync_client.py`; do not edit."""

from __future__ import annotations

{imports}


class SyncVerbs(Driver):
    """Each method does what the one of `pinnace.client.Client` with its name does, and returns when it is done."""

'''
Function = ast.FunctionDef | ast.AsyncFunctionDef


def read_trees() -> list[ast.Module]:
    return [ast.parse((CLIENT / f"{source}.py").read_text()) for source in SOURCES]


def functions_of(trees: list[ast.Module]) -> Iterator[Function]:
    """Yield the methods to write, overloads included."""
    for tree in trees:
        for node in tree.body:
            if not isinstance(node, ast.ClassDef) or node.name not in CLASSES:
                continue
            methods = [child for child in node.body if isinstance(child, Function)]
            driven = {child.name for child in methods if isinstance(child, ast.AsyncFunctionDef)}
            for method in methods:
                if method.name in driven and not method.name.startswith("_") and method.name not in LEFT_OUT:
                    yield method


def is_overload(method: Function) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id == "overload" for mark in method.decorator_list)


def written(method: Function, overloaded: set[str]) -> ast.FunctionDef:
    """Return the synchronous form of a method."""
    returns, is_stream = method.returns, False
    if isinstance(returns, ast.Subscript) and ast.unparse(returns.value) == "AsyncGenerator":
        assert isinstance(returns.slice, ast.Tuple)
        is_stream = True
        returns = ast.parse(f"Generator[{ast.unparse(returns.slice.elts[0])}, None, None]", mode="eval").body
    body: list[ast.stmt] = [ast.Expr(ast.Constant(...))]
    if not is_overload(method):
        drive = "_iterate" if is_stream else "_call"
        client = "_driven" if method.name in overloaded else "client"
        call = f"return self.{drive}(self.{client}.{method.name}({', '.join(arguments_of(method))}))"
        body = [method.body[0], *ast.parse(call).body]
    function = ast.parse("def method(): ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    function.name, function.args, function.body = method.name, method.args, body
    function.decorator_list, function.returns = method.decorator_list, returns
    return function


def arguments_of(method: Function) -> Iterator[str]:
    """Yield the arguments by which the method of the other client is called."""
    yield from (argument.arg for argument in method.args.args[1:])
    yield from (f"{argument.arg}={argument.arg}" for argument in method.args.kwonlyargs)
    if method.args.kwarg is not None:
        yield f"**{method.args.kwarg.arg}"


def imports_of(trees: list[ast.Module], names: set[str]) -> Iterator[str]:
    """Yield the imports of these names: from where the asynchronous client has them, or from itself."""
    for source, tree in zip(SOURCES, trees, strict=True):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                yield from (f"from {node.module} import {alias.name}" for alias in node.names if alias.name in names)
            elif isinstance(node, ast.Import):
                yield from (f"import {alias.name}" for alias in node.names if alias.name in names)
        for node in tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            name = node.name if isinstance(node, ast.ClassDef) else target.id if isinstance(target, ast.Name) else ""
            if name in names:
                yield f"from pinnace.client.{source} import {name}"


def render() -> str:
    trees = read_trees()
    overloaded = {method.name for method in functions_of(trees) if is_overload(method)}
    methods = [written(method, overloaded) for method in functions_of(trees)]
    names = {node.id for method in methods for node in ast.walk(method) if isinstance(node, ast.Name)}
    lines = sorted(
        {"from collections.abc import Generator", "from pinnace.client.sync.driver import Driver"}
        | set(imports_of(trees, names))
    )
    body = "\n\n".join(ast.unparse(method) for method in methods)
    indented = "\n".join(f"    {line}" if line else "" for line in body.splitlines())
    text = HEAD.format(imports="\n".join(lines)) + indented + "\n"
    for command in (["check", "--fix", "--select", "I", "--quiet"], ["format", "--quiet"]):
        ended = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        text = ended.stdout
    return text


def main(arguments: list[str]) -> int:
    text = render()
    if "--check" not in arguments:
        TARGET.write_text(text)
        return 0
    if TARGET.exists() and TARGET.read_text() == text:
        return 0
    print(f"{TARGET.name} is out of date; run python tools/sync_client.py")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
