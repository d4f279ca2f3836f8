#!/usr/bin/env bash
# Installs the Chromium that `make test-ui` looks at pages with, if this machine has none.
set -euo pipefail

have() { command -v "$1" >/dev/null 2>&1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

for browser in "${LATCHKIT_CHROMIUM:-chromium}" chromium-browser google-chrome; do
  if have "$browser"; then exit 0; fi
done
if have apt-get; then
  echo "install-chromium: installing chromium" >&2
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
elif have brew; then
  brew install --cask chromium
else
  echo "install-chromium: please install Chromium, or set LATCHKIT_CHROMIUM to the path of one" >&2
  exit 1
fi
