"""Finds the operator in a Python file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from pinnace.sdk.operator import Operator


class NoOperator(Exception):
    """A file has no operator in it, or more than one. The message says what to write."""


def operator_in(target: str) -> Operator:
    """The operator of a file. Of several the one that is named after a colon: `website.py:operator`."""
    path, name = _split(target)
    if not path.is_file():
        raise NoOperator(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    if spec is None or spec.loader is None:
        raise NoOperator(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Before it runs: its classes look themselves up there.
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    found = {known: value for known, value in vars(module).items() if isinstance(value, Operator)}
    if name:
        if name not in found:
            raise NoOperator(f"{path} has no operator named {name}; it has {', '.join(found) or 'none'}")
        return found[name]
    if len({id(operator) for operator in found.values()}) != 1:
        if not found:
            raise NoOperator(f'{path} has no operator; write: operator = Operator("{path.stem}")')
        raise NoOperator(f"{path} has several operators; say which: {path}:{next(iter(found))}")
    return next(iter(found.values()))


def file_of(target: str) -> Path:
    return _split(target)[0]


def _split(target: str) -> tuple[Path, str]:
    head, colon, name = target.rpartition(":")
    return (Path(head), name) if colon and name.isidentifier() else (Path(target), "")
