"""A benchmark for distributed locks on real clusters. Each link is a folder of the repository."""
