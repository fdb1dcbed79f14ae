go.etcd.io/etcd/api/v3 v3.6.16
go.etcd.io/etcd/client/v3 v3.6.16
google.golang.org/grpc v1.83.2
