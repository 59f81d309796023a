#!/usr/bin/env bash
# Installs what a target of the Makefile needs from the system, unless it exists: hack/need.sh COMMAND PACKAGE...
# It installs packages of Debian and its derivatives, as root. Elsewhere it says what to install.
set -euo pipefail

command=$1
shift
command -v "$command" >/dev/null && exit
if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
	echo "$command was not found in PATH: install it, for example with: sudo apt-get install $*" >&2
	exit 1
fi
# A new machine may be in the middle of updates of its own.
apt=(apt-get -qq -o DPkg::Lock::Timeout=600)
"${apt[@]}" update
DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y "$@" >/dev/null
