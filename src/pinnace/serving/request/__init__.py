"""Parses requests: the resource, the body and the accepted representation."""
