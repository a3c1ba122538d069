"""A webhook and an aggregated API server that run as pods behind Services."""

from __future__ import annotations

import base64

from tests.network.services.conftest import PodCluster, run_pod_cluster

from pinnace.auth.certificates.authority import issue, new_ca
from pinnace.model import errors
from pinnace.model.objects import Object

_SERVER = """
import base64, http.server, json, ssl
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        resource = {"name": "boats", "singularName": "boat", "namespaced": True, "kind": "Boat", "verbs": ["list"]}
        if self.path.partition("?")[0].endswith("/v1"):
            self.answer({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "sea.example.com/v1",
                         "resources": [resource]})
        else:
            boat = {"apiVersion": "sea.example.com/v1", "kind": "Boat", "metadata": {"name": "pinnace"}}
            self.answer({"kind": "BoatList", "apiVersion": "sea.example.com/v1", "metadata": {}, "items": [boat]})
    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        patch = [{"op": "add", "path": "/metadata/labels", "value": {"touched": "yes"}}]
        response = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch",
                    "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
        self.answer({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200); self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data))); self.end_headers(); self.wfile.write(data)
server = http.server.ThreadingHTTPServer(("", 8443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain("/tls/tls.crt", "/tls/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


async def _start_extension(pods: PodCluster) -> str:
    """Start the server as a pod behind the Service `sea`; return the CA bundle."""
    ca = new_ca()
    pair = issue(ca, common_name="sea", server_names=["sea.default.svc"])
    secret: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "tls", "namespace": "default"},
        "stringData": {"tls.crt": pair.certificate_pem.decode(), "tls.key": pair.key_pem.decode()},
    }
    await pods.client.create(secret)
    probe = {"tcpSocket": {"port": 8443}, "periodSeconds": 1, "failureThreshold": 60}
    mounts = [{"name": "tls", "mountPath": "/tls"}]
    await pods.create_pod(
        "sea",
        ["python3", "-c", _SERVER],
        metadata={"labels": {"app": "sea"}},
        container={"readinessProbe": probe, "volumeMounts": mounts},
        volumes=[{"name": "tls", "secret": {"secretName": "tls"}}],
    )
    await pods.until_ready("sea")
    await pods.create_service("sea", selector={"app": "sea"}, ports=[{"port": 443, "targetPort": 8443}])
    return base64.b64encode(ca.certificate_pem).decode()


async def test_the_server_calls_a_webhook_and_an_aggregated_api_that_run_as_pods() -> None:
    async with run_pod_cluster() as pods:
        bundle = await _start_extension(pods)
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
        hook: Object = {
            "name": "touch.sea.example.com",
            "clientConfig": {"service": {"namespace": "default", "name": "sea", "path": "/mutate"}, "caBundle": bundle},
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        group = "admissionregistration.k8s.io/v1"
        await pods.client.create(
            {
                "apiVersion": group,
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "sea"},
                "webhooks": [hook],
            }
        )

        async def labels() -> Object | None:
            made: Object = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"generateName": "c-", "namespace": "default"},
            }
            try:
                created = await pods.client.create(made)
            except errors.ApiError:
                return None  # The endpoints of the Service are not known yet.
            return dict(created["metadata"].get("labels") or {})

        await pods.until(labels, {"touched": "yes"})
        spec = {"group": "sea.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}
        service = {"namespace": "default", "name": "sea"}
        await pods.client.create(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": "v1.sea.example.com"},
                "spec": {**spec, "service": service, "caBundle": bundle},
            }
        )

        async def boats() -> str:
            try:
                return (await pods.client.read("/apis/sea.example.com/v1/namespaces/default/boats")).decode()
            except errors.ApiError as error:
                return str(error)

        async def is_served() -> bool:
            return '"pinnace"' in await boats()

        await pods.until(is_served)
