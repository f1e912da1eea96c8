#!/bin/sh
# The programs that the system tests use. What is missing is installed where that is allowed (root on Debian), else it is named; with
# CI=true a missing program is a failure, otherwise the tests that need it say so themselves.
set -eu

programs='svn svnadmin svnserve svnlook git curl wget ps bash busybox'

missing() {
    for program in $programs; do
        command -v "$program" >/dev/null 2>&1 || printf '%s ' "$program"
    done
}

lacking=$(missing)
[ -n "$lacking" ] || exit 0

if [ "$(id -u)" = 0 ] && [ -e /etc/debian_version ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing what the tests need: $lacking"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -qq --no-install-recommends -y subversion git curl wget procps bash busybox >/dev/null || true
    lacking=$(missing)
    [ -n "$lacking" ] || exit 0
fi

echo "the tests need these programs, which are not installed: $lacking" >&2
echo "Debian, Ubuntu: apt-get install subversion git curl wget procps bash busybox" >&2
echo "Fedora: dnf install subversion git curl wget procps-ng bash busybox; macOS: brew install subversion git wget" >&2
[ "${CI:-}" != true ] || exit 1
