"""The columns of runtime classes."""

from __future__ import annotations

from pinnace.kinds.cells import AGE, NAME, at, string

RUNTIME_CLASS = (NAME, string("Handler", "", at("handler")), AGE)
