"""Reads an AuthenticationConfiguration: trusted issuers of tokens, and who may be anonymous."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pinnace.auth.authentication.authenticators import Anonymous
from pinnace.auth.authentication.oidc import ALGORITHMS, ClaimMapping, ClaimRule, TrustedIssuer
from pinnace.auth.configuration.expressions import CLAIMS, USER, ExpressionCompiler
from pinnace.model import names
from pinnace.model.objects import Object
from pinnace.process.tls import client_tls
from pinnace.schema.configuration.documents import FLAG, TEXT, TEXTS, check, decode, items, structure
from pinnace.schema.field_errors import FieldError, duplicate, invalid, required, too_many

KIND = "AuthenticationConfiguration"
VERSIONS = ("v1", "v1beta1", "v1alpha1")
_MOST_ISSUERS = 64
_CLAIM = structure(claim=TEXT, prefix=TEXT, expression=TEXT)
_JWT = structure(
    issuer=structure(
        url=TEXT, discoveryURL=TEXT, certificateAuthority=TEXT, audiences=TEXTS, audienceMatchPolicy=TEXT,
        egressSelectorType=TEXT,
    ),
    claimValidationRules=items(structure(claim=TEXT, requiredValue=TEXT, expression=TEXT, message=TEXT)),
    claimMappings=structure(
        username=_CLAIM, groups=_CLAIM, uid=structure(claim=TEXT, expression=TEXT),
        extra=items(structure(key=TEXT, valueExpression=TEXT)),
    ),
    userValidationRules=items(structure(expression=TEXT, message=TEXT)),
)  # fmt: skip
_FIELDS: Object = {
    "jwt": items(_JWT),
    "anonymous": structure(enabled=FLAG, conditions=items(structure(path=TEXT))),
}
_EMAIL_UNCHECKED = (
    "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression "
    "or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression"
)
_BOTH = "claim and expression can't both be set"


@dataclass(frozen=True, slots=True)
class AuthenticationConfiguration:
    issuers: tuple[TrustedIssuer, ...] = ()
    anonymous: Anonymous | None = None
    """None leaves it to the flag."""


def parse_authentication(
    content: bytes, path: Path, *, own_issuers: Collection[str] = ()
) -> AuthenticationConfiguration:
    """Parse a file. Raise ConfigurationError. `own_issuers` of service account tokens may not be named."""
    document = decode(content, path, kind=KIND, versions=VERSIONS, fields=_FIELDS)
    reader = _Reader(own_issuers)
    configuration = reader.read(document)
    check(path, reader.errors)
    return configuration


class _Reader:
    def __init__(self, own_issuers: Collection[str]) -> None:
        self.errors: list[FieldError] = []
        self._own = sorted(own_issuers)

    def read(self, document: Object) -> AuthenticationConfiguration:
        authenticators = document.get("jwt") or []
        if len(authenticators) > _MOST_ISSUERS:
            self.errors.append(too_many("jwt", len(authenticators), _MOST_ISSUERS))
            return AuthenticationConfiguration()
        issuers: list[TrustedIssuer] = []
        urls: set[str] = set()
        discovery: set[str] = set()
        for number, authenticator in enumerate(authenticators):
            path = f"jwt[{number}]"
            issuers.append(self._issuer(authenticator, path))
            issuer = authenticator.get("issuer") or {}
            for field, seen in (("url", urls), ("discoveryURL", discovery)):
                value = issuer.get(field, "")
                if value and value in seen:
                    self.errors.append(duplicate(f"{path}.issuer.{field}", value))
                seen.add(value)
        anonymous = document.get("anonymous")
        return AuthenticationConfiguration(
            tuple(issuers), self._anonymous(anonymous) if anonymous is not None else None
        )

    def _anonymous(self, anonymous: Object) -> Anonymous:
        conditions, is_enabled = anonymous.get("conditions"), bool(anonymous.get("enabled"))
        if conditions and not is_enabled:
            error = "enabled should be set to true when conditions are defined"
            self.errors.append(invalid("anonymous.conditions", conditions, error))
        paths = frozenset(condition.get("path", "") for condition in conditions) if conditions else None
        return Anonymous(is_enabled, paths)

    def _issuer(self, authenticator: Object, path: str) -> TrustedIssuer:
        issuer = authenticator.get("issuer") or {}
        self.errors += self._issuer_errors(issuer, f"{path}.issuer")
        compiler = ExpressionCompiler(self.errors)
        required_claims, rules = self._claim_rules(authenticator, compiler, f"{path}.claimValidationRules")
        of_rules = set(compiler.selected)
        mappings, at = authenticator.get("claimMappings") or {}, f"{path}.claimMappings"
        compiler.selected.clear()
        username = self._mapping(mappings.get("username") or {}, compiler, f"{at}.username", is_required=True)
        of_username = set(compiler.selected)
        groups = self._mapping(mappings.get("groups") or {}, compiler, f"{at}.groups")
        uid = self._uid(mappings.get("uid") or {}, compiler, f"{at}.uid")
        compiler.selected.clear()
        extra = tuple(self._extra(mappings.get("extra") or (), compiler, f"{at}.extra"))
        is_checked = "claims.email_verified" in of_rules | of_username | compiler.selected
        if "claims.email" in of_username and not is_checked:
            self.errors.append(invalid(f"{at}.username.expression", username.expression, _EMAIL_UNCHECKED))
        return TrustedIssuer(
            url=issuer.get("url", ""),
            discovery_url=issuer.get("discoveryURL", ""),
            audiences=tuple(issuer.get("audiences") or ()),
            authorities=issuer.get("certificateAuthority", ""),
            algorithms=tuple(algorithm for algorithm in ALGORITHMS if algorithm != "EdDSA"),
            username=username,
            groups=groups,
            uid=uid,
            extra=extra,
            required_claims=required_claims,
            claim_rules=rules,
            user_rules=tuple(self._user_rules(authenticator, compiler, f"{path}.userValidationRules")),
        )

    def _issuer_errors(self, issuer: Object, path: str) -> Iterator[FieldError]:
        url, discovery = issuer.get("url", ""), issuer.get("discoveryURL", "")
        if not url:
            yield required(f"{path}.url")
        else:
            if url in self._own:
                yield invalid(
                    f"{path}.url", url, f"URL must not overlap with disallowed issuers: [{' '.join(self._own)}]"
                )
            yield from _url_errors(url, f"{path}.url")
        if discovery:
            if discovery.rstrip("/") == url.rstrip("/"):
                yield invalid(f"{path}.discoveryURL", discovery, "discoveryURL must be different from URL")
            yield from _url_errors(discovery, f"{path}.discoveryURL")
        yield from _audience_errors(issuer, path)
        if authorities := issuer.get("certificateAuthority"):
            try:
                client_tls(ca=authorities)
            except (ssl.SSLError, ValueError):
                error = "data does not contain any valid RSA or ECDSA certificates"
                yield FieldError(
                    f"{path}.certificateAuthority", "FieldValueInvalid", f'Invalid value: "<omitted>": {error}'
                )
        if egress := issuer.get("egressSelectorType"):
            error = "egress selectors are not supported here: remove the field"
            yield invalid(f"{path}.egressSelectorType", egress, error)

    def _claim_rules(
        self, authenticator: Object, compiler: ExpressionCompiler, path: str
    ) -> tuple[Mapping[str, str], tuple[ClaimRule, ...]]:
        claims: dict[str, str] = {}
        rules: dict[str, ClaimRule] = {}
        for number, rule in enumerate(authenticator.get("claimValidationRules") or ()):
            at, claim, expression = f"{path}[{number}]", rule.get("claim", ""), rule.get("expression", "")
            if claim and expression:
                self.errors.append(invalid(at, claim, _BOTH))
            elif claim:
                if rule.get("message"):
                    self.errors.append(
                        invalid(f"{at}.message", rule["message"], "may not be specified when claim is set")
                    )
                if claim in claims:
                    self.errors.append(duplicate(f"{at}.claim", claim))
                claims[claim] = rule.get("requiredValue", "")
            elif expression:
                if value := rule.get("requiredValue"):
                    error = "may not be specified when expression is set"
                    self.errors.append(invalid(f"{at}.requiredValue", value, error))
                if expression in rules:
                    self.errors.append(duplicate(f"{at}.expression", expression))
                    continue
                program = compiler.compile(expression, CLAIMS, f"{at}.expression", is_condition=True)
                rules[expression] = ClaimRule(expression, rule.get("message", ""), program)
            else:
                self.errors.append(required(at, "claim or expression is required"))
        return claims, tuple(rules.values())

    def _mapping(
        self, mapping: Object, compiler: ExpressionCompiler, path: str, *, is_required: bool = False
    ) -> ClaimMapping:
        claim, expression, prefix = mapping.get("claim", ""), mapping.get("expression", ""), mapping.get("prefix")
        program = None
        if claim and expression:
            self.errors.append(invalid(path, "", _BOTH))
        elif expression:
            if prefix is not None:
                error = "may not be specified when expression is set"
                self.errors.append(invalid(f"{path}.prefix", prefix, error))
            program = compiler.compile(expression, CLAIMS, f"{path}.expression", is_condition=False)
        elif claim and prefix is None:
            error = "prefix is required when claim is set. It can be set to an empty string to disable prefixing"
            self.errors.append(required(f"{path}.prefix", error))
        elif is_required and not claim:
            self.errors.append(required(path, "claim or expression is required"))
        return ClaimMapping(claim, prefix or "", expression, program)

    def _uid(self, mapping: Object, compiler: ExpressionCompiler, path: str) -> ClaimMapping:
        claim, expression = mapping.get("claim", ""), mapping.get("expression", "")
        if claim and expression:
            self.errors.append(invalid(path, "", _BOTH))
        if claim or not expression:
            return ClaimMapping(claim)
        program = compiler.compile(expression, CLAIMS, f"{path}.expression", is_condition=False)
        return ClaimMapping(expression=expression, program=program)

    def _extra(
        self, mappings: Collection[Object], compiler: ExpressionCompiler, path: str
    ) -> Iterator[tuple[str, ClaimMapping]]:
        seen: set[str] = set()
        for number, mapping in enumerate(mappings):
            at, key, expression = f"{path}[{number}]", mapping.get("key", ""), mapping.get("valueExpression", "")
            self.errors += _key_errors(key, f"{at}.key")
            if key in seen:
                self.errors.append(duplicate(f"{at}.key", key))
                continue
            seen.add(key)
            if not expression:
                self.errors.append(required(f"{at}.valueExpression"))
                continue
            program = compiler.compile(expression, CLAIMS, f"{at}.valueExpression", is_condition=False)
            yield key, ClaimMapping(expression=expression, program=program)

    def _user_rules(self, authenticator: Object, compiler: ExpressionCompiler, path: str) -> Iterator[ClaimRule]:
        seen: set[str] = set()
        for number, rule in enumerate(authenticator.get("userValidationRules") or ()):
            at, expression = f"{path}[{number}].expression", rule.get("expression", "")
            if not expression:
                self.errors.append(required(at))
            elif expression in seen:
                self.errors.append(duplicate(at, expression))
            else:
                seen.add(expression)
                program = compiler.compile(expression, USER, at, is_condition=True)
                yield ClaimRule(expression, rule.get("message", ""), program)


def _url_errors(url: str, path: str) -> Iterator[FieldError]:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        yield invalid(path, url, str(error))
        return
    if parts.scheme != "https":
        yield invalid(path, url, "URL scheme must be https")
    if "@" in parts.netloc:
        yield invalid(path, url, "URL must not contain a username or password")
    if parts.query:
        yield invalid(path, url, "URL must not contain a query")
    if parts.fragment:
        yield invalid(path, url, "URL must not contain a fragment")


def _audience_errors(issuer: Object, path: str) -> Iterator[FieldError]:
    audiences, policy = issuer.get("audiences") or [], issuer.get("audienceMatchPolicy", "")
    at = f"{path}.audiences"
    if not audiences:
        yield required(at, f"at least one {at} is required")
        return
    for number, audience in enumerate(audiences):
        if not audience:
            yield required(f"{at}[{number}]")
        if audience in audiences[:number]:
            yield duplicate(f"{at}[{number}]", audience)
    if len(audiences) > 1 and policy != "MatchAny":
        error = "audienceMatchPolicy must be MatchAny for multiple audiences"
        yield invalid(f"{path}.audienceMatchPolicy", policy, error)
    elif policy not in ("", "MatchAny"):
        error = "audienceMatchPolicy must be empty or MatchAny for single audience"
        yield invalid(f"{path}.audienceMatchPolicy", policy, error)


def _key_errors(key: str, path: str) -> Iterator[FieldError]:
    domain, slash, rest = key.partition("/")
    if not key:
        yield required(path)
    elif not slash or not domain or not rest:
        yield invalid(path, key, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        for error in names.dns_subdomain(domain):
            yield invalid(path, domain, error)
    if key != key.lower():
        yield invalid(path, key, "must be lowercase")
    if any(domain == reserved or domain.endswith(f".{reserved}") for reserved in ("kubernetes.io", "k8s.io")):
        yield invalid(path, key, "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use")
