#!/usr/bin/env bash
# Runs the linters that are installed. One that was built with an older Go than this module's could not read it, and is
# passed over with a word.
set -euo pipefail

minor() { sed -E 's/^.*go1\.([0-9]+).*$/\1/' <<<"$1"; }

usable() {
  local path built wanted
  path=$(command -v "$1") || { echo "lint: $1 is not installed"; return 1; }
  built=$(minor "$(go version "$path")")
  wanted=$(minor "go$(go list -m -f '{{.GoVersion}}')")
  [ "$built" -ge "$wanted" ] 2>/dev/null || { echo "lint: $1 was built with a Go older than 1.$wanted, and is not run"; return 1; }
}

if usable golangci-lint; then
  case "$(golangci-lint version)" in
    *"version 2."* | *"version v2."*) golangci-lint run ;;
    *) echo "lint: golangci-lint is not version 2, and is not run" ;;
  esac
fi
if usable staticcheck; then
  staticcheck ./...
fi
