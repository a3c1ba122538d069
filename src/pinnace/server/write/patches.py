"""Turns the body of a patch or an apply into the edit of an object."""

from __future__ import annotations

from pinnace.model.clock import Clock, to_rfc3339
from pinnace.model.objects import Object
from pinnace.server.request.call import Call
from pinnace.server.write import edits
from pinnace.server.write.body_decoder import (
    BodyDecoder,
    check_kind,
    check_options,
    match_name,
    match_namespace,
    metadata_of,
    patch_type_of,
    report_repeated_keys,
)
from pinnace.server.write.field_ownership import Ownerships
from pinnace.server.write.names import manager_of
from pinnace.server.write.patch_body import read_patch


class Patches:
    """Reads patches."""

    def __init__(self, decoder: BodyDecoder, ownerships: Ownerships, clock: Clock) -> None:
        self._decoder = decoder
        self._ownerships = ownerships
        self._clock = clock

    def read(self, call: Call) -> edits.Edit:
        """Return the edit of a JSON patch, merge patch, strategic merge patch or server-side apply."""
        content_type = patch_type_of(call)
        check_options(call, is_apply=content_type in edits.APPLY_PATCHES)
        if content_type in edits.APPLY_PATCHES:
            patch = read_patch(call.request.body, content_type)
            applied = patch.document or {}
            check_kind(applied, call.resource.kind)
            self._decoder.modernize(call, applied)
            return self._application(call, applied, patch.oddities)
        document, oddities = read_patch(call.request.body, content_type)

        def decode(wanted: Object, live: Object) -> Object:
            quoted = document if content_type == edits.STRATEGIC_PATCH else None
            known = live if call.resource.kind == call.resource.stored else None
            decoded = self._decoder.patched(call, wanted, quoted, oddities=oddities, live=known)
            decoded = edits.separate(decoded, live)
            metadata = metadata_of(decoded)
            match_name(call, metadata)
            match_namespace(call, metadata)
            return decoded

        return edits.patch(call, content_type, document, decode)

    def _application(self, call: Call, applied: Object, oddities: tuple[str, ...] = ()) -> edits.Application:
        def decode(merged: Object) -> Object:
            if oddities:
                report_repeated_keys(call, oddities)
            entries = merged["metadata"].pop("managedFields", None)  # Made by the server: nothing to decode there.
            decoded = self._decoder.patched(call, merged, None, call.resource.kind)
            metadata = metadata_of(decoded)
            match_namespace(call, metadata)
            match_name(call, metadata)  # An existing object has a name; a new one must bring it.
            if entries is not None:
                metadata["managedFields"] = entries
            return decoded

        return edits.Application(
            call=call,
            applied=applied,
            manager=manager_of(call),
            force=call.flag("force"),
            now=to_rfc3339(self._clock.now()),
            ownership=self._ownerships.of(call),
            decode=decode,
        )
