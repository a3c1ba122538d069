"""Builds authentication and authorization: authenticators, tokens, authorizers, and the objects that they read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric import ec

from pinnace.auth.authentication.authenticators import (
    Authenticator,
    BearerAuthenticator,
    CertificateAuthenticator,
    FirstOf,
    ProxyAuthenticator,
)
from pinnace.auth.authentication.bootstrap_tokens import BootstrapTokens
from pinnace.auth.authentication.oidc import OidcTokens
from pinnace.auth.authentication.service_accounts import Accounts, ServiceAccountTokens, TokenIssuer
from pinnace.auth.authentication.token_keys import load_public_keys, load_signing_key
from pinnace.auth.authentication.tokens import AnyOf, StaticTokens, Tokens, read_token_file
from pinnace.auth.authorization.authorizers import ALLOWED, Always, Authorizer, InOrder, Masters
from pinnace.auth.authorization.escalation import NoEscalation
from pinnace.auth.authorization.held_rules import HeldRules
from pinnace.auth.authorization.nodes import NodeAuthorizer
from pinnace.auth.authorization.rbac import Rbac
from pinnace.auth.authorization.rules import rules_of
from pinnace.auth.certificates.authority import FRONT_PROXY, CertificateFiles
from pinnace.auth.remote import read_remote
from pinnace.auth.settings import AuthSettings
from pinnace.auth.users import User
from pinnace.auth.webhooks import WebhookAuthorizer, WebhookTokens
from pinnace.cluster.bootstrap.default_roles import default_role
from pinnace.cluster.foundation import Foundation
from pinnace.cluster.status.role_aggregation import RoleAggregation
from pinnace.cluster.status.token_uses import token_use_writer
from pinnace.cluster.status.writer import ObjectWriter
from pinnace.model.clock import AlarmClock

RBAC = "rbac.authorization.k8s.io"


_MODES = ("Node", "RBAC", "Webhook", "AlwaysAllow", "AlwaysDeny")


class AuthorizationModeError(ValueError):
    """The authorization modes cannot be used together or do not exist."""


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


def build_security(
    foundation: Foundation,
    settings: AuthSettings,
    *,
    tokens: Mapping[str, User],
    files: CertificateFiles | None = None,
) -> Security:
    """Without certificate files, service account tokens are signed with a key that is not kept.

    Raises TokenFileError or RemoteConfigError for files that cannot be used.
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
    authenticators: list[Authenticator] = []
    if files is not None:
        proxy_ca = files.front_proxy_ca.certificate.read_bytes()
        authenticators.append(ProxyAuthenticator(proxy_ca, allowed_names=(FRONT_PROXY,), clock=clock))
    client_ca = files.client_ca.read_bytes() if files is not None else None
    authenticators += [CertificateAuthenticator(client_ca, clock=clock), BearerAuthenticator(known_tokens)]
    nodes = NodeAuthorizer(
        rules=rules_of(default_role("system:node", foundation.definitions.minor)),
        pods=accounts.pods,
        claims=objects("", "persistentvolumeclaims"),
        slices=objects("resource.k8s.io", "resourceslices"),
        attachments=objects("storage.k8s.io", "volumeattachments"),
    )
    authorizer = InOrder([Masters(), *_build_authorizers(settings, clock, nodes, rbac)])
    return Security(
        identify=FirstOf(authenticators),
        tokens=known_tokens,
        issuer=issuer,
        authorizer=authorizer,
        rbac=rbac,
        rules=HeldRules(rbac, has_webhook="Webhook" in authorization_modes(settings)),
        no_escalation=NoEscalation(rbac, authorizer),
    )


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


def _build_authorizers(
    settings: AuthSettings, clock: AlarmClock, nodes: NodeAuthorizer, rbac: Rbac
) -> list[Authorizer]:
    fixed: dict[str, Authorizer] = {"Node": nodes, "RBAC": rbac, "AlwaysAllow": Always(ALLOWED), "AlwaysDeny": Always()}
    found: list[Authorizer] = []
    for mode in authorization_modes(settings):
        if mode == "Webhook" and settings.authorization_webhook is not None:
            found.append(WebhookAuthorizer(read_remote(settings.authorization_webhook), clock))
        else:
            found.append(fixed[mode])
    return found


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
        ServiceAccountTokens(issuer, accounts, clock, on_legacy_use=_build_token_uses(foundation).note),
        BootstrapTokens(accounts.secrets, clock),
        *(OidcTokens(provider, clock) for provider in settings.providers),
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
