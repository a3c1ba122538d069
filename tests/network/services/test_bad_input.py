"""Services and policies that are wrong, vanish or come in masses are handled as in Kubernetes, and harm no others."""

from __future__ import annotations

import asyncio
import socket

import pytest
from tests.network.services.conftest import PodCluster, run_pod_cluster
from tests.network.services.objects import endpoint, endpoint_slice

from pinnace.model import errors
from pinnace.model.objects import Object

_HOLD = """
import socket, sys
with socket.create_connection((sys.argv[1], 80), timeout=60) as held:
    print(held.recv(100).decode(), flush=True)
    try:
        print("end" if held.recv(100) == b"" else "more", flush=True)
    except ConnectionError:
        print("end", flush=True)
"""
_GREET = """
import socket
with socket.create_server(("", 8080), backlog=100) as server:
    kept = []
    while True:
        client, _ = server.accept(); client.sendall(socket.gethostname().encode()); kept.append(client)
"""


async def _start_greeter(pods: PodCluster, name: str) -> None:
    probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 60}
    labels = {"metadata": {"labels": {"app": "web"}}}
    await pods.create_pod(name, ["python3", "-c", _GREET], container={"readinessProbe": probe}, **labels)
    await pods.until_ready(name)


async def _log(pods: PodCluster, pod: str) -> str:
    try:
        return (await pods.client.read(f"/api/v1/namespaces/default/pods/{pod}/log")).decode()
    except errors.ApiError:
        return ""


async def test_a_service_without_endpoints_refuses_connections_at_once(pods: PodCluster) -> None:
    service = await pods.create_service(selector={"app": "nothing"}, type="NodePort")
    await pods.start_client()
    node_port = service["spec"]["ports"][0]["nodePort"]
    for place in (service["spec"]["clusterIP"], f"10.244.0.1:{node_port}"):
        result = await pods.fetch("client", f"http://{place}/")
        assert result.startswith("curl 7"), f"{place} is refused, without a time-out: {result}"


async def test_of_two_services_that_want_one_port_the_second_is_refused_or_waits(pods: PodCluster) -> None:
    await asyncio.gather(pods.start_client(), pods.start_server("one"))
    first = await pods.create_service("first", type="NodePort", externalIPs=["192.0.2.7"])
    node_port = first["spec"]["ports"][0]["nodePort"]
    ports = [{"port": 80, "targetPort": 8080, "nodePort": node_port}]
    with pytest.raises(errors.Invalid, match="provided port is already allocated"):
        await pods.create_service("second", type="NodePort", ports=ports)
    with pytest.raises(errors.Invalid, match="provided IP is already allocated"):
        await pods.create_service("third", clusterIP=first["spec"]["clusterIP"])
    # Kubernetes accepts one external address twice: the first Service by name has it.
    await pods.create_service("zero", externalIPs=["192.0.2.7"], selector={"app": "nothing"})

    async def served() -> set[str]:
        places = (first["spec"]["clusterIP"], f"10.244.0.1:{node_port}")
        return {(await pods.fetch("client", f"http://{place}/")).partition(" ")[0] for place in places}

    await pods.until(served, {"one"})


async def test_an_endpoint_that_vanishes_ends_its_own_connections_alone(pods: PodCluster) -> None:
    await _start_greeter(pods, "one")
    service = await pods.create_service()
    command = ["python3", "-c", _HOLD, service["spec"]["clusterIP"]]

    async def hold(name: str, server: str) -> None:
        """Open a connection to a server; while the Service has no endpoint yet, the container starts again."""
        await pods.create_pod(name, command, restartPolicy="OnFailure")

        async def is_open() -> bool:
            return (await _log(pods, name)).strip() == server

        await pods.until(is_open)

    await hold("first", "one")
    await _start_greeter(pods, "two")
    await pods.delete_pod("one")
    await hold("second", "two")

    async def first_log() -> str:
        return (await _log(pods, "first")).split()[-1]

    await pods.until(first_log, "end")
    assert (await _log(pods, "second")).split() == ["two"]


async def test_a_thousand_services_are_served() -> None:
    async with run_pod_cluster() as pods:
        server, _ = await asyncio.gather(pods.start_server("one"), pods.start_client())
        address = server["status"]["podIP"]
        ports = [{"name": "", "port": 8080, "protocol": "TCP"}]
        places: dict[int, str] = {}
        for number in range(1000):
            made = await pods.create_service(f"web-{number}", selector=None)
            places[number] = made["spec"]["clusterIP"]
            slice_ = endpoint_slice(f"web-{number}", [endpoint(address)], ports=ports)
            await pods.client.create(slice_)
        for number in (0, 500, 999):

            async def served(number: int = number) -> set[str]:
                urls = (f"http://{places[number]}/", f"http://web-{number}/")
                return {(await pods.fetch("client", url)).partition(" ")[0] for url in urls}

            await pods.until(served, {"one"})
        await pods.client.delete("v1/Service", "web-500", namespace="default")

        async def refused() -> bool:
            return (await pods.fetch("client", f"http://{places[500]}/")).startswith("curl 7")

        await pods.until(refused)
        assert (await pods.fetch("client", f"http://{places[501]}/")).startswith("one ")


async def test_a_policy_that_selects_everything_leaves_the_machine_and_other_namespaces_alone() -> None:
    async with run_pod_cluster() as pods:
        await pods.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "closed"}})

        async def has_account() -> bool:
            return await pods.client.get_or_none("v1/ServiceAccount", "default", namespace="closed") is not None

        await pods.until(has_account)
        closed = {"metadata": {"namespace": "closed"}}
        command = ["python3", "-m", "http.server", "8080", "--directory", "/etc"]
        opened, _, _ = await asyncio.gather(
            pods.start_server("open"), pods.start_client(), pods.create_pod("shut", command, **closed)
        )
        service = await pods.create_service()
        shut = (await pods.until_ready("shut", namespace="closed"))["status"]["podIP"]

        async def reached() -> tuple[bool, bool, bool]:
            """From outside into the namespace, from inside out of it, and between two pods elsewhere."""
            out = ("curl", "-sS", "--max-time", "1", f"http://{opened['status']['podIP']}:8080/")
            return (
                "curl" not in await pods.fetch("client", f"http://{shut}:8080/hostname"),
                (await pods.run("shut", *out, namespace="closed"))[0] == 0,
                "curl" not in await pods.fetch("client", f"http://{service['spec']['clusterIP']}/"),
            )

        await pods.until(reached, (True, True, True))
        metadata = {"name": "everything", "namespace": "closed"}
        spec: Object = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
        kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
        await pods.client.create({**kind, "metadata": metadata, "spec": spec})
        await pods.until(reached, (False, False, True))
        connection = await pods.runtimes[0].open_socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.setblocking(False)
        with connection:  # From the node itself, as probes and port-forward.
            await asyncio.get_running_loop().sock_connect(connection, (shut, 8080))
        await pods.client.delete("networking.k8s.io/v1/NetworkPolicy", "everything", namespace="closed")
        await pods.until(reached, (True, True, True))


async def test_a_name_that_does_not_exist_is_answered_at_once() -> None:
    async with run_pod_cluster() as pods:
        await pods.start_client()
        script = "import socket, sys; socket.getaddrinfo(sys.argv[1], 80)"
        unknown, refused = "[Errno -2] Name or service not known", "[Errno -3] Temporary failure in name resolution"
        for name, expected in (
            ("nothing", unknown),
            ("nothing.default.svc", unknown),
            ("nothing.default.svc.cluster.local", unknown),
            ("web.nowhere.svc.cluster.local", unknown),
            ("example.com", refused),  # It may exist elsewhere: the server neither knows nor forwards the query.
        ):

            async def looked_up(name: str = name) -> str:
                return (await pods.run("client", "python3", "-c", script, name))[1].rpartition("\n")[2]

            await pods.until(looked_up, f"socket.gaierror: {expected}")
