"""Clusters: real servers in containers, reachable only through links that can be broken."""
