github.com/go-redsync/redsync/v4 v4.18.1
