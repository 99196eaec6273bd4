#!/bin/sh
# Exit code 2 blocks the call; stderr tells the model why.
input=$(cat)
case "$input" in
*hunter2*) echo "the arguments hold a password" >&2; exit 2 ;;
esac
