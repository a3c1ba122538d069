"""HTTP on sockets: connections, TLS, headers, chunked output and compression."""
