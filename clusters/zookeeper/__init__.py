"""ZooKeeper: the ensemble, its protocol and its transaction log."""
