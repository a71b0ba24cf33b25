#!/usr/bin/env bash
# Fetch the S3 server and the fault proxy that tests talk to; does nothing for what is there already. See README.md.
#   install.sh [s3] [toxiproxy]      default: both
# Binaries go to $TIERD_CACHE (default .cache)/bin.
set -euo pipefail
cache=${TIERD_CACHE:-.cache}
mkdir -p "$cache/bin"
cache=$(realpath "$cache")
exec 9> "$cache/.install.lock"; flock 9           # two test runs may start at once
[ $# -gt 0 ] || set -- s3 toxiproxy

fail() { echo "install.sh: $*" >&2; exit 1; }

go_tool() { # NAME PACKAGE VERSION: build once per version, publish by rename
  [ -x "$cache/bin/$1-$3" ] || {
    command -v go > /dev/null || fail "$1 needs Go 1.21 or newer (it fetches the toolchain it needs); install Go or put $1 on PATH"
    local build=$cache/build-$$; mkdir -p "$build"
    GOBIN=$build GOFLAGS=-buildvcs=false go install "$2@$3" || fail "go install $2@$3 failed"
    mv "$build"/* "$cache/bin/$1-$3"; rmdir "$build"
  }
  ln -sfn "$1-$3" "$cache/bin/$1"
}

for service; do
  case $service in
    s3) go_tool versitygw github.com/versity/versitygw/cmd/versitygw v1.8.0 ;;
    toxiproxy) go_tool toxiproxy github.com/Shopify/toxiproxy/v2/cmd/server v2.5.0 ;;
    *) fail "unknown service $service; known: s3 toxiproxy" ;;
  esac
done
