github.com/go-zookeeper/zk v1.0.4
