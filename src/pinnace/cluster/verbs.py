"""Builds the verbs of the API server from its parts."""

from __future__ import annotations

from collections.abc import Callable

from pinnace.cluster.security import Security
from pinnace.kinds.definitions import Definitions
from pinnace.model.clock import Clock
from pinnace.model.resources import Registry
from pinnace.server.cache.fanout import Fanout
from pinnace.server.outcome import Representations
from pinnace.server.read.reader import ObjectReader
from pinnace.server.reviews import Reviews
from pinnace.server.verbs import Streams, Subresources, Verbs
from pinnace.server.write.binding import Bindings
from pinnace.server.write.body_decoder import Intake
from pinnace.server.write.eviction import Evictions
from pinnace.server.write.field_ownership import Ownerships
from pinnace.server.write.pipeline import Pipeline
from pinnace.server.write.scales import Scales


def build_verbs(
    registry: Registry,
    fanout: Fanout,
    definitions: Definitions,
    clock: Clock,
    *,
    reader: ObjectReader,
    pipeline: Pipeline,
    security: Security,
    streams: Callable[[], Streams],
) -> Verbs:
    decoder = Intake(registry, definitions.of_kind)
    representations = Representations(registry, clock)
    return Verbs(
        reader=reader,
        pipeline=pipeline,
        decoder=decoder,
        ownerships=Ownerships(registry),
        representations=representations,
        reviews=Reviews(
            authorizer=security.authorizer,
            rules=security.rules,
            tokens=security.tokens,
            issuer=security.issuer,
            pipeline=pipeline,
            decoder=decoder,
            representations=representations,
            schema_of=definitions.of_kind,
            clock=clock,
        ),
        subresources=Subresources(
            scales=Scales(
                registry=registry,
                pipeline=pipeline,
                decoder=decoder,
                representations=representations,
                schema_of=definitions.of_kind,
                clock=clock,
            ),
            bindings=Bindings(registry, pipeline, clock),
            evictions=Evictions(registry, fanout, pipeline, clock),
            streams=streams,
        ),
        clock=clock,
    )
