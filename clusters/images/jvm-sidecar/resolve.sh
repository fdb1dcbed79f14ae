#!/bin/sh
# Fetch the jars that pom.xml comes to into /out. Every file that Maven resolves on the way, its
# plugins included, must be as in checksums.sha256, and the jars must be those of artifacts.sha256.
# With the argument `record` both lists are written instead.
set -eu
record=false
test "${1:-}" != record || record=true
processor=aether.artifactResolver.postProcessor.trustedChecksums
summary=aether.trustedChecksumsSource.summaryFile
mvn --batch-mode --quiet --strict-checksums -Dmaven.repo.local=/build/repository \
    -D${summary}=true -D${summary}.basedir=/build -D${summary}.originAware=false \
    -D${processor}=true -D${processor}.checksumAlgorithms=SHA-256 \
    -D${processor}.failIfMissing=true -D${processor}.record=${record} \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=/out
rm -rf /build/repository
cd /out
if ${record}; then
    sha256sum -- *.jar > /build/artifacts.sha256
else
    sha256sum --check --quiet /build/artifacts.sha256
    test "$(ls | wc -l)" = "$(wc -l < /build/artifacts.sha256)"
fi
