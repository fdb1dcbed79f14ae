github.com/bsm/redislock v0.9.4
