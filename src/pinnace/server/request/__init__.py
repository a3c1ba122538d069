"""From an HTTP request to a call: routing, negotiation, credentials and body parsing."""
