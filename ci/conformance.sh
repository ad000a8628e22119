#!/usr/bin/env bash
# The conformance of one adapter, as CI asks for it: run the checks, write the reports, compare with a base.
#
#   ci/conformance.sh --adapter NAME [--graph-device auto|cuda|emulated] [--base BASE] [--allow-known]
#                     [--checkpoint PATH] [--seed N] [--reports FOLDER] [-- PYTEST ARGUMENTS]
#
# BASE is a JSON report of an earlier run, or another adapter, such as the wrapper that this one replaces. The exit code is
# the run's (0 CONFORMANT, 1 NOT CONFORMANT, 4 bad input, 6 INCONCLUSIVE). With --base, an adapter that is NOT CONFORMANT
# passes as long as nothing fails that passed before, and one that is CONFORMANT is compared all the same.
# PYTHON names the interpreter (default: python). Writes to $GITHUB_STEP_SUMMARY where GitHub sets it.
set -euo pipefail

adapter= device=auto base= checkpoint= seed=0 reports=conformance-reports known=
bad() {
    echo "ERROR: $1" >&2
    exit 4
}
while [ $# -gt 0 ]; do
    case "$1" in
    --) shift && break ;;
    --allow-known) known=--conformance-allow-known && shift && continue ;;
    --adapter | --graph-device | --base | --checkpoint | --seed | --reports) ;;
    *) bad "unknown argument $1; expected --adapter NAME, and what the head of ${0##*/} lists" ;;
    esac
    [ $# -ge 2 ] || bad "$1 needs a value"
    case "$1" in
    --adapter) adapter=$2 ;;
    --graph-device) device=$2 ;;
    --base) base=$2 ;;
    --checkpoint) checkpoint=$2 ;;
    --seed) seed=$2 ;;
    --reports) reports=$2 ;;
    esac
    shift 2
done
[ -n "$adapter" ] || bad "--adapter NAME is missing"
case "$base" in *.json) [ -f "$base" ] || bad "--base $base: no such file" ;; esac

python=${PYTHON:-python}
mkdir -p "$reports"
rm -f "$reports"/conformance.{json,md,html,badge.json}
written=(--conformance-json="$reports/conformance.json" --conformance-md="$reports/conformance.md")
written+=(--conformance-badge="$reports/conformance.badge.json")
if "$python" -c 'import jinja2, matplotlib' 2>/dev/null; then
    written+=(--conformance-html="$reports/conformance.html")
else
    echo "no HTML report: pip install 'audiograph[report]' brings what it needs"
fi

status=0
"$python" -m pytest --adapter="$adapter" --graph-device="$device" --conformance-seed="$seed" $known \
    ${checkpoint:+--adapter-checkpoint="$checkpoint"} "${written[@]}" "$@" || status=$?

if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f "$reports/conformance.md" ]; then
    cat "$reports/conformance.md" >>"$GITHUB_STEP_SUMMARY"
fi
if [ -n "$base" ] && { [ "$status" = 0 ] || [ "$status" = 1 ]; }; then
    [ -f "$reports/conformance.json" ] || exit "$status"
    status=0
    "$python" -m conformance.cli compare "$base" "$reports/conformance.json" \
        --graph-device="$device" --conformance-seed="$seed" | tee "$reports/compare.txt" || status=$?
fi
exit "$status"
