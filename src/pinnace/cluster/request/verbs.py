"""Builds the verbs of the API server from its parts."""

from __future__ import annotations

from collections.abc import Callable

from pinnace.cluster.foundation import Foundation
from pinnace.cluster.request.security import Security
from pinnace.server.outcome import Representations
from pinnace.server.read.reader import ObjectReader
from pinnace.server.reviews import Reviews
from pinnace.server.verbs import Streams, Subresources, Verbs
from pinnace.server.write.binding import PodBinder
from pinnace.server.write.body_decoder import BodyDecoder
from pinnace.server.write.eviction import Evictions
from pinnace.server.write.field_ownership import Ownerships
from pinnace.server.write.patches import Patches
from pinnace.server.write.pipeline import Pipeline
from pinnace.server.write.scales import Scales


def build_verbs(
    foundation: Foundation,
    *,
    reader: ObjectReader,
    pipeline: Pipeline,
    ownerships: Ownerships,
    security: Security,
    streams: Callable[[], Streams],
) -> Verbs:
    """Build the verbs that every request of an object ends in."""
    registry, clock, schema_of = foundation.registry, foundation.clock, foundation.definitions.of_kind
    decoder = BodyDecoder(registry, schema_of)
    representations = Representations(registry, clock)
    return Verbs(
        reader=reader,
        pipeline=pipeline,
        decoder=decoder,
        patches=Patches(decoder, ownerships, clock),
        representations=representations,
        reviews=Reviews(
            security=security,
            pipeline=pipeline,
            decoder=decoder,
            representations=representations,
            schema_of=schema_of,
            clock=clock,
        ),
        subresources=Subresources(
            scales=Scales(
                registry=registry,
                pipeline=pipeline,
                decoder=decoder,
                representations=representations,
                schema_of=schema_of,
                clock=clock,
            ),
            binder=PodBinder(registry, pipeline, clock),
            evictions=Evictions(registry, foundation.fanout, pipeline, clock),
            streams=streams,
        ),
    )
