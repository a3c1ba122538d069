"""Webhook configurations and policies from files of the server, which no user of the API can change or remove.

They act before the server answers its first request, and review also the writes of webhook configurations and policies.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from pinnace.kinds.admissionregistration.reserved_names import SUFFIX
from pinnace.kinds.golang import empty_fields
from pinnace.model import quantity
from pinnace.model.objects import Kind, Object, deep_copy
from pinnace.model.resources import Resource
from pinnace.model.watched_objects import WatchedObjects
from pinnace.process.clock import Clock
from pinnace.process.file_watch import Saves
from pinnace.schema.configuration.documents import StrictLoader, first_line, read_file
from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.schema.golang.decode import DecodeError, Decoders

PLUGINS: Mapping[str, tuple[str, ...]] = {
    "ValidatingAdmissionWebhook": ("validatingwebhookconfigurations",),
    "MutatingAdmissionWebhook": ("mutatingwebhookconfigurations",),
    "ValidatingAdmissionPolicy": ("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
    "MutatingAdmissionPolicy": ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
}
"""The plug-ins that read files, and the resources in them."""
_ENDINGS = frozenset((".yaml", ".yml", ".json"))
_CHECK_SECONDS = 60.0
"""How often the directory is read without a notification: none comes from network file systems."""
_MOST_FILES = 1000
FindResource = Callable[[Kind], Resource | None]
_log = logging.getLogger(__name__)


def check_directory(directory: str) -> Path:
    """Return the path of a setting staticManifestsDir. Raise ConfigurationError."""
    path = Path(directory)
    if not path.is_absolute():
        raise _invalid_directory(directory, "must be an absolute file path")
    try:
        path.stat()
    except OSError as error:
        raise _invalid_directory(directory, f"unable to read: stat {directory}: {error.strerror}") from None
    if not path.is_dir():
        raise _invalid_directory(directory, "must be a directory")
    return path


def _invalid_directory(directory: str, error: str) -> ConfigurationError:
    return ConfigurationError(f'staticManifestsDir: Invalid value: "{directory}": {error}')


class StaticManifests:
    """The objects in the files of a directory, for one plug-in. Files with an error change nothing."""

    def __init__(self, plugin: str, directory: Path, find: FindResource, clock: Clock) -> None:
        """Raise ConfigurationError if the files cannot be used now."""
        self.plugin = plugin
        self.reloads: dict[str, int] = {}
        """How often the files were read again, by success and failure."""
        self.times: dict[str, float] = {}
        self._directory = directory
        self._find = find
        self._clock = clock
        self._listeners: list[Callable[[str], None]] = []
        self._objects, self.hash = self._load()
        self._count("success")

    def objects(self, plural: str) -> Mapping[str, Object]:
        """Return the objects of a resource by name."""
        return self._objects[plural]

    def on_change(self, changed: Callable[[str], None]) -> None:
        self._listeners.append(changed)

    def beside(self, objects: WatchedObjects, plural: str) -> WithManifests:
        """Return the objects of the API together with those of the files."""
        return WithManifests(objects, self, plural)

    async def run(self) -> None:
        """Follow the directory until cancelled."""
        with Saves() as saves:
            saves.watch([self._directory / "any"])
            while True:
                await self.check()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_CHECK_SECONDS):
                        await saves.next()

    async def check(self) -> None:
        """Take the files as they are now, if they have changed."""
        try:
            objects, digest = await asyncio.to_thread(self._load)
        except ConfigurationError as error:
            _log.error("%s: %s; the configuration stays as it was", self.plugin, error)
            self._count("failure")
            return
        if digest == self.hash:
            return
        self._objects, self.hash = objects, digest
        self._count("success")
        _log.info("%s: the manifests in %s are in effect", self.plugin, self._directory)
        for changed in self._listeners:
            changed("")

    def _count(self, status: str) -> None:
        self.reloads[status] = self.reloads.get(status, 0) + 1
        self.times[status] = self._clock.now().timestamp()

    def _load(self) -> tuple[dict[str, dict[str, Object]], str]:
        by_plural: dict[str, dict[str, Object]] = {plural: {} for plural in PLUGINS[self.plugin]}
        files: dict[tuple[str, str], Path] = {}
        digest, has_data = hashlib.sha256(), False
        for path in self._paths():
            content = read_file(path)
            if not content:
                continue
            digest.update(content + b"\0")
            has_data = True
            for document in _documents(content, path):
                for resource, obj in self._accept(document, path):
                    name = _checked_name(obj, path, files.get((resource.plural, _name_of(obj))))
                    files[resource.plural, name] = path
                    by_plural[resource.plural][name] = obj
        if self.plugin.endswith("Policy"):
            policies, bindings = (by_plural[plural] for plural in PLUGINS[self.plugin])
            _check_references(policies, bindings)
        return by_plural, f"sha256:{digest.hexdigest()}" if has_data else ""

    def _paths(self) -> list[Path]:
        try:
            paths = sorted(path for path in self._directory.iterdir() if path.suffix.lower() in _ENDINGS)
        except OSError as error:
            text = f'failed to read manifest directory "{self._directory}": {error.strerror}'
            raise ConfigurationError(text) from None
        files = [path for path in paths if not path.is_dir()]
        if len(files) > _MOST_FILES:
            raise ConfigurationError(f"{self._directory} has {len(files)} manifests, expected at most {_MOST_FILES}")
        return files

    def _accept(self, document: Any, path: Path) -> Iterator[tuple[Resource, Object]]:
        """Yield the objects of a document, complete and valid."""
        if not isinstance(document, dict):
            raise _error(path, f"expected an object, found {type(document).__name__}")
        api_version, kind = str(document.get("apiVersion")), str(document.get("kind"))
        if (api_version, kind) == ("v1", "List"):
            for item in document.get("items") or ():
                yield from self._accept(item, path)
            return
        resource = self._find(Kind.parse(api_version, kind))
        if resource is None or resource.plural not in PLUGINS[self.plugin] or resource.kind != resource.stored:
            expected = ", ".join(PLUGINS[self.plugin])
            raise _error(path, f"unsupported resource type {kind} of {api_version}, expected one of {expected} in v1")
        try:
            unknown = Decoders(quantity=quantity.canonical, empty_fields=empty_fields.of_type).of(resource.schema)(
                document
            )
        except (DecodeError, RecursionError) as error:
            raise _error(path, str(error)) from None
        if unknown:
            fields = ", ".join(f'unknown field "{field}"' for field in unknown)
            raise _error(path, f"strict decoding error: {fields}")
        document.setdefault("metadata", {})
        resource.strategy.default(document)
        _check_constraints(document, resource.plural, path)
        errs = [err for err in resource.strategy.validate(document, None) if err.field != "metadata.name"]
        if errs:
            texts = ", ".join(map(str, errs))
            raise _error(path, f'{kind} "{_name_of(document)}" is invalid: {texts}')
        yield resource, document


class WithManifests:
    """The objects of the API, and those of files. A `WatchedObjects`."""

    def __init__(self, objects: WatchedObjects, manifests: StaticManifests, plural: str) -> None:
        self._objects = objects
        self._manifests = manifests
        self._plural = plural

    def get(self, key: str) -> Object | None:
        manifest = self._manifests.objects(self._plural).get(key)
        return deep_copy(manifest) if manifest is not None else self._objects.get(key)

    def items(self) -> Iterable[tuple[str, Object]]:
        yield from self._manifests.objects(self._plural).items()
        yield from self._objects.items()

    def in_namespace(self, namespace: str) -> Iterable[tuple[str, Object]]:
        return () if namespace else self.items()

    def on_change(self, changed: Callable[[str], None]) -> None:
        self._objects.on_change(changed)
        self._manifests.on_change(changed)


def _documents(content: bytes, path: Path) -> Iterator[Any]:
    try:
        yield from (document for document in yaml.load_all(content, Loader=StrictLoader) if document is not None)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise _error(path, first_line(error)) from None


def _checked_name(obj: Object, path: Path, other: Path | None) -> str:
    name = _name_of(obj)
    if not name:
        raise _error(path, f'resource in file "{path}" must have a name')
    if not name.endswith(SUFFIX):
        raise _error(path, f'"{name}" in file "{path}" must have a name ending with "{SUFFIX}"')
    if other is not None:
        raise _error(path, f'duplicate name "{name}" found in file "{path}" (previously seen in "{other}")')
    return name


def _check_constraints(obj: Object, plural: str, path: Path) -> None:
    """Refuse what would depend on objects of the API."""
    name, spec = _name_of(obj), obj.get("spec") or {}
    if plural.endswith("webhookconfigurations"):
        for webhook in obj.get("webhooks") or ():
            place = f'webhook "{webhook.get("name", "")}" in "{name}" (file "{path}")'
            client = webhook.get("clientConfig") or {}
            if client.get("service") is not None:
                text = "clientConfig.service is not supported for static manifests; use clientConfig.url instead"
                raise _error(path, f"{place}: {text}")
            if not client.get("url"):
                raise _error(path, f"{place}: clientConfig.url is required for static manifests")
    elif plural.endswith("bindings"):
        policy = spec.get("policyName", "")
        if not policy:
            raise _error(path, f'binding "{name}" must reference a policy (spec.policyName)')
        if not policy.endswith(SUFFIX):
            raise _error(path, f'binding "{name}": spec.policyName "{policy}" must end with "{SUFFIX}"')
        if spec.get("paramRef") is not None:
            raise _error(path, f'binding "{name}": spec.paramRef is not supported for static manifests')
    elif spec.get("paramKind") is not None:
        raise _error(path, f'{obj["kind"]} "{name}": spec.paramKind is not supported for static manifests')


def _check_references(policies: Mapping[str, Object], bindings: Mapping[str, Object]) -> None:
    for name, binding in bindings.items():
        policy = binding["spec"]["policyName"]
        if policy not in policies:
            text = f'binding "{name}" references policy "{policy}" which does not exist in the manifest directory'
            raise ConfigurationError(text)


def _name_of(obj: Object) -> str:
    return str((obj.get("metadata") or {}).get("name") or "")


def _error(path: Path, text: str) -> ConfigurationError:
    return ConfigurationError(f"error loading {path}: {text}")
