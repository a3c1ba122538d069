"""Certificate signing requests as v1beta1 wrote them: signer and usages were optional."""

from __future__ import annotations

from pinnace.kinds import older_schemas
from pinnace.kinds.certificates.signers import probable_signer
from pinnace.model.objects import Object
from pinnace.schema.shape import Schema


def old_certificate_request(schema: Schema) -> Schema:
    schema = older_schemas.at(schema, "spec", older_schemas.optional("signerName", "usages"))
    return older_schemas.at(schema, "status.conditions.[]", older_schemas.optional("status"))


def certificate_request_to_v1(request: Object) -> Object:
    spec = request.get("spec")
    if isinstance(spec, dict):
        if spec.get("usages") is None:
            spec["usages"] = ["digital signature", "key encipherment"]
        if spec.get("signerName") is None:
            spec["signerName"] = probable_signer(spec)
    for condition in (request.get("status") or {}).get("conditions") or ():
        condition.setdefault("status", "True")
    return request
