"""Locks on MariaDB, one server or several with Galera."""
