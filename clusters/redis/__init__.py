"""Redis: single nodes, Redlock's nodes, Sentinel, Redis Cluster; its protocol and record."""
