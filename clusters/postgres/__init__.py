"""PostgreSQL: a primary with a replica, and its protocol."""
