#!/usr/bin/env bash
# Prints the current kubeconfig context before a command changes the cluster.
#
#   hack/context.sh name 'Installing the CRDs into'
#   hack/context.sh ask  'Run the manager against'
#
# `ask` requires a confirmation on the terminal. Without a terminal, it fails unless
# YES=1 is set.
set -euo pipefail

mode=$1
what=$2
kubectl=${KUBECTL:-kubectl}

if ! command -v "$kubectl" >/dev/null; then
	echo "$kubectl was not found: install kubectl, or set KUBECTL=/path/to/kubectl" >&2
	exit 1
fi
if ! context=$("$kubectl" config current-context 2>/dev/null); then
	echo "No context is set: run 'kubectl config use-context', or set KUBECONFIG" >&2
	exit 1
fi
server=$("$kubectl" config view --minify -o 'jsonpath={.clusters[0].cluster.server}')

echo "$what the context $context ($server)"
if [[ $mode == name || ${YES:-} == 1 ]]; then
	exit 0
fi
if ! { exec 3<>/dev/tty; } 2>/dev/null; then
	echo "No terminal for the confirmation: run it in a terminal, or set YES=1" >&2
	exit 1
fi
printf 'Continue? [y/N] ' >&3
read -r answer <&3
case $answer in
y | Y | yes) ;;
*)
	echo "Canceled." >&2
	exit 1
	;;
esac
