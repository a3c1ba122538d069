"""Writes the requesting user into a certificate signing request, whatever the request contains."""

from __future__ import annotations

from pinnace.auth.write_attributes import WriteAttributes


class CertificateRequester:
    interests = (("certificates.k8s.io", "certificatesigningrequests", frozenset(("CREATE",))),)

    async def mutate(self, review: WriteAttributes) -> None:
        resource, new = review.resource, review.new
        if review.operation != "CREATE" or new is None or review.subresource:
            return
        if resource.plural != "certificatesigningrequests" or resource.group != "certificates.k8s.io":
            return
        user = review.user
        asked = new.setdefault("spec", {})
        for name in ("username", "uid", "groups", "extra"):
            asked.pop(name, None)
        asked["username"] = user.name
        if user.uid:
            asked["uid"] = user.uid
        if user.groups:
            asked["groups"] = list(user.groups)
        if user.extra:
            asked["extra"] = {key: list(values) for key, values in user.extra.items()}
