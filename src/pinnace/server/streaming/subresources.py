"""The streaming subresources: exec, attach, portforward, log and proxy, forwarded to the pod's node."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from urllib.parse import unquote

from pinnace.admission.chain import AdmissionChain
from pinnace.model import errors
from pinnace.model.authorization import Action, Authorizer, Decision
from pinnace.model.node_connections import NodeConnection, NodeConnections, PodAddress
from pinnace.model.objects import Object
from pinnace.model.write_review import Review
from pinnace.process.byte_streams import Duplex
from pinnace.server.streaming.exec import RequestedStreams, reports_status, serve_command
from pinnace.server.streaming.logs import log_options, serve_log
from pinnace.server.streaming.port_forward import serve_ports
from pinnace.server.streaming.proxy import (
    ProxyTarget,
    check_reachable,
    choose_endpoint,
    headers_for,
    parse_target,
    pass_back,
    pass_to_pod,
    path_below_proxy,
    port_of,
    redirect_to_slash,
)
from pinnace.server.streaming.tunnel import dial, join_host_port
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.messages import Answer, Response
from pinnace.serving.request.call import Call

_PODS = "/registry/core/pods/"
_SERVICES = "/registry/core/services/"
_ENDPOINTS = "/registry/core/endpoints/"
_LARGEST_PORT = (1 << 31) - 1


class NodeUnreachable(errors.ApiError):
    """The node does not answer. As in Kubernetes, the Status has a message and no reason."""

    code, reason = 500, ""


class Streaming:
    """Answers requests for streaming subresources. Connections to a pod are admitted first, as operation CONNECT."""

    def __init__(
        self,
        *,
        fanout: Fanout,
        nodes: NodeConnections,
        admission: AdmissionChain,
        authorizer: Authorizer,
        reading_creates: bool,
    ) -> None:
        self._fanout = fanout
        self._nodes = nodes
        self._admission = admission
        self._authorizer = authorizer
        self._reading_creates = reading_creates
        """A WebSocket begins with GET: since 1.35 opening one also requires the verb create."""

    async def answer(self, call: Call) -> Answer:
        """Answer the call. Raise an ApiError."""
        call.verb = "connect"  # Admission sees this verb, whatever the method.
        match call.resource.plural, call.subresource:
            case "pods", "log":
                return await self._log(call)
            case "pods", "exec" | "attach":
                return await self._command(call)
            case "pods", "portforward":
                return await self._ports(call)
            case "pods", "proxy":
                return await self._pod_proxy(call)
            case "services", "proxy":
                return await self._service_proxy(call)
            case "nodes", "proxy":
                return await self._node_proxy(call)
        raise errors.NoSuchPath()

    # Requests to the pod's node.

    async def _log(self, call: Call) -> Answer:
        options = log_options(call)
        pod = self._pod(call, call.name)
        container = _container(pod, call.text("container"))
        if not pod["spec"].get("nodeName"):
            return Response(204)
        try:
            pieces = await self._node(pod).logs(_address(pod), container, options)
        except OSError as error:
            raise NodeUnreachable(str(error)) from None
        return serve_log(call.request, pieces)

    async def _command(self, call: Call) -> Answer:
        options = _options(call, ("stdin", "stdout", "stderr", "tty"))
        if call.subresource == "exec":
            options["command"] = call.request.query.get("command")
        await self._admit(call, options)
        pod = self._pod(call, call.name)
        container = _container(pod, str(options.get("container") or ""))
        node = self._node(pod)
        if not call.request.upgrade:
            raise errors.BadRequest("Upgrade request required")
        has_terminal = bool(options.get("tty"))
        wanted = RequestedStreams(
            stdin=bool(options.get("stdin")),
            stdout=bool(options.get("stdout")),
            stderr=bool(options.get("stderr")) and not has_terminal,
            tty=has_terminal,
        )
        if not (wanted.stdin or wanted.stdout or wanted.stderr):
            raise errors.BadRequest("you must specify at least 1 of stdin, stdout, stderr")
        if not reports_status(call.request):
            await _reach(node)
        if call.subresource == "attach":
            return serve_command(call.request, wanted, partial(node.attach, _address(pod), container))
        command = options["command"]
        if not command:
            raise errors.BadRequest("you must specify at least one command for the container")
        return serve_command(call.request, wanted, partial(node.exec, _address(pod), container, list(command)))

    async def _ports(self, call: Call) -> Answer:
        options: Object = {}
        if listed := call.request.query.get("ports"):
            options["ports"] = [_number(part) for text in listed for part in text.split(",")]
        await self._admit(call, options)
        pod = self._pod(call, call.name)
        node = self._node(pod)
        if not call.request.upgrade:
            raise errors.BadRequest("Upgrade request required")
        ports = options.get("ports") or []
        if not all(0 < port < 1 << 16 for port in ports):
            raise errors.BadRequest(f"ports must be from 1 to 65535: {ports}")
        await _reach(node)
        address = _address(pod)
        return serve_ports(call.request, address, ports, partial(node.connect, address))

    # Proxies.

    async def _pod_proxy(self, call: Call) -> Answer:
        await self._admit_proxy(call)
        target = parse_target(call)
        pod = self._pod(call, target.name)
        return await self._proxy_to(call, target, pod, port_of(target, pod))

    async def _service_proxy(self, call: Call) -> Answer:
        await self._admit_proxy(call)
        target = parse_target(call)
        service = self._find(_SERVICES, call.namespace, target.name)
        if service is None:
            raise errors.NotFound(group="", plural="services", name=target.name)
        port_name = target.port
        if port_name.isascii() and port_name.isdigit():
            ports = (service.get("spec") or {}).get("ports") or ()
            service_port = next((entry for entry in ports if entry.get("port") == int(port_name)), None)
            if service_port is None:
                raise errors.Unavailable(f'no service port {int(port_name)} found for service "{target.name}"')
            port_name = service_port.get("name") or ""
        endpoints = self._find(_ENDPOINTS, call.namespace, target.name)
        if endpoints is None:
            raise errors.NotFound(group="", plural="services", name=target.name)
        pod, port = choose_endpoint(
            target.name, port_name, endpoints, lambda name: self._find(_PODS, call.namespace, name)
        )
        return await self._proxy_to(call, target, pod, port)

    async def _proxy_to(self, call: Call, target: ProxyTarget, pod: Object, port: int) -> Answer:
        """Forward to a port of the pod: through its node if that runs in this process, as only it knows its pods."""
        try:
            node = self._nodes.find(str(pod["spec"].get("nodeName") or ""))
        except KeyError:
            node = None
        status = pod.get("status") or {}
        ip = next((entry["ip"] for entry in status.get("podIPs") or () if entry.get("ip")), status.get("podIP", ""))
        if node is None or node.host:
            await check_reachable(ip)
        if (redirect := redirect_to_slash(call)) is not None:
            return redirect
        host = join_host_port(ip, port)
        try:
            connection: Duplex = await (
                node.connect(_address(pod), port) if node is not None and not node.host else dial(ip, port)
            )
            return await pass_to_pod(call, target, connection, host)
        except OSError as error:
            raise errors.Unavailable(f"error trying to reach service: {error}") from None

    async def _node_proxy(self, call: Call) -> Answer:
        await self._admit_proxy(call)
        target = parse_target(call)
        try:
            node = self._nodes.find(target.name)
        except KeyError:
            raise errors.NotFound(group="", plural="nodes", name=target.name) from None
        if node.host:
            await check_reachable(node.host)
        if (redirect := redirect_to_slash(call)) is not None:
            return redirect
        request = call.request
        query = f"?{request.raw_query}" if request.raw_query else ""
        upgrade = request.headers.get(b"upgrade", b"") if request.upgrade else b""
        headers = headers_for(request, target.name)
        try:
            path = (path_below_proxy(call) or "/") + query
            answer = await node.ask(request.method, path, headers, request.body, upgrade=upgrade)
            return await pass_back(answer, request)
        except OSError as error:
            raise errors.Unavailable(f"error trying to reach service: {error}") from None

    # Admission, authorization, and finding the pod and its node.

    async def _admit_proxy(self, call: Call) -> None:
        path = unquote(path_below_proxy(call)) or call.text("path")
        await self._admit(call, {"path": path} if path else {})

    async def _admit(self, call: Call, options: Object) -> None:
        if "dryRun" in call.request.query:
            raise errors.BadRequest("dryRun is not supported")
        below = call.resource.subresource(call.subresource)
        assert below is not None, "expected a served subresource: the router rejects others"
        message: Object = {"kind": below.kind.name, "apiVersion": below.kind.api_version, **options}
        review = Review(
            operation="CONNECT",
            resource=call.resource,
            subresource=call.subresource,
            namespace=call.namespace,
            name=call.name,
            new=message,
            old=None,
            user=call.user,
            warnings=call.warnings,
        )
        if (waiting := self._admission.mutate(review)) is not None:
            await waiting
        if (waiting := self._admission.validate(review)) is not None:
            await waiting
        options.update(review.changed)
        if self._reading_creates and call.request.method == "GET" and call.subresource != "proxy":
            await self._authorize_creation(call)

    async def _authorize_creation(self, call: Call) -> None:
        action = Action("create", "", "", "pods", call.subresource, call.namespace, call.name, "v1")
        decision = self._authorizer.decide(call.user, action)
        if not isinstance(decision, Decision):
            decision = await decision
        if not decision.is_allowed:
            raise errors.Forbidden(decision.reason, group="", plural="pods", name=call.name)

    def _pod(self, call: Call, name: str) -> Object:
        pod = self._find(_PODS, call.namespace, name)
        if pod is None:
            raise errors.NotFound(group="", plural="pods", name=name)
        return pod

    def _find(self, prefix: str, namespace: str, name: str) -> Object | None:
        entry = self._fanout.cache(prefix).entries.get(f"{namespace}/{name}")
        return entry.decode() if entry is not None else None

    def _node(self, pod: Object) -> NodeConnection:
        name = pod["spec"].get("nodeName")
        if not name:
            raise errors.BadRequest(f"pod {pod['metadata']['name']} does not have a host assigned")
        try:
            return self._nodes.find(name)
        except KeyError:
            # As Kubernetes does: the node's name, as if it were a pod's.
            raise errors.NotFound(group="", plural="pods", name=name) from None


async def _reach(node: NodeConnection) -> None:
    try:
        await node.reach()
    except OSError as error:
        raise NodeUnreachable(f"error dialing backend: {error}") from None


def _options(call: Call, flags: Iterable[str]) -> Object:
    options: Object = {flag: True for flag in flags if call.flag(flag)}
    return {**options, "container": call.text("container")} if call.text("container") else options


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise errors.BadRequest(f'cannot convert to []int32: strconv.ParseUint: parsing "{text}": invalid syntax')
    if len(text) > 10 or int(text) > _LARGEST_PORT:
        raise errors.BadRequest(f'cannot convert to []int32: strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def _address(pod: Object) -> PodAddress:
    metadata = pod["metadata"]
    return PodAddress(metadata["namespace"], metadata["name"], metadata["uid"])


def _container(pod: Object, wanted: str) -> str:
    """Return the named container, or the only one. Raise BadRequest."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    main = [container["name"] for container in spec.get("containers") or ()]
    all_names = [
        container["name"]
        for kind in ("initContainers", "containers", "ephemeralContainers")
        for container in spec.get(kind) or ()
    ]
    if wanted:
        if wanted not in all_names:
            raise errors.BadRequest(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(main) == 1:
        return str(main[0])
    if not main:
        raise errors.BadRequest(f"a container name must be specified for pod {name}")
    raise errors.BadRequest(
        f"a container name must be specified for pod {name}, choose one of: [{' '.join(all_names)}]"
    )
