"""kubectl's behaviour: tables, output formats, apply, watch, resource names."""
