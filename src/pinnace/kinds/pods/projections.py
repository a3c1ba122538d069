"""What is wrong with files that come from elsewhere: secrets, config maps, the pod itself, tokens."""

from __future__ import annotations

from pinnace.kinds.pods.references import field_ref_faults, resource_field_ref_faults
from pinnace.kinds.validation.field_lists import mode_faults, needed, unreserved_path_faults
from pinnace.model.field_errors import Cause, forbidden, invalid, required
from pinnace.model.objects import Object

_FILE_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")


def item_faults(source: Object, path: str, faults: list[Cause]) -> None:
    """Which keys of a secret or config map become which files."""
    for index, item in enumerate(source["items"]) if "items" in source else ():
        where, file = f"{path}.items[{index}]", item.get("path", "")
        if not file or not item.get("key"):
            needed(item, where, faults, "key", "path")
        if ".." in file or file.startswith("/"):
            unreserved_path_faults(file, f"{where}.path", faults)
        if "mode" in item:
            mode_faults(item, "mode", where, faults)


def downward_file_faults(file: Object, path: str, faults: list[Cause]) -> None:
    if not file.get("path"):
        faults.append(required(f"{path}.path"))
    else:
        unreserved_path_faults(file["path"], f"{path}.path", faults)
    if "fieldRef" in file:
        field_ref_faults(file["fieldRef"], _FILE_FIELDS, f"{path}.fieldRef", faults)
        if "resourceFieldRef" in file:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            faults.append(invalid(path, "resource", detail))
    elif "resourceFieldRef" in file:
        resource_field_ref_faults(file["resourceFieldRef"], f"{path}.resourceFieldRef", faults, needs_container=True)
    else:
        faults.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    if "mode" in file:
        mode_faults(file, "mode", path, faults)


def projected_faults(source: Object, path: str, faults: list[Cause]) -> None:
    """A volume of several sources, no two of which may write the same file."""
    mode_faults(source, "defaultMode", path, faults)
    taken: set[str] = set()
    for index, projection in enumerate(source.get("sources") or ()):
        where = f"{path}.sources[{index}]"
        for kind in ("secret", "configMap"):
            if kind in projection:
                chosen = projection[kind]
                if not chosen.get("name"):
                    faults.append(required(f"{where}.{kind}.name"))
                item_faults(chosen, f"{where}.{kind}", faults)
                for item in chosen.get("items", ()):
                    if item.get("path"):
                        _take(item["path"], taken, path, faults, shown=chosen.get("name", ""))
        if "downwardAPI" in projection:
            for file in projection["downwardAPI"].get("items", ()):
                downward_file_faults(file, f"{where}.downwardAPI", faults)
                if file.get("path"):
                    _take(file["path"], taken, path, faults)
        if "serviceAccountToken" in projection:
            _token_faults(projection["serviceAccountToken"], path, f"{where}.serviceAccountToken", faults)
        if len(projection) > 1:
            faults.append(forbidden(where, "may not specify more than 1 volume type per source"))


def _take(file: str, taken: set[str], path: str, faults: list[Cause], *, shown: str | None = None) -> None:
    if file in taken:
        faults.append(invalid(path, file if shown is None else shown, "conflicting duplicate paths"))
    taken.add(file)


def _token_faults(token: Object, volume_path: str, path: str, faults: list[Cause]) -> None:
    seconds = token.get("expirationSeconds", 0)
    if seconds < 600:
        detail = "may not specify a duration less than 10 minutes"
        faults.append(invalid(f"{path}.expirationSeconds", seconds, detail))
    if seconds > 2**32:
        detail = "may not specify a duration larger than 2^32 seconds"
        faults.append(invalid(f"{path}.expirationSeconds", seconds, detail))
    if not token.get("path"):
        faults.append(required(f"{volume_path}.path"))
    else:
        unreserved_path_faults(token["path"], f"{volume_path}.path", faults)
