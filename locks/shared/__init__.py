"""What locks of every family share: sidecars, libraries in environments of their own, renewals."""
