"""The built-in controllers of a cluster: one manager, one watch per kind, each controller as its own user."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Protocol

from pinnace.auth.authentication.service_accounts import legacy_token
from pinnace.auth.certificates.authority import FRONT_PROXY, CertificateFiles, load_key, load_pair
from pinnace.auth.certificates.signing import RequestSigner
from pinnace.auth.users import MASTERS, User, service_account_groups, service_account_name
from pinnace.client.client import Client
from pinnace.client.retries import Retries
from pinnace.client.transport import Answer, Stream, Transport
from pinnace.cluster.in_process import InProcessTransport
from pinnace.controllers.garbage.collector import GarbageCollector
from pinnace.controllers.garbage.monitors import Monitors
from pinnace.controllers.garbage.namespaces import NamespaceController
from pinnace.controllers.security.certificate_approval import CertificateApproval
from pinnace.controllers.security.certificate_cleaning import CertificateCleaning
from pinnace.controllers.security.certificate_signing import CertificateSigning
from pinnace.controllers.security.extension_authentication import ExtensionAuthentication
from pinnace.controllers.security.root_ca import RootCaPublisher
from pinnace.controllers.security.service_account_tokens import ServiceAccountTokens
from pinnace.controllers.security.service_accounts import ServiceAccounts
from pinnace.controllers.storage.protection import protect_claims, protect_classes, protect_volumes
from pinnace.model.clock import AlarmClock, SystemClock
from pinnace.model.objects import Kind
from pinnace.model.resources import Registry
from pinnace.reconcile.manager import Manager
from pinnace.server.local import LocalApi

NAME = "kube-controller-manager"
_SYSTEM = "kube-system"
_ATTRIBUTES_CLASS = Kind("storage.k8s.io", "v1", "VolumeAttributesClass")


class Plane(Protocol):
    """A control plane that can be called as any user."""

    @property
    def registry(self) -> Registry: ...

    def local(self, user: User) -> LocalApi: ...


class _Unwarned:
    """Without warnings: these controllers look after deprecated kinds because they exist, not by mistake."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        answer = await self._inner.request(method, target, body, headers)
        kept = {name: value for name, value in answer.headers.items() if name != "warning"}
        return Answer(answer.status, kept, answer.body)

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        return await self._inner.stream(target, headers, silence=silence)

    async def close(self) -> None:
        await self._inner.close()


def controllers_of(
    plane: Plane,
    files: CertificateFiles | None,
    *,
    clock: AlarmClock | None = None,
    transport_of: Callable[[User], Transport] | None = None,
) -> Manager:
    """All built-in controllers, ready to run. Without certificate files nothing is published about them or signed.

    `transport_of` is the way to the server as a user; without it they stay in its process.
    """
    reach = transport_of or (lambda user: InProcessTransport(plane.local(user)))

    def client_of(user: User) -> Client:
        # In process only aggregated servers are ever unavailable. Whoever needs one tries again by its own queue: to
        # wait for it here would keep all else waiting that the controller looks after.
        return Client(_Unwarned(reach(user)), clock=clock, field_manager=NAME, retries=Retries(attempts=1))

    manager = Manager(client_of(User(f"system:{NAME}", (MASTERS,))), name=NAME)

    def acting_as(controller: str) -> Client:
        """Webhooks and audit see who it was, by the name that this controller has in every cluster."""
        user = User(service_account_name(_SYSTEM, controller), service_account_groups(_SYSTEM))
        return client_of(user).telling(manager.informers.note_write)

    monitors = Monitors(manager)
    GarbageCollector(manager, acting_as("generic-garbage-collector"), monitors)
    NamespaceController(manager, acting_as("namespace-controller"), monitors)
    ServiceAccounts(manager, acting_as("service-account-controller"))
    protect_claims(manager, acting_as("pvc-protection-controller"))
    protect_volumes(manager, acting_as("pv-protection-controller"))
    if plane.registry.of_kind(_ATTRIBUTES_CLASS) is not None:  # Before 1.34 there was none of this version.
        protect_classes(manager, acting_as("volumeattributesclass-protection-controller"))
    CertificateApproval(manager, acting_as("certificate-controller"))
    CertificateCleaning(manager, acting_as("certificate-controller"))
    if files is not None:
        ca = files.ca.certificate.read_text()
        RootCaPublisher(manager, acting_as("root-ca-cert-publisher"), ca=ca)
        ExtensionAuthentication(manager, manager.client, entries=trust_of(files, client_ca=ca))
        # Those who decide what is signed are given somebody who signs, never the key.
        authority = RequestSigner(load_pair(files.ca), clock or SystemClock())
        CertificateSigning(manager, acting_as("certificate-controller"), authority=authority)
        token_key = load_key(files.token_key)
        ServiceAccountTokens(
            manager, manager.client, token_of=lambda account, secret: legacy_token(account, secret, token_key), ca=ca
        )
    return manager


def trust_of(files: CertificateFiles, *, client_ca: str) -> dict[str, str]:
    """What aggregated servers are told of whom to believe."""
    return {
        "client-ca-file": client_ca,
        "requestheader-client-ca-file": files.front_proxy_ca.certificate.read_text(),
        "requestheader-allowed-names": json.dumps([FRONT_PROXY]),
        "requestheader-username-headers": json.dumps(["X-Remote-User"]),
        "requestheader-uid-headers": json.dumps(["X-Remote-Uid"]),
        "requestheader-group-headers": json.dumps(["X-Remote-Group"]),
        "requestheader-extra-headers-prefix": json.dumps(["X-Remote-Extra-"]),
    }
