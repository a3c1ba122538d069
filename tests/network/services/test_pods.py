"""Service addresses between running pods, by nftables and by the proxy."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.error
import urllib.request

from tests.network.services.conftest import PodCluster

from pinnace.model import errors

NODE_ADDRESS = "10.244.0.1"
_UDP = """
import socket, sys
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); client.settimeout(5)
client.connect((sys.argv[1], int(sys.argv[2]))); client.send(b"hello"); print(client.recv(100).decode())
"""


async def test_a_cluster_ip_leads_to_its_pods(pods: PodCluster) -> None:
    client, *_ = await asyncio.gather(pods.start_client(), pods.start_server("one"), pods.start_server("two"))
    service = await pods.create_service()
    address = service["spec"]["clusterIP"]
    own = client["status"]["podIP"]

    async def served() -> set[str]:
        return {await pods.fetch("client", f"http://{address}/") for _ in range(4)}

    is_kernel = pods.is_nftables
    source = own if is_kernel else "10.244.0.1"
    await pods.until(served, {f"one {source}", f"two {source}"})
    code, output = await pods.run("client", "ip", "route")
    assert code == 0 and "default" not in output
    assert (await pods.fetch("client", f"http://{address}:81/")).startswith("curl 7"), "refused at once"
    await pods.delete_pod("one")
    await pods.until(served, {f"two {source}"})
    assert (await pods.fetch("two", f"http://{address}/")).startswith("two "), "its own client"
    await pods.delete_pod("two")

    async def refused() -> bool:
        return (await pods.fetch("client", f"http://{address}/")).startswith("curl 7")

    await pods.until(refused)


async def test_pods_without_egress_reach_external_addresses(pods: PodCluster) -> None:
    await asyncio.gather(pods.start_client(), pods.start_server("one"))
    await pods.create_service(externalIPs=["203.0.113.7"])

    async def fetch(place: str = "203.0.113.7") -> str:
        return (await pods.fetch("client", f"http://{place}/")).partition(" ")[0]

    await pods.until(fetch, "one")
    await pods.start_client("late")
    assert (await pods.fetch("late", "http://203.0.113.7/")).startswith("one ")
    assert (await pods.fetch("client", "http://203.0.113.8/")).startswith("curl 7"), "no other address is reachable"
    assert "default" not in (await pods.run("late", "ip", "route"))[1]
    await pods.client.patch("v1/Service", "web", {"spec": {"externalIPs": ["203.0.113.8"]}}, namespace="default")

    async def both() -> list[str]:
        return [await fetch(), await fetch("203.0.113.8")]

    await pods.until(both, ["curl", "one"])


async def test_udp_node_ports_and_several_ports(pods: PodCluster) -> None:
    await asyncio.gather(pods.start_client(), pods.start_server("one"))
    ports = [
        {"name": "http", "port": 80, "targetPort": 8080},
        {"name": "again", "port": 81, "targetPort": 8080},
        {"name": "udp", "port": 80, "targetPort": 8080, "protocol": "UDP"},
    ]
    service = await pods.create_service(ports=ports, type="NodePort")
    address = service["spec"]["clusterIP"]
    node_ports = [port["nodePort"] for port in service["spec"]["ports"]]

    async def answers() -> list[str]:
        pages = [await pods.fetch("client", f"http://{address}:{port}/") for port in (80, 81)]
        pages.append(await pods.fetch("client", f"http://10.244.0.1:{node_ports[0]}/"))
        for place, port in ((address, 80), ("10.244.0.1", node_ports[2])):
            pages.append((await pods.run("client", "python3", "-c", _UDP, place, str(port)))[1].rpartition("\n")[2])
        return [page.partition(" ")[0] + ("!" if "hello" in page else "") for page in pages]

    await pods.until(answers, ["one", "one", "one", "one!", "one!"])


_LASTING_UDP = """
import socket, sys
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); client.settimeout(0.2)
client.bind(("", 5000)); client.connect((sys.argv[1], 80))
while True:
    try:
        client.send(b"hello"); print(client.recv(100).decode().split()[0], flush=True)
    except OSError as error:
        print("none", flush=True)
"""


async def test_a_udp_client_is_led_to_another_endpoint_when_its_own_is_gone(pods: PodCluster) -> None:
    await pods.start_server("one")
    service = await pods.create_service(ports=[{"port": 80, "targetPort": 8080, "protocol": "UDP"}])
    await pods.create_pod("lasting", ["python3", "-c", _LASTING_UDP, service["spec"]["clusterIP"]])

    async def last() -> str:
        try:
            log = await pods.client.read("/api/v1/namespaces/default/pods/lasting/log?tailLines=1")
        except errors.ApiError:
            return ""
        return log.decode().strip()

    await pods.until(last, "one")
    await pods.delete_pod("one")
    await pods.until(last, "none")
    await pods.start_server("two")
    await pods.until(last, "two")


async def test_clients_keep_their_endpoint_with_session_affinity(pods: PodCluster) -> None:
    await asyncio.gather(pods.start_client(), *(pods.start_server(name) for name in ("one", "two", "three")))
    service = await pods.create_service(sessionAffinity="ClientIP")
    address = service["spec"]["clusterIP"]

    async def fetch() -> str:
        return (await pods.fetch("client", f"http://{address}/")).partition(" ")[0]

    async def is_served() -> bool:
        return await fetch() != "curl"

    await pods.until(is_served)
    first = await fetch()
    assert {await fetch() for _ in range(8)} == {first}
    await pods.delete_pod(first)

    async def has_moved() -> bool:
        return await fetch() not in (first, "curl")

    await pods.until(has_moved)
    second = await fetch()
    assert {await fetch() for _ in range(8)} == {second}


async def test_the_machine_reaches_node_ports_and_load_balancers_on_loopback(pods: PodCluster) -> None:
    await pods.start_server("one")
    ports = [{"port": 8088, "targetPort": 8080}]  # An ordinary user cannot listen below 1024.
    service = await pods.create_service(type="LoadBalancer", ports=ports)
    node_port = service["spec"]["ports"][0]["nodePort"]

    async def ingress() -> bool:
        obj = await pods.client.get("v1/Service", "web", namespace="default")
        return bool(obj["status"]["loadBalancer"].get("ingress"))

    await pods.until(ingress)
    obj = await pods.client.get("v1/Service", "web", namespace="default")
    balancer = obj["status"]["loadBalancer"]["ingress"][0]["ip"]
    assert balancer.startswith("127.")
    for place in (f"127.0.0.1:{node_port}", f"{balancer}:8088"):

        async def answers(place: str = place) -> str:
            try:
                return (await asyncio.to_thread(_fetch, place)).partition(" ")[0]
            except OSError as error:
                return str(error)

        await pods.until(answers, "one")
    await pods.client.delete("v1/Service", "web", namespace="default")

    async def is_closed() -> bool:
        with socket.socket() as opened:
            return opened.connect_ex(("127.0.0.1", node_port)) != 0

    await pods.until(is_closed)


async def test_a_load_balancer_drops_clients_outside_its_source_ranges(pods: PodCluster) -> None:
    await asyncio.gather(pods.start_client(), pods.start_server("one"))
    ports = [{"port": 8088, "targetPort": 8080}]
    elsewhere = {"type": "LoadBalancer", "loadBalancerClass": "example.com/none"}
    await pods.create_service(**elsewhere, ports=ports)
    status = {"status": {"loadBalancer": {"ingress": [{"ip": NODE_ADDRESS}]}}}
    await pods.client.patch("v1/Service", "web", status, namespace="default", subresource="status")

    async def answer() -> str:
        return (await pods.fetch("client", f"http://{NODE_ADDRESS}:8088/")).partition(" ")[0]

    await pods.until(answer, "one")
    for ranges, expected in ((["198.51.100.0/24"], "curl"), (["198.51.100.0/24", "10.0.0.0/8"], "one")):
        change = {"spec": {"loadBalancerSourceRanges": ranges}}
        await pods.client.patch("v1/Service", "web", change, namespace="default")
        await pods.until(answer, expected)


async def test_a_health_check_port_answers_for_local_traffic(pods: PodCluster) -> None:
    policy = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
    service = await pods.create_service(ports=[{"port": 8089, "targetPort": 8080}], **policy)
    place = f"127.0.0.1:{service['spec']['healthCheckNodePort']}"

    async def local_endpoints() -> object:
        try:
            return json.loads(await asyncio.to_thread(_fetch, place))["localEndpoints"]
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    await pods.until(local_endpoints, 503)
    await pods.start_server("one")
    await pods.until(local_endpoints, 1)
    bridge = "10.244.0.1"
    url = f"http://{bridge}:{service['spec']['healthCheckNodePort']}/"
    assert '"localEndpoints": 1' in await pods.fetch("one", url)


def _fetch(place: str) -> str:
    with urllib.request.urlopen(f"http://{place}/", timeout=60) as page:
        return str(page.read().decode())


async def test_pods_reach_the_api_server_at_its_service_address(pods: PodCluster) -> None:
    await pods.start_client()
    script = (
        "cd /var/run/secrets/kubernetes.io/serviceaccount; "
        'curl -sS --max-time 5 --cacert ca.crt -H "Authorization: Bearer $(cat token)" '
        "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/version"
    )

    async def is_answered() -> bool:
        return '"gitVersion"' in (await pods.run("client", "sh", "-c", script))[1]

    await pods.until(is_answered)


async def test_a_service_whose_endpoint_is_its_own_address_makes_no_connections_but_is_refused(
    pods: PodCluster,
) -> None:
    """The proxy connected to itself, until it had thousands of connections for a single one of a pod."""
    await pods.start_client()
    service = await pods.create_service("loop", selector=None)
    address = service["spec"]["clusterIP"]
    await pods.client.create(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "loop",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": "loop"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address]}],
            "ports": [{"port": 80, "protocol": "TCP"}],
        }
    )
    await pods.start_server("web")
    served = await pods.create_service("web")  # Its address works after those of Services that were made before.
    web = served["spec"]["clusterIP"]

    async def is_served() -> bool:
        return (await pods.fetch("client", f"http://{web}/")).startswith("web")

    await pods.until(is_served)
    assert (await pods.fetch("client", f"http://{address}/")).startswith("curl 7:")
