#!/bin/sh
# The programs that the system tests use. What is missing is installed where that is allowed (root on Debian), else it is named; with
# CI=true a missing program is a failure, otherwise the tests that need it say so themselves.
set -eu

programs='svn svnadmin svnserve svnlook git git-lfs curl wget ps bash busybox openssl debootstrap ssh-keygen'
packages='subversion git git-lfs curl wget procps bash busybox-static openssl debootstrap apache2-bin libapache2-mod-svn chromium-headless-shell openssh-server openssh-client libpangoft2-1.0-0'

missing() {
    for program in $programs; do
        command -v "$program" >/dev/null 2>&1 || printf '%s ' "$program"
    done
    # Chromium without windows. Chromium itself, which takes three times as long, will do where that cannot be had.
    command -v chromium-headless-shell >/dev/null 2>&1 || { [ "${1:-}" = will-do ] && command -v chromium >/dev/null 2>&1; } || printf 'chromium-headless-shell '
    PATH="$PATH:/usr/sbin" command -v sshd >/dev/null 2>&1 || printf 'sshd '
    # The images of the tests hold nothing but busybox, so it must not need libraries.
    ! ldd "$(command -v busybox || echo /)" >/dev/null 2>&1 || printf 'busybox-static '
    # WeasyPrint, with which the application publish makes its PDF.
    [ ! -x /sbin/ldconfig ] || /sbin/ldconfig -p | grep -q libpangoft2-1 || printf 'libpangoft2-1.0 '
    # An engine that runs already will do; else the tests start one for their run.
    [ -n "${DOCKER_HOST:-}" ] || [ -S /var/run/docker.sock ] || command -v dockerd >/dev/null 2>&1 || printf 'dockerd '
    docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null 2>&1 || printf 'docker-compose '
    [ -e /usr/lib/apache2/modules/mod_dav_svn.so ] || [ -e /usr/lib64/httpd/modules/mod_dav_svn.so ] || printf 'mod_dav_svn '
}

lacking=$(missing)
[ -n "$lacking" ] || exit 0

if [ "$(id -u)" = 0 ] && [ -e /etc/debian_version ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing what the tests need: $lacking"
    case $lacking in *dockerd*) packages="$packages docker.io" ;; esac
    case $lacking in *docker-compose*) packages="$packages docker-compose" ;; esac
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -qq --no-install-recommends -y $packages >/dev/null || true
fi
lacking=$(missing will-do)
[ -n "$lacking" ] || exit 0

echo "the tests need these programs, which are not installed: $lacking" >&2
echo "Debian, Ubuntu: apt-get install $packages" >&2
echo "Fedora: dnf install subversion git git-lfs curl wget procps-ng bash busybox openssl httpd mod_dav_svn chromium openssh-server openssh-clients; macOS: brew install subversion git git-lfs wget" >&2
[ "${CI:-}" != true ] || exit 1
