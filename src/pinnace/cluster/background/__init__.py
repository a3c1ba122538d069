"""The work beside the requests: the controllers, the scheduler and the regular jobs of the server."""
