"""A device plug-in: the LEDs of each machine are a resource, and a container that asks for one can switch it.

pinnace run examples/17-device-plugin/leds.py --root-dir DIRECTORY-OF-THE-NODE/kubelet
kubectl apply -f examples/17-device-plugin/blinker.yaml
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pinnace.sdk.node import Allocation, Device, DevicePlugin, MountedPath

LEDS = Path(os.environ.get("LEDS", "/sys/class/leds"))

plugin = DevicePlugin("example.com/led", host_paths=[str(LEDS)])


@plugin.devices(every=5)
def find_leds() -> list[Device]:
    """An LED whose files are gone for the moment is not healthy: the node gives it to no container."""
    leds = sorted(LEDS.iterdir()) if LEDS.is_dir() else []
    return [Device(led.name, is_healthy=(led / "brightness").exists()) for led in leds]


@plugin.prefer
def prefer_neighbours(available: Sequence[str], must_include: Sequence[str], size: int) -> list[str]:
    """LEDs of one board have names that begin alike."""
    rest = sorted(name for name in available if name not in must_include)
    return [*must_include, *rest][:size]


@plugin.before_start
def switch_off(leds: Sequence[str]) -> None:
    for led in leds:
        (LEDS / led / "brightness").write_text("0")


@plugin.allocate
def give(leds: Sequence[str]) -> Allocation:
    mounts = [MountedPath(path=str(LEDS / led), container_path=f"/leds/{led}", read_only=False) for led in leds]
    return Allocation(env={"LEDS": ",".join(leds)}, mounts=mounts)
