"""An operator for many objects: several processes share them, and each object is handled by one process at a time.

pinnace run examples/16-sharded/certificates.py --dev        start it two or three times
kubectl get leases                                           which process has which shard
"""

from __future__ import annotations

from pinnace.sdk import Context, CustomResource, Field, Model, Operator


class SiteCertificateSpec(Model):
    host: str = Field(min_length=1, description="The name for which the certificate is valid.")


class SiteCertificateStatus(Model):
    secret: str = ""


class SiteCertificate(
    CustomResource[SiteCertificateSpec, SiteCertificateStatus], group="extensions.example.com", version="v1"
):
    """A certificate of a site, kept in a Secret."""


operator = Operator("site-certificates", shards=6)


@operator.reconcile(SiteCertificate, owns=["v1/Secret"])
async def reconcile(certificate: SiteCertificate, ctx: Context) -> None:
    name = f"{certificate.name}-certificate"
    await ctx.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "stringData": {"host": certificate.spec.host},
        }
    )
    certificate.status.secret = name


if __name__ == "__main__":
    operator.serve()
