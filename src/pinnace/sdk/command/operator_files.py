"""Find the operator, or another part of an extension, in a Python file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from pinnace.model.load_balancers import LoadBalancerProvider
from pinnace.sdk.extension import Extension, Runnable
from pinnace.sdk.operator.operator import Operator
from pinnace.sdk.resources.schemas import NotStructural

MODULE = "-m "
"""The prefix of a target that is a module."""

Wanted = TypeVar("Wanted")


class NoOperator(Exception):
    """A file does not define exactly one operator (or plug-in), or it cannot be loaded.

    The message says what to write, or names the line of the error.
    """


def operator_in(target: str) -> Operator:
    """Return the operator of a file. A name after a colon chooses one of several: `website.py:operator`."""
    return only_in(target, Operator)


def extension_in(target: str) -> Extension:
    """Return the operator or scheduler of a file. A name after a colon chooses one of several."""
    return only_in(target, Extension, example="Operator")  # type: ignore[type-abstract]  # It is only compared.


def program_in(target: str) -> Runnable:
    """Return the operator, scheduler or plug-in of nodes of a file. A name after a colon chooses one of several."""
    return only_in(target, Runnable, example="Operator")  # type: ignore[type-abstract]  # As above.


def load_balancers_in(target: str) -> LoadBalancerProvider:
    """Return the provider of load balancers of a file. A name after a colon chooses one of several."""
    return only_in(target, LoadBalancerProvider, example="Provider")  # type: ignore[type-abstract]  # As above.


def only_in(target: str, wanted: type[Wanted], *, example: str = "") -> Wanted:
    """Return the object of a type that a file defines. A name after a colon chooses one of several.

    `example` is the class that messages name, if that is not `wanted` itself.
    """
    path, name = _split(target)
    module = _import_module(target, path) if is_module(target) else import_file(path)
    values = vars(module).items()
    candidates = {name: value for name, value in values if isinstance(value, wanted) and not isinstance(value, type)}
    kind = example or wanted.__name__
    what = kind.lower()
    if name:
        if name not in candidates:
            raise NoOperator(f"{path} has no {what} named {name}; it has {', '.join(candidates) or 'none'}")
        return candidates[name]
    if len({id(value) for value in candidates.values()}) != 1:
        if not candidates:
            raise NoOperator(f'{path} has no {what}; write: {what} = {kind}("{path.stem}")')
        raise NoOperator(f"{path} has several {what}s; say which: {path}:{next(iter(candidates))}")
    return next(iter(candidates.values()))


def import_file(path: Path) -> ModuleType:
    """Run a Python file and return its module. Raise NoOperator, with the line of the error, if it cannot be loaded."""
    if not path.is_file():
        raise NoOperator(f"there is no file {path}; for a module write -m package.module")
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    if spec is None or spec.loader is None:
        raise NoOperator(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Before it runs: its classes look themselves up there.
    beside = path.parent.resolve()
    if str(beside) not in sys.path:
        sys.path.insert(0, str(beside))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # The user's code may raise anything.
        raise NoOperator(_format_error(error, beside)) from error
    return module


def _import_module(target: str, path: Path) -> ModuleType:
    try:
        return importlib.import_module(module_name(target))
    except Exception as error:  # The user's code may raise anything.
        raise NoOperator(_format_error(error, root_of(target, path))) from error


def target_of(file: str, module: str) -> str:
    """Return the target that the arguments of a command name. Raise NoOperator unless it is exactly one."""
    if bool(file) == bool(module):
        raise NoOperator("name the file of the operator, as in website.py, or its module, as in -m package.module")
    return f"{MODULE}{module}" if module else file


def is_module(target: str) -> bool:
    """Return whether a target is a module, as in `-m package.module`, instead of a file."""
    return target.startswith(MODULE)


def module_name(target: str) -> str:
    return target.removeprefix(MODULE).partition(":")[0]


def root_of(target: str, path: Path) -> Path:
    """Return the directory whose modules belong to the operator: its package's, or the file's."""
    if not is_module(target):
        return path.resolve().parent
    depth = module_name(target).count(".") + (path.name == "__init__.py")
    return path.resolve().parents[max(depth - 1, 0)]


def file_of(target: str) -> Path:
    """Return the file of a target. Raise NoOperator if there is no such module."""
    return _split(target)[0]


def _find_module(name: str) -> Path:
    """Return the file of a module. Modules are found in the current directory and in `src` below it, too."""
    for place in (Path("src"), Path()):
        if place.is_dir() and str(place.resolve()) not in sys.path:
            sys.path.insert(0, str(place.resolve()))
    try:
        module = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise NoOperator(f"there is no module {name}: {error}") from None
    if module is None or module.origin is None:
        raise NoOperator(f"there is no module {name} in the current directory, in src, or installed")
    return Path(module.origin)


def _format_error(error: Exception, root: Path) -> str:
    """Return the line of the error in the user's files, and its message."""
    if isinstance(error, SyntaxError):
        line = f"\n    {error.text.strip()}" if error.text else ""
        return f"{Path(error.filename or '?').name}:{error.lineno}: {error.msg}{line}"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(str(root))]
    where = "".join(f"{Path(frame.filename).name}:{frame.lineno}: " for frame in own[-1:])
    return f"{where}{error}" if isinstance(error, NotStructural) else f"{where}{type(error).__name__}: {error}"


def _split(target: str) -> tuple[Path, str]:
    if is_module(target):
        module, _, name = target.removeprefix(MODULE).partition(":")
        return _find_module(module), name
    head, colon, name = target.rpartition(":")
    return (Path(head), name) if colon and name.isidentifier() else (Path(target), "")
