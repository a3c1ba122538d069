"""The variables and arguments of containers, also those that would fill the memory of the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO, cast

import pytest

from pinnace.model.objects import Object
from pinnace.model.typed_objects import Container, EnvVar, Pod
from pinnace.node.agent.containers.env_files import EnvFiles
from pinnace.node.agent.containers.variables import (
    LONGEST,
    MOST_TOTAL,
    environment_of,
    expand,
    expand_all,
)
from pinnace.node.agent.pod_fields import PodFields
from pinnace.node.errors import ConfigRefused

POD: Pod = {"metadata": {"name": "a", "namespace": "default", "uid": "u"}, "spec": {"containers": []}}
SECRET = {"name": "a", "key": "KEY"}
FIELDS = PodFields(POD, node="n", host_ips=["192.0.2.1"], pod_ips=[], allocatable={})


class Source:
    """A ConfigMap and a Secret of one large value."""

    async def config_map(self, namespace: str, name: str) -> Mapping[str, bytes]:
        return {"KEY": b"x" * 1_000_000}

    secret = config_map


async def no_file(volume: str, path: str) -> BinaryIO:
    raise FileNotFoundError(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("$(A)-$(B)", "1-2"),
        ("$$(A)", "$(A)"),
        ("$$$(A)$$", "$1$"),
        ("$(UNKNOWN)$(A", "$(UNKNOWN)$(A"),
        ("", ""),
    ],
)
def test_references_are_replaced(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


async def test_values_that_double_are_refused() -> None:
    doubling: list[EnvVar] = [{"name": "V0", "value": "x" * 100}]
    doubling += [{"name": f"V{at}", "value": f"$(V{at - 1})$(V{at - 1})"} for at in range(1, 60)]
    with pytest.raises(ConfigRefused, match=f"expands to more than {LONGEST} bytes"):
        await environment_of({"name": "main", "env": doubling}, FIELDS, Source(), [], EnvFiles(no_file))


@pytest.mark.parametrize(
    "container",
    [
        {"envFrom": [{"prefix": f"P{at}", "configMapRef": {"name": "a"}} for at in range(1_000)]},
        {
            "env": [
                {"name": f"V{at}", "valueFrom": {"secretKeyRef": {"name": "a", "key": "KEY"}}} for at in range(1_000)
            ]
        },
        {"env": [{"name": "A", "value": "x" * LONGEST}, *({"name": f"V{at}", "value": "$(A)"} for at in range(1_000))]},
    ],
    ids=["from ConfigMaps", "from Secrets", "from each other"],
)
async def test_more_variables_than_linux_takes_are_refused(container: Object) -> None:
    with pytest.raises(ConfigRefused, match=f"longer than {MOST_TOTAL} bytes"):
        await environment_of(cast(Container, container), FIELDS, Source(), [], EnvFiles(no_file))


def test_more_arguments_than_linux_takes_are_refused() -> None:
    with pytest.raises(ConfigRefused, match=f"longer than {MOST_TOTAL} bytes"):
        expand_all(["$(A)"] * 100_000, {"A": "x" * 10_000})
