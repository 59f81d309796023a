#!/usr/bin/env bash
# Runs the end-to-end tests. They require Linux, root, and the programs of a container
# runtime, which the distribution provides. Otherwise, it prints what is missing, and
# fails only with E2E_STRICT=1. Arguments are passed to go test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../test"

cannot() {
	echo "The end-to-end tests cannot run here: $1." >&2
	[[ ${E2E_STRICT:-} != 1 ]] || exit 1
	echo "They are skipped. Set E2E_STRICT=1 to fail instead." >&2
	exit 0
}

missing() {
	local plugin
	for program in runc iptables nsenter ip; do
		command -v "$program" >/dev/null || echo "$program"
	done
	for plugin in bridge host-local loopback; do
		[[ -x /usr/lib/cni/$plugin || -x /opt/cni/bin/$plugin ]] || echo "the CNI plugin $plugin"
	done
}

if [[ ${E2E_CLUSTER:-} != current ]]; then
	[[ $(uname -s) == Linux ]] || cannot "containers require Linux, but this is $(uname -s)"
	[[ $(id -u) == 0 ]] || cannot "namespaces and control groups require root, but this is $(id -un)"
	export PATH=$PATH:/usr/sbin:/sbin
	if [[ -n $(missing) ]] && command -v apt-get >/dev/null; then
		echo "Installing runc, containernetworking-plugins, iptables, iproute2 and util-linux"
		apt-get update -qq && apt-get install -y -qq --no-install-recommends \
			runc containernetworking-plugins iptables iproute2 util-linux || true
	fi
	[[ -z $(missing) ]] || cannot "missing: $(missing | paste -sd, | sed 's/,/, /g')"
	unshare --pid --mount --net --ipc --uts --fork true 2>/dev/null ||
		cannot "the kernel, or the container that this runs in, does not allow new namespaces"
	[[ -w /sys/fs/cgroup/memory || -w /sys/fs/cgroup/cgroup.procs ]] ||
		cannot "control groups below /sys/fs/cgroup cannot be created"
fi

# A round of leader faults takes two to three minutes. A cluster that is kept for
# debugging has no timeout.
timeout=${E2E_TIMEOUT:-$((30 + 4 * ${E2E_ROUNDS:-2}))m}
[[ -z ${E2E_HOLD:-} ]] || timeout=0
exec "${GO:-go}" test ./e2e -count=1 -parallel 4 -timeout "$timeout" "$@"
