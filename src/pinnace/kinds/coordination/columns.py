"""The columns of leases and lease candidates."""

from __future__ import annotations

from pinnace.kinds.cells import AGE, NAME, at, string

LEASE = (
    NAME,
    string("Holder", "io.k8s.api.coordination.v1.LeaseSpec.holderIdentity", at("spec.holderIdentity")),
    AGE,
)
LEASE_CANDIDATE = (
    NAME,
    string("LeaseName", "io.k8s.api.coordination.v1alpha2.LeaseCandidateSpec.leaseName", at("spec.leaseName")),
    string("BinaryVersion", "", at("spec.binaryVersion")),
    string("EmulationVersion", "", at("spec.emulationVersion")),
    AGE,
)
