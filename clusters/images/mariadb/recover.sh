#!/bin/sh
# Start a server of Galera where it stopped. One that was killed knows its position from InnoDB alone,
# which is found out as Debian's galera_recovery does it. The arguments are the server and its options.
set -eu
position=
if grep -q 'seqno: *-1' /lockbench/data/grastate.dat; then
    log=/lockbench/recovered
    "$@" --wsrep-recover 2> $log || { cat $log >&2; exit 1; }
    position=$(sed -n 's/.*WSREP: Recovered position:[[:space:]]*//p' $log | tail -n 1)
fi
exec "$@" ${position:+"--wsrep-start-position=$position"}
