"""The Docker engine: containers, their events, their owners, and how they are removed."""
