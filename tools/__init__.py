"""Makes a machine ready, lists what it is made of: ``make setup``, ``make sbom``. Not installed."""
