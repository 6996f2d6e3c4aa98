#!/usr/bin/env bash
# Check paths with annotations, and verify what a branch changes into the summary of the job; the work of action.yml.
#
#   REGRAFT_PATHS="src" REGRAFT_VERIFY_AGAINST=origin/main GITHUB_STEP_SUMMARY=summary.md scripts/action.sh
#
# REGRAFT_SOURCE is installed where there is no command `regraft`; verification uses the torch that is installed.
# Exits with 2 after an error, 1 where something could be fixed or is not proved, else 0.
set -uo pipefail

if ! command -v regraft >/dev/null; then
  python -m pip install --quiet "${REGRAFT_SOURCE:?no command regraft, and REGRAFT_SOURCE does not say where to install it from}" || exit 2
fi

read -r -a paths <<<"${REGRAFT_PATHS:-.}"
read -r -a arguments <<<"${REGRAFT_ARGUMENTS:-}"
regraft check --output-format github ${arguments[@]+"${arguments[@]}"} -- "${paths[@]}"
status=$?

if [ -n "${REGRAFT_VERIFY_AGAINST:-}" ]; then
  regraft verify --diff-base "$REGRAFT_VERIFY_AGAINST" --output-format markdown >>"${GITHUB_STEP_SUMMARY:-/dev/stdout}"
  verified=$?
  status=$((verified > status ? verified : status))
fi
exit "$status"
