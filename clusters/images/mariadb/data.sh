#!/bin/sh
# Make the data directory: by a server that is a cluster of its own, so that its data has a position in
# the history of a cluster (grastate.dat), from which several can go on together.
set -eu
mariadb-install-db --no-defaults --datadir=/lockbench/data --user=mysql --skip-test-db \
    --auth-root-authentication-method=normal --innodb-log-file-size=16M > /dev/null
socket=/tmp/data.sock
mariadbd --no-defaults --datadir=/lockbench/data --user=mysql --socket=$socket --skip-networking \
    --innodb-log-file-size=16M --binlog-format=ROW --innodb-autoinc-lock-mode=2 \
    --wsrep-on=ON --wsrep-provider=/usr/lib/galera/libgalera_smm.so \
    --wsrep-cluster-address=gcomm:// --wsrep-new-cluster &
until mariadb --no-defaults --socket=$socket --user=root < /lockbench/data.sql 2> /tmp/said; do
    kill -0 $! || { cat /tmp/said; exit 1; }
    sleep 0.2
done
mariadb-admin --no-defaults --socket=$socket --user=root shutdown
wait $!
rm -rf /tmp/said /var/lib/mysql /lockbench/data/galera.cache
grep 'safe_to_bootstrap: 1' /lockbench/data/grastate.dat
