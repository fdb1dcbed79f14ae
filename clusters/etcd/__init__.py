"""etcd: the cluster."""
