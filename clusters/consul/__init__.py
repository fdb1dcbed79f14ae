"""Consul: the cluster."""
