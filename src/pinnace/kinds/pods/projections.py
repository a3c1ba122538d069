"""Validation of files projected from secrets, config maps, the pod itself, tokens and certificates."""

from __future__ import annotations

from pinnace.kinds.certificates.pod_certificates import validate_user_annotations
from pinnace.kinds.certificates.signer_names import (
    longest_lifetime,
    trust_bundle_name_errors,
    validate_signer_name,
)
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.pods.references import validate_field_ref, validate_resource_field_ref
from pinnace.kinds.validation.fields import (
    validate_choice,
    validate_id,
    validate_mode,
    validate_required,
    validate_unreserved_path,
)
from pinnace.model.field_errors import FieldError, forbidden, invalid, required
from pinnace.model.selectors import validate_label_selector
from pinnace.model.typed_objects import (
    ClusterTrustBundleProjection,
    ConfigMapProjection,
    ConfigMapVolumeSource,
    DownwardAPIVolumeFile,
    PodCertificateProjection,
    ProjectedVolumeSource,
    SecretProjection,
    SecretVolumeSource,
    ServiceAccountTokenProjection,
    VolumeProjection,
)

_FILE_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_TRUST_BUNDLE = GoStruct("Name SignerName LabelSelector Optional Path='' User")


def validate_item(
    source: SecretVolumeSource | ConfigMapVolumeSource | SecretProjection | ConfigMapProjection,
    path: str,
    errs: list[FieldError],
) -> None:
    """Check which keys of a secret or config map become which files."""
    for index, item in enumerate(source["items"]) if "items" in source else ():
        where, file = f"{path}.items[{index}]", item.get("path", "")
        if not file or not item.get("key"):
            errs += validate_required(item, ("key", "path"), where)
        if ".." in file or file.startswith("/"):
            errs += validate_unreserved_path(file, f"{where}.path")
        if "mode" in item:
            errs += validate_mode(item, "mode", where)
        if "user" in item:
            errs += validate_id(item, "user", where)


def validate_downward_file(file: DownwardAPIVolumeFile, path: str, errs: list[FieldError]) -> None:
    if not file.get("path"):
        errs.append(required(f"{path}.path"))
    else:
        errs += validate_unreserved_path(file["path"], f"{path}.path")
    if "fieldRef" in file:
        validate_field_ref(file["fieldRef"], _FILE_FIELDS, f"{path}.fieldRef", errs)
        if "resourceFieldRef" in file:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errs.append(invalid(path, "resource", detail))
    elif "resourceFieldRef" in file:
        validate_resource_field_ref(file["resourceFieldRef"], f"{path}.resourceFieldRef", errs, needs_container=True)
    else:
        errs.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    if "mode" in file:
        errs += validate_mode(file, "mode", path)
    if "user" in file:
        errs += validate_id(file, "user", path)


def validate_projected(source: ProjectedVolumeSource, path: str, errs: list[FieldError]) -> None:
    """Check a volume of several sources: no two may write the same file."""
    errs += validate_mode(source, "defaultMode", path)
    errs += validate_id(source, "defaultUser", path)
    taken: set[str] = set()
    for index, projection in enumerate(source.get("sources") or ()):
        where = f"{path}.sources[{index}]"
        _validate_data(projection, path, where, taken, errs)
        if "serviceAccountToken" in projection:
            _validate_token(projection["serviceAccountToken"], path, f"{where}.serviceAccountToken", errs)
        if "clusterTrustBundle" in projection:
            bundle = projection["clusterTrustBundle"]
            _validate_trust_bundle(bundle, f"{where}.clusterTrustBundle", errs)
            _take(bundle.get("path", ""), taken, path, errs)
        if "podCertificate" in projection:
            certificate = projection["podCertificate"]
            _validate_certificate(certificate, f"{where}.podCertificate", errs)
            _validate_certificate_paths(certificate, path, f"{where}.podCertificate", taken, errs)
        if len(projection) > 1:
            errs.append(forbidden(where, "may not specify more than 1 volume type per source"))


def _validate_data(
    projection: VolumeProjection, volume_path: str, path: str, taken: set[str], errs: list[FieldError]
) -> None:
    """Check the sources that have a list of files."""
    for kind in ("secret", "configMap"):
        if kind in projection:
            chosen = projection[kind]
            if not chosen.get("name"):
                errs.append(required(f"{path}.{kind}.name"))
            validate_item(chosen, f"{path}.{kind}", errs)
            for item in chosen.get("items", ()):
                if item.get("path"):
                    _take(item["path"], taken, volume_path, errs, display=chosen.get("name", ""))
    if "downwardAPI" in projection:
        for file in projection["downwardAPI"].get("items", ()):
            validate_downward_file(file, f"{path}.downwardAPI", errs)
            if file.get("path"):
                _take(file["path"], taken, volume_path, errs)


def _take(file: str, taken: set[str], path: str, errs: list[FieldError], *, display: str | None = None) -> None:
    if file in taken:
        errs.append(invalid(path, file if display is None else display, "conflicting duplicate paths"))
    taken.add(file)


def _validate_token(token: ServiceAccountTokenProjection, volume_path: str, path: str, errs: list[FieldError]) -> None:
    seconds = token.get("expirationSeconds", 0)
    if seconds < 600:
        detail = "may not specify a duration less than 10 minutes"
        errs.append(invalid(f"{path}.expirationSeconds", seconds, detail))
    if seconds > 2**32:
        detail = "may not specify a duration larger than 2^32 seconds"
        errs.append(invalid(f"{path}.expirationSeconds", seconds, detail))
    if not token.get("path"):
        errs.append(required(f"{volume_path}.path"))
    else:
        errs += validate_unreserved_path(token["path"], f"{volume_path}.path")
    errs += validate_id(token, "user", path)


def _validate_trust_bundle(bundle: ClusterTrustBundleProjection, path: str, errs: list[FieldError]) -> None:
    name, signer, selector = bundle.get("name"), bundle.get("signerName"), bundle.get("labelSelector")
    if name is not None and signer is not None:
        errs.append(invalid(path, _TRUST_BUNDLE.view(bundle), "only one of name and signerName may be used"))
    elif name is not None:
        if not name:
            errs.append(required(f"{path}.name", "must be a valid object name"))
        owner = name.rpartition(":")[0].replace(":", "/")
        for err in trust_bundle_name_errors(name, owner):
            errs.append(invalid(f"{path}.name", name, f"not a valid clustertrustbundlename: {err}"))
        if selector is not None:
            detail = "labelSelector must be unset if name is specified"
            errs.append(invalid(f"{path}.labelSelector", selector, detail))
    elif signer is not None:
        if not signer:
            errs.append(required(f"{path}.signerName", "must be a valid signer name"))
        errs += validate_signer_name(signer, f"{path}.signerName")
        errs += validate_label_selector(selector, f"{path}.labelSelector")
    else:
        errs.append(required(path, "either name or signerName must be specified"))
    if not bundle.get("path"):
        errs.append(required(f"{path}.path"))
    errs += validate_id(bundle, "user", path)
    errs += validate_unreserved_path(bundle.get("path", ""), f"{path}.path")


def _validate_certificate(certificate: PodCertificateProjection, path: str, errs: list[FieldError]) -> None:
    signer = certificate.get("signerName", "")
    errs += validate_signer_name(signer, f"{path}.signerName")
    errs += validate_user_annotations(certificate.get("userAnnotations") or {}, f"{path}.userAnnotations")
    errs += validate_id(certificate, "user", path)
    errs += validate_choice(certificate.get("keyType", ""), _KEY_TYPES, f"{path}.keyType")
    seconds, longest = certificate.get("maxExpirationSeconds"), longest_lifetime(signer)
    if seconds is not None and seconds < 3600:
        detail = "if provided, maxExpirationSeconds must be >= 3600"
        errs.append(invalid(f"{path}.maxExpirationSeconds", seconds, detail))
    if seconds is not None and seconds > longest:
        detail = f"if provided, maxExpirationSeconds must be <= {longest}"
        errs.append(invalid(f"{path}.maxExpirationSeconds", seconds, detail))


def _validate_certificate_paths(
    certificate: PodCertificateProjection, volume_path: str, path: str, taken: set[str], errs: list[FieldError]
) -> None:
    files = {
        "credentialBundlePath": certificate.get("credentialBundlePath"),
        "keyPath": certificate.get("keyPath"),
        "certificateChainPath": certificate.get("certificateChainPath"),
    }
    for field, file in files.items():
        if file:
            errs += validate_unreserved_path(file, f"{path}.{field}")
            _take(file, taken, volume_path, errs)
    if not any(files.values()):
        detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        errs.append(required(path, detail))
