#!/usr/bin/env bash
# Installs what the tests need and this machine lacks: redis-server, libfaketime for the few tests that change a
# server's clock, and a C compiler, without which Go has no race detector. The tests start their own servers, so no
# Redis is left running as a service.
set -euo pipefail

main() {
  if have "${LATCHKIT_REDIS_SERVER:-redis-server}" && have_cc && have_faketime; then
    return
  fi
  case "$(uname -s)" in
    Linux) on_debian ;;
    Darwin) on_mac ;;
    *) by_hand ;;
  esac
  have "${LATCHKIT_REDIS_SERVER:-redis-server}" || by_hand
}

have() { command -v "$1" >/dev/null 2>&1; }

have_cc() { have "${CC:-cc}" || have gcc || have clang; }

have_faketime() {
  [ "$(uname -s)" != Linux ] || compgen -G '/usr/lib*/faketime/libfaketime.so.1' >/dev/null ||
    compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null ||
    compgen -G '/usr/local/lib/faketime/libfaketime.so.1' >/dev/null
}

on_debian() {
  local packages=() needed=
  have "${LATCHKIT_REDIS_SERVER:-redis-server}" || { packages+=(redis-server) needed=yes; }
  have_cc || { packages+=(gcc libc6-dev) needed=yes; }
  have_faketime || packages+=(libfaketime)

  if ! have apt-get; then
    [ -z "$needed" ] || by_hand
    return 0
  fi
  # libfaketime alone is not worth a question for a password: the tests that want it are skipped.
  if [ -z "$needed" ] && ! as_root_silently true; then
    echo "install-redis: tests that change a server's clock are skipped: no libfaketime" >&2
    return 0
  fi
  echo "install-redis: installing ${packages[*]}" >&2
  apt "${packages[@]}"
}

# apt installs packages and keeps Debian from starting a Redis on its port, now and at the next boot.
apt() {
  local policy=/usr/sbin/policy-rc.d
  as_root apt-get update -qq
  if [ ! -e "$policy" ]; then
    as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy"
    trap "as_root rm -f $policy" EXIT
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
  case " $* " in
    *" redis-server "*) have systemctl && as_root systemctl disable --now redis-server >/dev/null 2>&1 || true ;;
  esac
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

as_root_silently() {
  if [ "$(id -u)" = 0 ]; then "$@"; else have sudo && sudo -n "$@" 2>/dev/null; fi
}

# brew starts no service by itself.
on_mac() {
  have brew || by_hand
  have "${LATCHKIT_REDIS_SERVER:-redis-server}" || brew install redis
}

by_hand() {
  cat >&2 <<'TXT'
install-redis: cannot install Redis on this system.
Please install redis-server 7.0 or newer (on macOS with Homebrew: brew install redis) and a C compiler, or set
LATCHKIT_REDIS_SERVER to the path of a redis-server or valkey-server. `go test ./...` works without Redis and skips
the tests that need it.
TXT
  exit 1
}

main
