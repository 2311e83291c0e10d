#!/bin/sh
# SPDX-License-Identifier: MIT
# Verifies a Promela model in full, and proves that each of its broken variants is found.
# usage: spin.sh MODEL.pml CC "DEFINES OF THE FULL RUN" VARIANT...
set -eu
model=$(realpath "$1")
cc=$2
full=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# verify DEFINES: prints "errors states"; fails if the search was cut short
verify() {
        # shellcheck disable=SC2086
        spin -a $1 "$model" >spin.log 2>&1 || { cat spin.log >&2; exit 1; }
        "$cc" -O2 -w -DSAFETY -DNOFAIR -DCOLLAPSE -DMEMLIM=2000 pan.c -o pan
        ./pan -m200000 >pan.log 2>&1 || true
        if grep -q -e "max search depth too small" -e "Search not completed" pan.log && ! grep -q "errors: [1-9]" pan.log; then
                cat pan.log >&2
                exit 1
        fi
        sed -n -E 's/.*errors: ([0-9]+).*/\1/p' pan.log
}

errors=$(verify "$full")
sed -n '/states, stored/p;/unreached in/d' pan.log
if [ "$errors" != 0 ]; then
        cat pan.log
        spin -k ./*.trail -t -p "$model" 2>/dev/null | tail -60
        exit 1
fi
echo "$(basename "$model") $full: no error"
failed=0
for variant; do
        errors=$(verify "$full -D$variant")
        if [ "$errors" = 0 ]; then
                echo "$variant: NOT FOUND"
                failed=1
        else
                echo "$variant: found ($(sed -n 's/^pan:1: //p' pan.log | head -1))"
        fi
done
exit $failed
