#!/bin/sh
# C1 alone and the serial collector: a case is short and shares two cores with its servers. Without
# counters for jstat, whose upkeep wakes each JVM 20 times a second.
exec java -XX:-UsePerfData -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:SharedArchiveFile=/opt/lockbench/app.jsa \
    -Xshare:auto -Xmx"${LOCKBENCH_HEAP:-256m}" -Xlog:cds=off -Xlog:cds+dynamic=off \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn --enable-native-access=ALL-UNNAMED \
    -cp '/opt/lockbench/*' lockbench.Sidecar "$@"
