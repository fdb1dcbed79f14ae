"""Load from several machines: an agent on each, whose workers work as those here do."""
