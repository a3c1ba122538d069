"""Validation of files projected from secrets, config maps, the pod itself and tokens."""

from __future__ import annotations

from pinnace.kinds.pods.references import validate_field_ref, validate_resource_field_ref
from pinnace.kinds.validation.fields import validate_mode, validate_required, validate_unreserved_path
from pinnace.model.field_errors import FieldError, forbidden, invalid, required
from pinnace.model.objects import Object

_FILE_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")


def validate_item(source: Object, path: str, errs: list[FieldError]) -> None:
    """Check which keys of a secret or config map become which files."""
    for index, item in enumerate(source["items"]) if "items" in source else ():
        where, file = f"{path}.items[{index}]", item.get("path", "")
        if not file or not item.get("key"):
            errs += validate_required(item, ("key", "path"), where)
        if ".." in file or file.startswith("/"):
            errs += validate_unreserved_path(file, f"{where}.path")
        if "mode" in item:
            errs += validate_mode(item, "mode", where)


def validate_downward_file(file: Object, path: str, errs: list[FieldError]) -> None:
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


def validate_projected(source: Object, path: str, errs: list[FieldError]) -> None:
    """Check a volume of several sources: no two may write the same file."""
    errs += validate_mode(source, "defaultMode", path)
    taken: set[str] = set()
    for index, projection in enumerate(source.get("sources") or ()):
        where = f"{path}.sources[{index}]"
        for kind in ("secret", "configMap"):
            if kind in projection:
                chosen = projection[kind]
                if not chosen.get("name"):
                    errs.append(required(f"{where}.{kind}.name"))
                validate_item(chosen, f"{where}.{kind}", errs)
                for item in chosen.get("items", ()):
                    if item.get("path"):
                        _take(item["path"], taken, path, errs, shown=chosen.get("name", ""))
        if "downwardAPI" in projection:
            for file in projection["downwardAPI"].get("items", ()):
                validate_downward_file(file, f"{where}.downwardAPI", errs)
                if file.get("path"):
                    _take(file["path"], taken, path, errs)
        if "serviceAccountToken" in projection:
            _validate_token(projection["serviceAccountToken"], path, f"{where}.serviceAccountToken", errs)
        if len(projection) > 1:
            errs.append(forbidden(where, "may not specify more than 1 volume type per source"))


def _take(file: str, taken: set[str], path: str, errs: list[FieldError], *, shown: str | None = None) -> None:
    if file in taken:
        errs.append(invalid(path, file if shown is None else shown, "conflicting duplicate paths"))
    taken.add(file)


def _validate_token(token: Object, volume_path: str, path: str, errs: list[FieldError]) -> None:
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
