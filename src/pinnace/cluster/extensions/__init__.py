"""Extensions of a running cluster: custom kinds, aggregated servers, metrics servers, webhooks."""
