#!/usr/bin/env bash
# Fetch the real servers and clients that tests use; does nothing for what is there already. See README.md.
#   install.sh [s3] [toxiproxy] [postgres] [redis] [mqtt] [gcs] [azure] [prometheus] [browser] [kcat] [franz-go] [mirror-maker] [spark-kafka]
#              [pages] [debian]
#   default: all
# Binaries go to $TIERD_CACHE (default .cache); Debian packages go where apt puts them.
# One that cannot be had does not keep the others away; the exit code is 1 then.
set -euo pipefail
clients=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/kafka_clients
browser=$(dirname "$clients")/browser
cache=${TIERD_CACHE:-.cache}
mkdir -p "$cache/bin"
cache=$(realpath "$cache")
exec 9> "$cache/.install.lock"; flock 9           # two test runs may start at once
[ $# -gt 0 ] || set -- s3 toxiproxy postgres redis mqtt gcs azure prometheus browser kcat franz-go mirror-maker spark-kafka pages debian
failures=0
wants_debian=
as_root=(env DEBIAN_FRONTEND=noninteractive)
[ "$(id -u)" = 0 ] || as_root=(sudo -n "${as_root[@]}")

fail() { echo "install.sh: $*" >&2; failures=1; return 1; }

go_tool() { # NAME PACKAGE VERSION: build once per version, publish by rename
  [ -x "$cache/bin/$1-$3" ] || {
    command -v go > /dev/null || fail "$1 needs Go 1.21 or newer (it fetches the toolchain it needs); install Go or put $1 on PATH" || return
    local build=$cache/build-$$; mkdir -p "$build"
    GOBIN=$build GOFLAGS=-buildvcs=false go install "$2@$3" || fail "go install $2@$3 failed" || return
    mv "$build"/* "$cache/bin/$1-$3"; rmdir "$build"
  }
  ln -sfn "$1-$3" "$cache/bin/$1"
}

own_go_program() { # NAME SOURCE PACKAGE: build once per state of the source, publish by rename
  local version; version=$(find "$2" -type f | sort | xargs cat | cksum | cut -d' ' -f1)
  [ -x "$cache/bin/$1-$version" ] || {
    command -v go > /dev/null || fail "$1 needs Go 1.21 or newer (it fetches the toolchain it needs); install Go" || return
    (cd "$2" && go build -buildvcs=false -o "$cache/bin/$1-$version.$$" "$3") || fail "go build of $1 failed" || return
    mv "$cache/bin/$1-$version.$$" "$cache/bin/$1-$version"
  }
  ln -sfn "$1-$version" "$cache/bin/$1"
}

jars() { # PROFILE: the jars of a profile of kafka_clients/pom.xml, once per state of that file, published by rename
  local version; version=$(cksum < "$clients/pom.xml" | cut -d' ' -f1)
  [ -d "$cache/jars/$1-$version" ] || {
    command -v mvn > /dev/null || fail "$1 needs Maven 3.8; install it" || return
    local target=$cache/jars/$1-$version.$$
    mvn -B -q -f "$clients/pom.xml" "-P$1" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
      -DincludeScope=runtime -DoutputDirectory="$target" || fail "the jars of $1 could not be fetched" || return
    mv "$target" "$cache/jars/$1-$version"
  }
  ln -sfn "$1-$version" "$cache/jars/$1"
}

azurite() {
  [ -x "$cache/azurite/node_modules/.bin/azurite-blob" ] && return
  command -v npm > /dev/null || fail "azure needs Node.js with npm; install them" || return
  npm install --silent --no-fund --no-audit --prefix "$cache/azurite" azurite@3.37.0 || fail "npm install azurite@3.37.0 failed"
}

prometheus() { # unpacked in the cache: if apt installed the package, it would start a server
  [ -x "$cache/bin/prometheus" ] && [ -x "$cache/bin/promtool" ] && return
  local build=$cache/build-$$; mkdir -p "$build/package"
  download() { (cd "$build" && apt-get -qq -o APT::Sandbox::User=root download prometheus); }
  download 2> /dev/null || { "${as_root[@]}" apt-get update -qq && download; } ||
    fail "apt-get download prometheus failed; put prometheus and promtool on PATH" || return
  dpkg-deb -x "$build"/prometheus_*.deb "$build/package" || fail "the package prometheus cannot be unpacked" || return
  mv "$build/package/usr/bin/prometheus" "$build/package/usr/bin/promtool" "$cache/bin/"; rm -r "$build"
}

axe() { # the script that finds faults of accessibility, once per state of the lock file, published by rename
  local version; version=$(cksum < "$browser/package-lock.json" | cut -d' ' -f1)
  [ -d "$cache/browser-$version" ] || {
    command -v npm > /dev/null || fail "axe needs Node.js with npm; install them" || return
    local build=$cache/build-$$; mkdir -p "$build"; cp "$browser"/package*.json "$build"
    npm ci --silent --no-fund --no-audit --prefix "$build" || fail "npm ci of tests/services/browser failed" || return
    mv "$build" "$cache/browser-$version"
  }
  ln -sfn "browser-$version" "$cache/browser"
}

debian_root() { # a clean Debian as a tar file: what a minimal server has, and the shells and man of which tests ask answers
  local suite; suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  local tar=$cache/debian/root-$suite-1.tar build=$cache/build-$$
  [ -f "$tar" ] || {
    [ "$(id -u)" = 0 ] || fail "debian needs root, for debootstrap and chroot" || return
    local mirror; mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $suite" 'Created-By: Packages' 'Component: main' | head -1)
    mkdir -p "$cache/debian"
    debootstrap --variant=minbase --include=python3,bash-completion,fish,man-db,zsh "$suite" "$build" "$mirror" > "$build.log" ||
      { tail -3 "$build.log" >&2; rm -rf "$build"; fail "debootstrap of $suite failed"; } || return
    tar --create --numeric-owner --one-file-system --directory "$build" --exclude './var/cache/apt/archives/*.deb' --file "$tar.$$" .
    mv "$tar.$$" "$tar"; rm -rf "$build" "$build.log"
  }
  ln -sfn "${tar##*/}" "$cache/debian/root.tar"
}

packages=()
apt_tool() { # COMMAND PACKAGE: only asked for here, all are installed at once
  command -v "$1" > /dev/null || compgen -G "/usr/lib/postgresql/*/bin/$1" > /dev/null || [ -x "/usr/sbin/$1" ] ||
    packages+=("$2")
}

for service; do
  case $service in
    s3) go_tool versitygw github.com/versity/versitygw/cmd/versitygw v1.8.0 ;;
    toxiproxy) go_tool toxiproxy github.com/Shopify/toxiproxy/v2/cmd/server v2.5.0 ;;
    postgres) apt_tool initdb postgresql ;;
    redis) apt_tool redis-server redis-server ;;
    mqtt) apt_tool mosquitto mosquitto; apt_tool mosquitto_sub mosquitto-clients ;;
    gcs) go_tool fake-gcs-server github.com/fsouza/fake-gcs-server v1.56.1 ;;
    azure) azurite ;;
    prometheus) { command -v prometheus && command -v promtool; } > /dev/null || prometheus ;;
    browser)
      axe
      command -v chromium > /dev/null || apt_tool chromium-headless-shell chromium-headless-shell
      ;;
    kcat) apt_tool kcat kcat ;;
    pages) apt_tool jq jq; apt_tool curl curl; apt_tool openssl openssl ;; # programs of the commands in README and docs/
    franz-go)
      own_go_program franz-reader "$clients/franz" . || true
      own_go_program franz-example "$clients/franz" ./example
      ;;
    mirror-maker | spark-kafka) jars "$service" ;;
    debian) apt_tool debootstrap debootstrap; apt_tool lintian lintian; wants_debian=1 ;;
    *) fail "unknown service $service; the first lines of this file have the names" ;;
  esac || true
done

if [ ${#packages[@]} -gt 0 ]; then
  { "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}" > /dev/null; } ||
    fail "install by hand, as root: apt-get install ${packages[*]}" || true
fi
[ -z "$wants_debian" ] || debian_root || true   # needs what apt has just installed
exit "$failures"
