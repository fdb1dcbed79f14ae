"""Servers behind links that can be broken: one Toxiproxy, one network name space each."""
