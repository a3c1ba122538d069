"""Writes audit.k8s.io/v1 events of requests and their answers, as the audit policy says."""

from __future__ import annotations

import re
import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol
from uuid import uuid4

import orjson

from pinnace.admission.chain import PATCH_NOTE
from pinnace.kinds.golang import field_numbers
from pinnace.model import errors
from pinnace.model.authorization import Action
from pinnace.model.users import User
from pinnace.process.clock import Clock, to_rfc3339_micro
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.server.audit.policy import (
    PANIC,
    REQUEST_RECEIVED,
    RESPONSE_COMPLETE,
    RESPONSE_STARTED,
    AuditDecision,
    AuditLevel,
    AuditPolicy,
)
from pinnace.serving.messages import (
    Answer,
    AuditNotes,
    Request,
    Response,
    ResponseStream,
    StreamingResponse,
    Takeover,
    header_block,
)
from pinnace.serving.request.body import PROTOBUF, YAML, media_type_of
from pinnace.serving.request.call import requested_action
from pinnace.serving.request.yaml_body import read_yaml

_UNKNOWN = User("")
_AUDIT_ID = re.compile(rb"(?i)^audit-id: [^\r]*\r\n", re.MULTILINE)
_GIVEN_ID = re.compile(rb"[\x21-\x7e]{1,64}")
_MOST_AGENT = 1024
_WITHOUT_CONTENT = frozenset((401, 403, 404, 405, 409, 410, 429, 503, 504))
"""Errors whose messages contain names and users, never content of a body."""


class AuditBackend(Protocol):
    def write(self, line: bytes) -> None:
        """Write one event, a line."""

    async def close(self) -> None:
        """Write what is left and end."""


class Auditor:
    """Records each request around the handler's answer: one event at each stage."""

    def __init__(self, policy: AuditPolicy, backends: Sequence[AuditBackend], clock: Clock) -> None:
        """Write every event to every one of `backends`."""
        self._policy = policy
        self._backends = tuple(backends)
        self._clock = clock
        self.written = 0
        """The number of events."""

    async def close(self) -> None:
        """Close all backends."""
        for backend in self._backends:
            await backend.close()

    def write(self, line: bytes) -> None:
        """Write an event to all backends."""
        self.written += 1
        for backend in self._backends:
            backend.write(line)

    def begin(self, request: Request, user: User) -> AuditRecord:
        """Write the event of a request that has arrived, and return the record to complete."""
        action = requested_action(request)
        decision = self._policy.decide(user, action)
        record = AuditRecord(self.write, self._clock, decision, request, user, action)
        record.write(REQUEST_RECEIVED)
        return record

    def record_unauthenticated(self, request: Request, answer: Response) -> Response:
        """Return the 401 response of a client that could not be authenticated, and write its event."""
        action = requested_action(request)
        decision = self._policy.decide(_UNKNOWN, action)
        record = AuditRecord(self.write, self._clock, decision, request, _UNKNOWN, action)
        return record.fail_authentication(answer)


class AuditRecord:
    """The event of one request, completed stage by stage."""

    def __init__(
        self,
        keep: Callable[[bytes], None],
        clock: Clock,
        decision: AuditDecision,
        request: Request,
        user: User,
        action: Action,
    ) -> None:
        self._keep = keep
        self._clock = clock
        self._decision = decision
        self._request = request
        self._action = action
        given = request.headers.get(b"audit-id", b"")
        self._id = given.decode() if _GIVEN_ID.fullmatch(given) else str(uuid4())
        self._event: dict[str, Any] = {}
        if decision.level is AuditLevel.Nothing:
            return
        request.notes = AuditNotes()
        received = to_rfc3339_micro(clock.now())
        # In the order in which Kubernetes writes the fields; those that are None are left out.
        self._event = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": decision.level.label,
            "auditID": self._id,
            "stage": "",
            "requestURI": request.target,
            "verb": action.verb,
            "user": _user_info(user),
            "impersonatedUser": None,
            "authenticationMetadata": None,
            "sourceIPs": _sources(request) or None,
            "userAgent": request.headers.get(b"user-agent", b"").decode("latin-1")[:_MOST_AGENT] or None,
            "objectRef": _reference(action),
            "responseStatus": None,
            "requestObject": None,
            "responseObject": None,
            "requestReceivedTimestamp": received,
            "stageTimestamp": received,
            "annotations": None,
        }

    def write(self, stage: str) -> None:
        event = self._event
        if not event or stage in self._decision.omitted_stages:
            return
        event["stage"] = stage
        if stage != REQUEST_RECEIVED:
            event["stageTimestamp"] = to_rfc3339_micro(self._clock.now())
        present = {name: value for name, value in event.items() if value is not None}
        self._keep(orjson.dumps(present, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS))

    def finish(self, answer: Answer) -> Answer:
        """Return the answer to send. A stream or takeover has an event when it starts and one when it ends."""
        headers = _with_id(answer.headers, self._id)
        if self._event:
            self._note_request()
        if isinstance(answer, Response):
            if self._event:
                self._note_response(answer)
                self.write(RESPONSE_COMPLETE)
            return Response(answer.status, headers, answer.body)  # A copy: some responses are shared.
        if not self._event:
            answer.headers = headers
            return answer
        self._event["responseStatus"] = {"metadata": {}, "code": answer.status}
        self._add_annotations()
        self.write(RESPONSE_STARTED)
        if isinstance(answer, StreamingResponse):
            return StreamingResponse(answer.status, headers, self._until_closed(answer.start))
        return Takeover(self._until_returned(answer.run), headers, answer.status)

    def panic(self, error: Exception) -> None:
        if self._event:
            status = {"metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500}
            message = type(error).__name__ if self._decision.is_confidential else f"{type(error).__name__}: {error}"
            self._event["responseStatus"] = status | {"message": f"the server failed: {message}"}
            self.write(PANIC)

    def fail_authentication(self, answer: Response) -> Response:
        if self._event:
            methods = [
                name
                for name, is_present in (
                    ("bearer", self._request.head.bearer is not None),
                    ("x509", self._request.peer.certificate is not None),
                )
                if is_present
            ]
            tried = f"attempted: {', '.join(methods)}" if methods else "no credentials provided"
            message = f"Authentication failed, {tried}"
            self._event["responseStatus"] = {"metadata": {}, "message": message, "code": answer.status}
            self.write(RESPONSE_STARTED)
        return Response(answer.status, _with_id(answer.headers, self._id), answer.body)

    def _until_closed(
        self, start: Callable[[ResponseStream], NowOrLater[None]]
    ) -> Callable[[ResponseStream], NowOrLater[None]]:
        def start_audited(stream: ResponseStream) -> NowOrLater[None]:
            stream.on_close(lambda: self.write(RESPONSE_COMPLETE))
            return start(stream)

        return start_audited

    def _until_returned(self, run: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def run_audited(*arguments: Any) -> None:
            try:
                await run(*arguments)
            finally:
                self.write(RESPONSE_COMPLETE)

        return run_audited

    # Bodies and annotations.

    def _note_request(self) -> None:
        action, request = self._action, self._request
        if not action.resource or not request.body or action.verb not in _WITH_BODY:
            return
        content_type = request.head.content_type
        body = _parse(request.body, content_type)
        reference = self._event["objectRef"]
        if action.verb in ("create", "update") and isinstance(body, dict) and isinstance(body.get("metadata"), dict):
            metadata = body["metadata"]
            for name in ("namespace", "name", "uid", "resourceVersion"):
                if isinstance(metadata.get(name), str) and metadata[name]:
                    reference.setdefault(name, metadata[name])
        if self._decision.level >= AuditLevel.Request and body is not None:
            self._event["requestObject"] = self._without_managed_fields(body)

    def _note_response(self, answer: Response) -> None:
        status: dict[str, Any] = {"metadata": {}, "code": answer.status}
        body: Any = None
        wants_object = self._decision.level >= AuditLevel.RequestResponse and self._action.resource
        if wants_object or answer.status >= 400:
            body = _parse_response(answer)
        if isinstance(body, dict) and body.get("kind") == "Status":
            quotes_body = self._decision.is_confidential and answer.status not in _WITHOUT_CONTENT
            fields = ["status", "reason"] if quotes_body else ["status", "message", "reason", "details"]
            status |= {name: body[name] for name in fields if name in body}
        status["code"] = status.pop("code")  # Kubernetes writes it last.
        self._event["responseStatus"] = status
        if wants_object and body is not None:
            self._event["responseObject"] = self._without_managed_fields(body)
        self._add_annotations()

    def _add_annotations(self) -> None:
        notes = self._request.notes
        if notes is None:
            return
        if notes.impersonated is not None:
            self._event["impersonatedUser"] = _user_info(notes.impersonated)
        if notes.constraint:
            self._event["authenticationMetadata"] = {"impersonationConstraint": notes.constraint}
        annotations = notes.annotations
        if self._decision.level < AuditLevel.Request:  # Annotations that quote bodies need the level of bodies.
            annotations = {name: text for name, text in annotations.items() if not name.startswith(PATCH_NOTE)}
        self._event["annotations"] = annotations or None

    def _without_managed_fields(self, value: Any) -> Any:
        if not self._decision.omits_managed_fields or not isinstance(value, dict):
            return value
        value = dict(value)
        if isinstance(value.get("items"), list):
            value["items"] = [self._without_managed_fields(item) for item in value["items"]]
        if isinstance(value.get("metadata"), dict):
            value["metadata"] = {name: field for name, field in value["metadata"].items() if name != "managedFields"}
        return value


_WITH_BODY = frozenset(("create", "update", "patch", "delete", "deletecollection"))


def _user_info(user: User) -> dict[str, Any]:
    info: dict[str, Any] = {}
    if user.name:
        info["username"] = user.name
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {name: list(values) for name, values in user.extra.items()}
    return info


def _reference(action: Action) -> dict[str, str] | None:
    if not action.resource:
        return None
    reference = {
        "resource": action.resource,
        "namespace": action.namespace,
        "name": action.name,
        "apiGroup": action.group,
        "apiVersion": action.version,
        "subresource": action.subresource,
    }
    return {name: value for name, value in reference.items() if value}


def _sources(request: Request) -> list[str]:
    """Return the addresses in X-Forwarded-For, then that of the client."""
    forwarded = b",".join(request.header_values(b"x-forwarded-for")).decode("latin-1")
    addresses = [part.strip() for part in forwarded.split(",") if part.strip()]
    return list(dict.fromkeys([*addresses, *([request.peer.address] if request.peer.address else [])]))


def _with_id(headers: Any, audit_id: str) -> bytes:
    block = headers if isinstance(headers, bytes) else header_block(headers)
    return b"Audit-Id: %b\r\n%b" % (audit_id.encode(), _AUDIT_ID.sub(b"", block))


def _parse_response(answer: Response) -> Any:
    body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    block = answer.headers if isinstance(answer.headers, bytes) else header_block(answer.headers)
    fields = dict(line.lower().split(b": ", 1) for line in block.split(b"\r\n") if b": " in line)
    if fields.get(b"content-encoding") == b"gzip":
        body = zlib.decompress(body, wbits=31)
    return _parse(body, fields.get(b"content-type", b"").decode("latin-1"))


def _parse(body: bytes, content_type: str) -> Any:
    """Return the value of a body; None if it cannot be parsed: it is left out of the event."""
    media_type = media_type_of(content_type)
    try:
        if media_type == PROTOBUF:
            return field_numbers.decode_answer(body)
        if media_type == YAML or media_type.endswith("+yaml"):
            return read_yaml(body).value
        return orjson.loads(body)
    except (ValueError, KeyError, errors.ApiError):
        return None
