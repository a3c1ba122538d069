"""The scale subresource: shows the Scale of a workload, and turns a write of it into an edit of the workload."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import orjson

from pinnace.kinds.autoscaling import resources as workload_columns
from pinnace.kinds.rows import scale_resource
from pinnace.model.objects import Kind, Object
from pinnace.model.patches import apply, managed_fields
from pinnace.model.patches.managed_fields import Ownership
from pinnace.model.resources import Column, Registry, Resource
from pinnace.process.clock import Clock, to_rfc3339
from pinnace.schema.shape import Schema
from pinnace.server.write.scale_edits import Rescaling, read_scale
from pinnace.serving.cache.representations import Representations
from pinnace.serving.cache.served_versions import needs_preparation, prepare
from pinnace.serving.cache.watch_cache import CachedObject
from pinnace.serving.long_work import decode_body
from pinnace.serving.request.call import Call
from pinnace.serving.responses import Outcome
from pinnace.serving.write import edits
from pinnace.serving.write.body_decoder import (
    BodyDecoder,
    check_kind,
    check_options,
    match_name,
    match_namespace,
    metadata_of,
    patch_type,
    read_existing_patch,
    read_patch,
)
from pinnace.serving.write.pipeline import Pipeline

_SCALE = Kind("autoscaling", "v1", "Scale")


class Scales:
    """Reads and writes the scale subresource."""

    def __init__(
        self,
        *,
        registry: Registry,
        pipeline: Pipeline,
        decoder: BodyDecoder,
        representations: Representations,
        schema_of: Callable[[Kind], Schema | None],
        clock: Clock,
    ) -> None:
        self._registry = registry
        self._pipeline = pipeline
        self._decoder = decoder
        self._representations = representations
        self._schema_of = schema_of
        self._clock = clock
        self._known: dict[tuple[Column, ...], Resource] = {}

    async def show(self, call: Call, entry: CachedObject) -> Outcome:
        """Return the Scale that stands for a workload."""
        waiting = prepare((entry,), call.resource)
        if waiting is not None:
            await waiting
        return self._show(call, entry)

    def show_at_once(self, call: Call, entry: CachedObject) -> Outcome | None:
        """Return the Scale that stands for a workload; None if a webhook may have to convert the workload."""
        return None if needs_preparation(call.resource) else self._show(call, entry)

    def _show(self, call: Call, entry: CachedObject) -> Outcome:
        scale = read_scale(entry, call.resource)
        accepted = self._representations.accepted(call)
        seen = Call("get", self.resource(call), call.namespace, call.name, "", "", call.request, call.user)
        form = self._representations.choose(seen, accepted)
        return Outcome(body=form.encode_object(CachedObject(orjson.dumps(scale), entry.revision)), accepted=accepted)

    async def write(self, call: Call, find: Callable[[Call], CachedObject]) -> Outcome:
        """Replace, patch or apply the scale: an edit of its workload. `find` raises NotFound."""
        edit = await decode_body(call.user.name, call.request.body, self._read_edit, call, find)
        written = await self._pipeline.write(call, edit)
        return await self.show(call, written.entry)

    def resource(self, call: Call) -> Resource:
        """Return the resource that the Scale is represented as."""
        columns = workload_columns.SCALE if call.resource.custom is None else workload_columns.CUSTOM_SCALE
        known = self._known.get(columns)
        if known is None:
            schema = self._schema_of(_SCALE)
            assert schema is not None, "every minor has a Scale"
            known = self._known[columns] = scale_resource(schema, columns)
        return known

    def _read_edit(self, call: Call, find: Callable[[Call], CachedObject]) -> Rescaling:
        return self.replaced(call) if call.verb == "update" else read_existing_patch(call, self.patched, find)

    def replaced(self, call: Call) -> Rescaling:
        """Return the edit of an update."""
        check_options(call)
        wanted = self._decoder.message(call)
        match_name(call, metadata_of(wanted))
        match_namespace(call, dict(metadata_of(wanted)))
        return self._rescale(call, lambda scale: self._own(call, scale, wanted))

    def patched(self, call: Call) -> Rescaling:
        """Return the edit of a patch or an apply."""
        content_type = patch_type(call)
        check_options(call, is_apply=content_type in edits.APPLY_PATCHES)
        document, _ = read_patch(call.request.body, content_type)
        if content_type in edits.APPLY_PATCHES:
            return self._rescale(call, self._apply(call, document or {}))
        quoted = document if content_type == edits.STRATEGIC_PATCH else None

        def patched(scale: Object) -> Object:
            wanted = self._decoder.patched(call, edits.patched(scale, content_type, document), quoted)
            match_namespace(call, dict(metadata_of(wanted)))
            return self._own(call, scale, wanted)

        return self._rescale(call, patched)

    def _rescale(self, call: Call, edit_scale: Callable[[Object], Object]) -> Rescaling:
        return Rescaling(call, edit_scale, partial(self._replicas_in, call))

    def _own(self, call: Call, scale: Object, wanted: Object) -> Object:
        ownership, now = self._ownership(call), to_rfc3339(self._clock.now())
        managed_fields.after_update(scale, wanted, ownership, manager=call.manager, now=now)
        return wanted

    def _apply(self, call: Call, applied: Object) -> Callable[[Object], Object]:
        check_kind(applied, _SCALE)
        manager, force = call.manager, call.flag("force")
        ownership, now = self._ownership(call), to_rfc3339(self._clock.now())

        def laid_over(scale: Object) -> Object:
            merged = apply.apply(scale, applied, ownership, manager=manager, now=now, force=force)
            decoded = self._decoder.patched(call, merged, None)
            match_namespace(call, dict(metadata_of(decoded)))
            match_name(call, metadata_of(decoded))
            return decoded

        return laid_over

    def _ownership(self, call: Call) -> Ownership:
        schema = self.resource(call).schema
        return Ownership(schema=schema, api_version=_SCALE.api_version, subresource=call.subresource)

    def _replicas_in(self, call: Call, api_version: str) -> tuple[str, ...] | None:
        resource = self._registry.of_kind(Kind.parse(api_version, call.resource.kind.name))
        if resource is None:
            return None
        if resource.custom is None:
            return ("spec", "replicas")
        return resource.custom.scale.spec if resource.custom.scale is not None else ()
