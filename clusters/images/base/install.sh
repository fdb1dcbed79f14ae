#!/bin/sh
# Install Debian packages without what they only recommend; the arguments are those of apt-get
# install. What apt has verified and is about to install is written down before, a line for each file:
# package, version, architecture, SHA-256.
set -eu
apt-get update
apt-get install --yes --no-install-recommends --download-only "$@"
for file in /var/cache/apt/archives/*.deb; do
    test -e "$file" || continue
    dpkg-deb --show --showformat '${Package} ${Version} ${Architecture} ' "$file"
    sha256sum "$file" | cut --delimiter=' ' --fields=1
done >> /etc/lockbench-packages
apt-get install --yes --no-install-recommends --no-download "$@"
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
