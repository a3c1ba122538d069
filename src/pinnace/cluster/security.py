"""Builds authentication and authorization: authenticators, tokens, authorizers, and the objects that they read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric import ec

from pinnace.admission.plugins.escalation import NoEscalation
from pinnace.auth.authentication.authenticators import (
    Anonymous,
    AnyOf,
    Authenticator,
    BearerAuthenticator,
    CertificateAuthenticator,
    FirstOf,
    ProxyAuthenticator,
    StaticTokens,
    Tokens,
    read_token_file,
)
from pinnace.auth.authentication.bootstrap_tokens import BootstrapTokens
from pinnace.auth.authentication.jwt import load_public_keys, load_signing_key
from pinnace.auth.authentication.oidc import OidcTokens
from pinnace.auth.authentication.service_accounts import Accounts, ServiceAccountTokens, TokenIssuer
from pinnace.auth.authorization.authorizers import Always, InOrder, Masters
from pinnace.auth.authorization.nodes import BoundObjects, Enforcement, NodeAuthorizer
from pinnace.auth.authorization.rbac import HeldRules, Rbac
from pinnace.auth.authorization.rules import rules_of
from pinnace.auth.certificates.authority import FRONT_PROXY, CertificateFiles
from pinnace.auth.remote import RemoteConfigError, read_remote
from pinnace.auth.settings import AuthSettings
from pinnace.auth.webhooks import WebhookAuthorizer, WebhookTokens
from pinnace.model.authorization import ALLOWED, Authorizer
from pinnace.model.users import User
from pinnace.process.clock import AlarmClock
from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.server.bootstrap.default_roles import default_role
from pinnace.server.foundation import Foundation
from pinnace.server.status.role_aggregation import RoleAggregation
from pinnace.server.status.token_uses import token_use_writer
from pinnace.server.status.writer import ObjectWriter

if TYPE_CHECKING:
    from pinnace.schema.configuration.reloading import ReloadedFile

RBAC = "rbac.authorization.k8s.io"


_MODES = ("Node", "RBAC", "Webhook", "AlwaysAllow", "AlwaysDeny")


class AuthorizationModeError(ValueError):
    """The authorization modes cannot be used together or do not exist."""


_MASTERS = "kubernetes.io/system-privileged-group"
_NAMED_SINCE = 37
"""The minor since which the reasons of authorizers begin with their names."""


@dataclass(frozen=True, slots=True)
class Security:
    """The parts that the server calls."""

    identify: FirstOf
    tokens: Tokens
    issuer: TokenIssuer
    authorizer: Authorizer
    rbac: Rbac
    rules: HeldRules
    no_escalation: NoEscalation
    configurations: Mapping[str, ReloadedFile]
    """Files that are read again when they are saved, by what they configure."""


def build_security(
    foundation: Foundation,
    settings: AuthSettings,
    *,
    tokens: Mapping[str, User],
    files: CertificateFiles | None = None,
) -> Security:
    """Without certificate files, service account tokens are signed with a key that is not kept.

    Raises TokenFileError, RemoteConfigError or ConfigurationError for files that cannot be used.
    """
    objects, clock = foundation.objects, foundation.clock
    rbac = Rbac(
        roles=objects(RBAC, "roles"),
        cluster_roles=objects(RBAC, "clusterroles"),
        bindings=objects(RBAC, "rolebindings"),
        cluster_bindings=objects(RBAC, "clusterrolebindings"),
    )
    _aggregate_roles(foundation)
    accounts = Accounts(
        service_accounts=objects("", "serviceaccounts"),
        pods=objects("", "pods"),
        secrets=objects("", "secrets"),
        nodes=objects("", "nodes"),
    )
    issuer = _build_issuer(settings, accounts, clock, files)
    known_tokens = _build_tokens(foundation, settings, tokens, issuer, accounts)
    identify = FirstOf(_build_authenticators(files, known_tokens, clock), Anonymous(settings.anonymous is not False))
    nodes = NodeAuthorizer(
        rules=rules_of(default_role("system:node", foundation.definitions.minor)),
        pods=accounts.pods,
        claims=objects("", "persistentvolumeclaims"),
        bound=_bound_objects(foundation),
        enforcement=Enforcement(objects("networking.k8s.io", "networkpolicies"), rbac),
        has_selectors=foundation.gates.is_on("AuthorizeNodeWithSelectors"),
    )
    authorizer = InOrder([Masters()])
    has_names = int(foundation.definitions.minor.partition(".")[2]) >= _NAMED_SINCE
    configurations = {}
    if settings.configuration is not None:
        configurations["authentication"] = _follow_authentication(settings, clock, issuer, known_tokens, identify)
    fixed: dict[str, Authorizer] = {"Node": nodes, "RBAC": rbac, "AlwaysAllow": Always(ALLOWED), "AlwaysDeny": Always()}
    if settings.authorization_configuration is not None:
        configurations["authorization"] = _follow_authorization(settings, clock, fixed, authorizer, has_names=has_names)
    else:
        names = (_MASTERS, *(mode.lower() for mode in authorization_modes(settings))) if has_names else ()
        authorizer.replace([Masters(), *_build_authorizers(settings, clock, fixed)], names)
    for name, file in configurations.items():
        foundation.supervisor.add(f"{name}-config-reloader", file.run)
    return Security(
        identify=identify,
        tokens=known_tokens,
        issuer=issuer,
        authorizer=authorizer,
        rbac=rbac,
        rules=HeldRules(rbac, has_webhook=lambda: _has_webhook(authorizer)),
        no_escalation=NoEscalation(rbac, authorizer),
        configurations=configurations,
    )


def _bound_objects(foundation: Foundation) -> BoundObjects:
    objects, has_certificates = foundation.objects, foundation.gates.is_on("PodCertificateRequest")
    return BoundObjects(
        slices=objects("resource.k8s.io", "resourceslices"),
        attachments=objects("storage.k8s.io", "volumeattachments"),
        certificate_requests=objects("certificates.k8s.io", "podcertificaterequests") if has_certificates else None,
    )


def _build_authenticators(files: CertificateFiles | None, tokens: Tokens, clock: AlarmClock) -> list[Authenticator]:
    of_files: list[Authenticator] = []
    if files is not None:
        proxy_ca = files.front_proxy_ca.certificate.read_bytes()
        of_files.append(ProxyAuthenticator(proxy_ca, allowed_names=(FRONT_PROXY,), clock=clock))
    client_ca = files.client_ca.read_bytes() if files is not None else None
    return [*of_files, CertificateAuthenticator(client_ca, clock=clock), BearerAuthenticator(tokens)]


def _follow_authentication(
    settings: AuthSettings, clock: AlarmClock, issuer: TokenIssuer, tokens: AnyOf, identify: FirstOf
) -> ReloadedFile:
    """Take issuers and anonymity from a file, and from each later version of it."""
    from pinnace.auth.configuration.issuers import parse_authentication  # noqa: PLC0415 - few clusters have such files.
    from pinnace.schema.configuration.reloading import ReloadedFile  # noqa: PLC0415

    path, fixed = settings.configuration, tokens.issuers
    assert path is not None, "the caller has checked it"

    def apply(content: bytes) -> None:
        configuration = parse_authentication(content, path, own_issuers=[issuer.issuer])
        if configuration.anonymous is not None and settings.anonymous is not None:
            error = "--anonymous-auth cannot be set when anonymous is configured in the file; remove one of them"
            raise ConfigurationError(f"{path}: {error}")
        tokens.issuers = (*fixed, *(OidcTokens(each, clock) for each in configuration.issuers))
        if settings.anonymous is None:
            identify.anonymous = configuration.anonymous or Anonymous()

    return ReloadedFile.begin(path, apply, clock)


def _follow_authorization(
    settings: AuthSettings,
    clock: AlarmClock,
    fixed: Mapping[str, Authorizer],
    authorizer: InOrder,
    *,
    has_names: bool,
) -> ReloadedFile:
    """Take the authorizers from a file, and from each later version of it."""
    from pinnace.auth.configuration.authorizers import parse_authorization  # noqa: PLC0415 - few clusters have such files.
    from pinnace.schema.configuration.reloading import ReloadedFile  # noqa: PLC0415

    path = settings.authorization_configuration
    assert path is not None, "the caller has checked it"

    def apply(content: bytes) -> None:
        authorizers: list[Authorizer] = [Masters()]
        names = [_MASTERS]
        for configured in parse_authorization(content, path):
            names.append(configured.name)
            webhook = configured.webhook
            if webhook is None:
                authorizers.append(fixed[configured.type])
                continue
            try:
                remote = read_remote(webhook.kubeconfig, timeout=webhook.timeout)
            except RemoteConfigError as error:
                raise ConfigurationError(f"{path}: {error}") from None
            authorizers.append(
                WebhookAuthorizer(
                    remote,
                    clock,
                    version=webhook.version,
                    conditions=webhook.conditions,
                    denies_on_error=webhook.denies_on_error,
                    allowed_remembered=webhook.allowed_remembered,
                    refused_remembered=webhook.refused_remembered,
                )
            )
        authorizer.replace(authorizers, names if has_names else ())

    return ReloadedFile.begin(path, apply, clock)


def _has_webhook(authorizer: InOrder) -> bool:
    return any(isinstance(each, WebhookAuthorizer) for each in authorizer.authorizers)


def _build_issuer(
    settings: AuthSettings, accounts: Accounts, clock: AlarmClock, files: CertificateFiles | None
) -> TokenIssuer:
    key = load_signing_key(files.token_key) if files is not None else ec.generate_private_key(ec.SECP256R1())
    others = [public for path in settings.token_keys for public in load_public_keys(path)]
    return TokenIssuer(key, accounts, clock, issuer=settings.issuer, audiences=settings.audiences, other_keys=others)


def authorization_modes(settings: AuthSettings) -> tuple[str, ...]:
    """Return the modes in their order. Raise AuthorizationModeError for an unknown one, or a webhook without a file."""
    default = ("Node", "RBAC", "Webhook") if settings.authorization_webhook is not None else ("Node", "RBAC")
    modes = settings.authorization_modes or default
    for mode in modes:
        if mode not in _MODES:
            raise AuthorizationModeError(f"authorization mode {mode!r} is unknown; expected {', '.join(_MODES)}")
    if "Webhook" in modes and settings.authorization_webhook is None:
        raise AuthorizationModeError("authorization mode Webhook needs --authorization-webhook-config-file")
    return modes


def _build_authorizers(settings: AuthSettings, clock: AlarmClock, fixed: Mapping[str, Authorizer]) -> list[Authorizer]:
    authorizers: list[Authorizer] = []
    for mode in authorization_modes(settings):
        if mode == "Webhook" and settings.authorization_webhook is not None:
            authorizers.append(WebhookAuthorizer(read_remote(settings.authorization_webhook), clock))
        else:
            authorizers.append(fixed[mode])
    return authorizers


def _build_tokens(
    foundation: Foundation,
    settings: AuthSettings,
    tokens: Mapping[str, User],
    issuer: TokenIssuer,
    accounts: Accounts,
) -> AnyOf:
    clock = foundation.clock
    static = {**read_token_file(settings.token_file), **tokens} if settings.token_file is not None else tokens
    issuers: list[Tokens] = [
        StaticTokens(static, own_audiences=issuer.audiences),
        ServiceAccountTokens(
            issuer,
            accounts,
            clock,
            on_legacy_use=_build_token_uses(foundation).note,
            sync=foundation.store.sync if foundation.store.is_shared else None,
        ),
        BootstrapTokens(accounts.secrets, clock),
        *(OidcTokens(each, clock) for each in settings.issuers),
    ]
    if settings.token_webhook is not None:
        issuers.append(WebhookTokens(read_remote(settings.token_webhook), clock))
    return AnyOf(issuers, own_audiences=issuer.audiences)


def _build_token_uses(foundation: Foundation) -> ObjectWriter:
    secrets = foundation.stored_resource("", "secrets")
    uses = token_use_writer(foundation.fanout, foundation.store, secrets, foundation.clock)
    foundation.supervisor.add("legacy-token-uses", uses.run)
    return uses


def _aggregate_roles(foundation: Foundation) -> None:
    cluster_roles = foundation.stored_resource(RBAC, "clusterroles")
    aggregation = RoleAggregation(foundation.fanout, foundation.store, cluster_roles, foundation.clock)
    foundation.fanout.on_change(cluster_roles.prefix, lambda event: aggregation.note_change())
    foundation.supervisor.add("clusterrole-aggregation-controller", aggregation.run)
