"""OpenAPI of the pages that are not resources: discovery, the version, and the keys of service account tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pinnace.model.objects import Object
from pinnace.model.openapi.dialects import Dialect
from pinnace.model.openapi.paths import META, OK, PRODUCED, capital, group_words, tag_of

_JSON = ("application/json",)


@dataclass(frozen=True)
class DescribedPage:
    """One page, which is read with GET."""

    tag: str
    operation: str
    """Its operationId."""
    description: str
    schema: str = ""
    produced: tuple[str, ...] = PRODUCED
    consumed: tuple[str, ...] = PRODUCED

    def path(self, dialect: Dialect) -> Object:
        answer = dialect.operation(schema=self.schema, codes=OK, produced=self.produced, consumed=self.consumed)
        return {"get": {"tags": [self.tag], "description": self.description, "operationId": self.operation, **answer}}


_FIXED = {
    ".well-known/openid-configuration": DescribedPage(
        "WellKnown",
        "getServiceAccountIssuerOpenIDConfiguration",
        "get the OpenID configuration of the issuer of service account tokens",
        produced=_JSON,
        consumed=(),
    ),
    "api": DescribedPage("core", "getCoreAPIVersions", "get available API versions", f"{META}APIVersions"),
    "apis": DescribedPage("apis", "getAPIVersions", "get available API versions", f"{META}APIGroupList"),
    "openid/v1/jwks": DescribedPage(
        "openid",
        "getServiceAccountIssuerOpenIDKeyset",
        "get the public keys that verify service account tokens",
        produced=("application/jwk-set+json",),
        consumed=(),
    ),
    "version": DescribedPage(
        "version",
        "getCodeVersion",
        "get the version information for this server",
        "io.k8s.apimachinery.pkg.version.Info",
        produced=_JSON,
        consumed=_JSON,
    ),
}


def described_pages(groups: Iterable[str]) -> dict[str, DescribedPage]:
    """Return the pages by the names of their documents, with one for each of these API groups."""
    return _FIXED | {f"apis/{group}": _group_page(group) for group in groups if group}


def _group_page(group: str) -> DescribedPage:
    operation = f"get{''.join(map(capital, group_words(group)))}APIGroup"
    return DescribedPage(tag_of(group), operation, "get information of a group", f"{META}APIGroup")
