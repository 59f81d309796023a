#!/usr/bin/env bash
# Names the current kubeconfig context before something is done to it.
#
#   hack/context.sh name 'Installing the CRDs into'
#   hack/context.sh ask  'Run the manager against'
#
# `ask` goes on only after a yes from the terminal. Without a terminal there is
# nobody to ask, and it refuses, unless YES=1 says that the answer is known.
set -euo pipefail

mode=$1
what=$2
kubectl=${KUBECTL:-kubectl}

if ! command -v "$kubectl" >/dev/null; then
	echo "$kubectl is not to be found: install kubectl, or name one with KUBECTL=/path/to/kubectl" >&2
	exit 1
fi
if ! context=$("$kubectl" config current-context 2>/dev/null); then
	echo "No context is set: choose one with 'kubectl config use-context', or set KUBECONFIG" >&2
	exit 1
fi
server=$("$kubectl" config view --minify -o 'jsonpath={.clusters[0].cluster.server}')

echo "$what the context $context ($server)"
if [[ $mode == name || ${YES:-} == 1 ]]; then
	exit 0
fi
if ! { exec 3<>/dev/tty; } 2>/dev/null; then
	echo "There is no terminal to ask on: run it in one, or say YES=1" >&2
	exit 1
fi
printf 'Go on? [y/N] ' >&3
read -r answer <&3
case $answer in
y | Y | yes) ;;
*)
	echo "Nothing was done." >&2
	exit 1
	;;
esac
