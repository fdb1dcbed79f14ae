"""NATS: one server, or three, their protocol, and the bucket in which locks are kept."""
