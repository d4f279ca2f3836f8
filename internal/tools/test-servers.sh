#!/usr/bin/env bash
# Runs tests against servers other than the machine's own: the Redis and Valkey of each Debian suite below. They are
# unpacked into a cache folder with the libraries that they were built for, and run from there: nothing is installed.
#
#   test-servers.sh [go test arguments]      default: the packages that speak to Redis
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cache=${LATCHKIT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/latchkit}/servers
servers=(trixie:redis trixie:valkey forky:valkey)

main() {
  command -v apt-get >/dev/null && [ -n "$(mirror)" ] || {
    echo "test-servers: servers come from Debian's suites, and this machine knows no Debian mirror; to test another" >&2
    echo "server, set LATCHKIT_REDIS_SERVER to its binary and run make test" >&2
    exit 1
  }
  [ $# -gt 0 ] || set -- ./core/... ./fallback/... ./ginlock/... ./grpclock/...
  local server failed=()
  for server in "${servers[@]}"; do
    fetch "${server%:*}" "${server#*:}"
    echo "== $("$(launcher "$server")" --version)"
    LATCHKIT_REDIS_SERVER=$(launcher "$server") LATCHKIT_REQUIRE_REDIS=1 go test "$@" || failed+=("$server")
  done
  [ ${#failed[@]} = 0 ] || { echo "test-servers: failed with ${failed[*]}" >&2; exit 1; }
}

mirror() { apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1; }

launcher() { echo "$cache/${1/:/-}/server"; }

# fetch unpacks a suite's server, with a program that starts it on its own libraries.
fetch() {
  local suite=$1 name=$2 root=$cache/$1-$2 packages
  [ ! -x "$root/server" ] || return 0
  echo "test-servers: fetching $name of $suite" >&2
  rm -rf "$root"
  mkdir -p "$root"/apt/{lists,cache/archives}/partial "$root/debs" "$root/tree"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(mirror) $suite main" >"$root/apt/sources.list"
  packages=$(suite_apt "$root" update >/dev/null && needed "$root" "$name-server")
  (cd "$root/debs" && suite_apt "$root" download $packages >/dev/null)
  local deb
  for deb in "$root"/debs/*.deb; do
    dpkg-deb --extract "$deb" "$root/tree"
  done
  rm -rf "$root/apt" "$root/debs"

  local loader
  loader=$(find "$root/tree" -name 'ld-linux*.so.*' -print -quit)
  cat >"$root/server.new" <<SERVER
#!/bin/sh
exec "$loader" --library-path "$(dirname "$(find "$root/tree" -name 'libc.so.6' -print -quit)")" "$root/tree/usr/bin/$name-server" "\$@"
SERVER
  chmod +x "$root/server.new"
  mv "$root/server.new" "$root/server"
}

# needed lists a package, the programs it is made of, and all libraries below.
needed() {
  suite_apt "$1" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$2" |
    grep -E "^(lib[a-z0-9].*|${2%-server}-[a-z]+)\$" | sort -u
}

# suite_apt is apt-get, or apt-cache for depends, over the one suite's list and away from the machine's own state.
suite_apt() {
  local root=$1 tool=apt-get
  [ "$2" != depends ] || tool=apt-cache
  "$tool" -qq -o Dir::Etc::sourcelist="$root/apt/sources.list" -o Dir::Etc::sourceparts=- \
    -o Dir::State::lists="$root/apt/lists" -o Dir::Cache="$root/apt/cache" -o Dir::State::status=/dev/null \
    -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User=root "${@:2}"
}

main "$@"
