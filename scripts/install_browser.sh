#!/usr/bin/env bash
# Install what the tests of HTML reports in a browser need: Debian's Chromium with its driver, and axe-core from the npm registry.
set -euo pipefail
cd "$(dirname "$0")/.."
AXE=4.10.3
if ! { command -v chromium && command -v chromedriver; } > /dev/null; then
  SUDO=$([ "$(id -u)" = 0 ] || echo sudo)
  $SUDO apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $SUDO apt-get install -y -qq --no-install-recommends chromium chromium-driver > /dev/null
fi
if [ ! -e .cache/browser/node_modules/axe-core/axe.min.js ]; then
  mkdir -p .cache/browser
  npm install --silent --no-fund --no-audit --prefix .cache/browser "axe-core@$AXE"
fi
