"""Kubernetes' API server."""
