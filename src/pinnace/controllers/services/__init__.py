"""Endpoints, EndpointSlices, load balancers and service addresses."""
