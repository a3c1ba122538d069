"""gRPC over Unix sockets and TCP: messages, calls, and a server."""
