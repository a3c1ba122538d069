"""APIs added while running: custom resources and aggregated servers."""
