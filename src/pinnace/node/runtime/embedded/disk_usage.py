"""The disk space of a pod, measured by a process that the fork server starts for it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from pinnace.node.runtime.embedded.channels import Channel
from pinnace.node.runtime.embedded.descriptors import OpenFile
from pinnace.node.runtime.errors import RuntimeFailure
from pinnace.node.runtime.runtime import DiskUsage


async def measure_files(node: Channel, directory: str, layers: Mapping[str, str]) -> DiskUsage:
    """Measure the files below a directory, and the layers of containers by their directories. Raise RuntimeFailure."""
    receiving, sending = os.pipe()
    output = OpenFile(receiving)
    try:
        try:
            await node.request({"op": "measure", "directory": directory, "layers": [*layers.values()]}, [sending])
        finally:
            os.close(sending)
        data = b""
        while part := await output.read():
            data += part
    finally:
        output.close()
    if not data:
        raise RuntimeFailure(
            f"the disk space of {directory} could not be measured; the log of the fork server says why"
        )
    found = json.loads(data)
    return DiskUsage(
        files=found["files"],
        layers=dict(zip(layers, found["layers"], strict=True)),
        cpu_seconds=found["cpu_seconds"],
    )
