"""The checker: judges saved histories. It knows no lock, no cluster and no Docker."""
