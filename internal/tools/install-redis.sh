#!/usr/bin/env bash
# Installs what the tests need and this machine lacks: redis-server, and a C compiler, without which Go has no race
# detector. On Debian also what a few tests want: libfaketime for those that change a server's clock, and promtool for
# that of the alert rules. The tests start their own servers, so nothing is left running as a service.
set -euo pipefail

main() {
  if have "${LATCHKIT_REDIS_SERVER:-redis-server}" && have_cc && have_wanted; then
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

have_wanted() { [ "$(uname -s)" != Linux ] || { have_faketime && have promtool; }; }

have_faketime() {
  compgen -G '/usr/lib*/faketime/libfaketime.so.1' >/dev/null ||
    compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null ||
    compgen -G '/usr/local/lib/faketime/libfaketime.so.1' >/dev/null
}

on_debian() {
  local needed=() wanted=()
  have "${LATCHKIT_REDIS_SERVER:-redis-server}" || needed+=(redis-server)
  have_cc || needed+=(gcc libc6-dev)
  have_faketime || wanted+=(libfaketime)
  have promtool || wanted+=(prometheus)

  if [ "${#needed[@]}" != 0 ]; then
    have apt-get || by_hand
    apt "${needed[@]}"
  fi
  # What is merely wanted is worth neither a question for a password nor a failure.
  if [ "${#wanted[@]}" != 0 ]; then
    { have apt-get && as_root_silently true && apt "${wanted[@]}"; } || true
    have_wanted || echo "install-redis: a few tests are skipped for want of: ${wanted[*]}" >&2
  fi
}

# apt installs packages and keeps Debian from starting their services, now and at the next boot.
apt() {
  local policy=/usr/sbin/policy-rc.d service
  echo "install-redis: installing $*" >&2
  as_root apt-get update -qq
  if [ ! -e "$policy" ]; then
    as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy"
    trap "as_root rm -f $policy" EXIT
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
  for service in redis-server prometheus; do
    case " $* " in
      *" $service "*) have systemctl && as_root systemctl disable --now "$service" >/dev/null 2>&1 || true ;;
    esac
  done
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
