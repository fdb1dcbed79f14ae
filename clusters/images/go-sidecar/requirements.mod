github.com/redis/go-redis/v9 v9.23.0
golang.org/x/sys v0.49.0
