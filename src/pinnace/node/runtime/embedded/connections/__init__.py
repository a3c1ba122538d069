"""The agent's connections to the fork server and the supervisors, and what it asks of them."""
