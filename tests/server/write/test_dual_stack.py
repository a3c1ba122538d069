"""Services of dual-stack and IPv6 clusters get the addresses, and the errors, that kube-apiserver 1.36 gives them.

dual_stack_1_36.jsonl has the answers of a real server whose ranges are those of RANGES. `$0` and `$1` are the addresses
in the answer before.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.server.in_process import MERGE, SERVICES, InProcess, control_plane

from pinnace.cluster.settings import Settings, parse_service_ranges
from pinnace.store.memory import MemoryStore

RANGES = {"dual": ("10.96.0.0/16", "fd00:96::/108"), "ipv6": ("fd00:96::/108",)}
CIDRS = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
CASES = [json.loads(line) for line in (Path(__file__).parent / "dual_stack_1_36.jsonl").read_text().splitlines()]


def service(name: str = "web", **spec: Any) -> dict[str, Any]:
    wanted = {"ports": [{"port": 80}], "selector": {"app": "a"}, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": wanted}


def resolve(value: Any, last: list[str]) -> Any:
    text = json.dumps(value)
    for index, address in enumerate(last):
        text = text.replace(f'"${index}"', json.dumps(address))
    return json.loads(text)


def family(address: str) -> str:
    return address if address == "None" else "IPv6" if ":" in address else "IPv4"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['cluster']}: {case['name']}")
async def test_the_answers_are_those_of_a_real_server(case: dict[str, Any]) -> None:
    async with control_plane(settings=Settings(service_ranges=RANGES[case["cluster"]])) as api:
        last: list[str] = []
        for step, expected in zip(case["steps"], case["answers"], strict=True):
            last, result = await _answer(api, step, last)
            assert result == expected


async def _answer(api: InProcess, step: dict[str, Any], last: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Send one step. Return the addresses of the service, and the answer in the form of the recording."""
    spec, name = resolve(step["spec"], last), step.get("name", "web")
    body = service(name, **{field: value for field, value in spec.items() if value is not None})
    body["spec"] = {field: value for field, value in spec.items() if value is not None}
    match step["method"]:
        case "POST":
            reply = await api.post(SERVICES, body)
        case "PUT":
            reply = await api.put(f"{SERVICES}/{name}", body)
        case _:
            reply = await api.call("PATCH", f"{SERVICES}/{name}", {"spec": spec}, MERGE)
    if reply.status >= 400:
        message = reply.message
        for index, address in enumerate(last):
            message = message.replace(address, f"${index}")
        return last, {"status": reply.status, "message": message}
    stored = reply.json["spec"]
    addresses = stored.get("clusterIPs", [])
    words = json.dumps(step["spec"]).split('"')
    return addresses, {
        "status": reply.status,
        "policy": stored.get("ipFamilyPolicy"),
        "families": stored.get("ipFamilies"),
        "first": stored.get("clusterIP") == (addresses[0] if addresses else None),
        "addresses": [known if known in words else family(known) for known in addresses],
    }


async def test_each_address_has_its_object_and_loses_it() -> None:
    async with control_plane(settings=Settings(service_ranges=RANGES["dual"])) as api:
        made = await api.made(SERVICES, service(ipFamilyPolicy="RequireDualStack"))
        first, second = made["spec"]["clusterIPs"]
        for address, version in ((first, "IPv4"), (second, "IPv6")):
            obj = (await api.get(f"{ADDRESSES}/{address}")).json
            assert obj["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"] == version
            assert obj["spec"]["parentRef"]["name"] == "web"
        await api.call("PATCH", f"{SERVICES}/web", {"spec": {"ipFamilyPolicy": "SingleStack"}}, MERGE)
        assert (await api.get(f"{ADDRESSES}/{second}")).status == 404
        assert (await api.get(f"{ADDRESSES}/{first}")).status == 200


async def test_an_address_that_is_written_in_two_ways_is_given_once() -> None:
    async with control_plane(settings=Settings(service_ranges=RANGES["ipv6"])) as api:
        await api.made(SERVICES, service(clusterIP="fd00:96::9"))
        reply = await api.post(SERVICES, service("other", clusterIP="fd00:96:0:0::9"))
        assert (reply.status, "provided IP is already allocated" in reply.message) == (422, True)


async def test_a_cluster_becomes_dual_stack_at_a_restart() -> None:
    store = MemoryStore()
    async with control_plane(store) as single:
        await single.made(SERVICES, service("before", ipFamilyPolicy="PreferDualStack"))
        assert (await single.get(CIDRS)).json["spec"]["cidrs"] == ["10.96.0.0/16"]
        async with control_plane(store, settings=Settings(service_ranges=RANGES["dual"])) as dual:
            assert (await dual.get(CIDRS)).json["spec"]["cidrs"] == list(RANGES["dual"])
            kept = await dual.patch(f"{SERVICES}/before", {"spec": {"ports": [{"port": 81}]}})
            assert kept.json["spec"]["ipFamilies"] == ["IPv4"], "an update of something else adds no address"
            both = await dual.patch(f"{SERVICES}/before", {"spec": {"ipFamilyPolicy": "RequireDualStack"}})
            assert [family(address) for address in both.json["spec"]["clusterIPs"]] == ["IPv4", "IPv6"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10.96.0.0/16,10.97.0.0/16", "found IPv4 twice"),
        ("10.96.0.0/16,fd00::/108,fd01::/108", "at most two ranges, found 3"),
        ("10.96.0.1/16", "has host bits set"),
    ],
)
def test_wrong_ranges_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_service_ranges(text)
