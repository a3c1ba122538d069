"""The parts of every process: clock, tasks, slices of work, tracing, metrics, TLS and outbound HTTP."""
