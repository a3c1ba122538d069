"""The steps of a pod on its node: from its admission to its end; static pods."""
