"""MariaDB: one server, or three with Galera, and its protocol."""
