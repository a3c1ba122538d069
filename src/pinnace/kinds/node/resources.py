"""The row of runtime classes."""

from __future__ import annotations

from pinnace.kinds.node import columns, validation
from pinnace.kinds.rows import GA, Row, old

ROWS = (
    Row(
        group="node.k8s.io",
        name="RuntimeClass",
        plural="runtimeclasses",
        columns=columns.RUNTIME_CLASS,
        namespaced=False,
        versions=(GA, old("v1beta1", deprecated="1.22", removed="1.25")),
        strategy=validation.RUNTIME_CLASS,
    ),
)
