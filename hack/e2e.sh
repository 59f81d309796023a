#!/usr/bin/env bash
# Runs the end-to-end tests. They need Linux, root, and programs of the distribution, which
# are installed with apt-get if they are missing. Where the tests cannot run, the script
# prints why and exits with code 0, or with code 1 if E2E_STRICT=1. Arguments are passed to
# go test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../test"

cannot() {
	echo "The end-to-end tests cannot run here: $1." >&2
	[[ ${E2E_STRICT:-} != 1 ]] || exit 1
	echo "They are skipped. With E2E_STRICT=1 this is a failure." >&2
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
	[[ $(uname -s) == Linux ]] || cannot "a node needs Linux, and this is $(uname -s)"
	[[ $(id -u) == 0 ]] || cannot "namespaces and control groups need root, and this is $(id -un)"
	export PATH=$PATH:/usr/sbin:/sbin
	if [[ -n $(missing) ]] && command -v apt-get >/dev/null; then
		echo "Installing runc, containernetworking-plugins, iptables, iproute2 and util-linux"
		# As in hack/need.sh: a new machine may be in the middle of updates of its own.
		apt=(apt-get -qq -o DPkg::Lock::Timeout=600)
		"${apt[@]}" update && DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y --no-install-recommends \
			runc containernetworking-plugins iptables iproute2 util-linux || true
	fi
	[[ -z $(missing) ]] || cannot "missing: $(missing | paste -sd, | sed 's/,/, /g')"
	unshare --pid --mount --net --ipc --uts --fork true 2>/dev/null ||
		cannot "the kernel or the surrounding container does not allow new namespaces"
	[[ -w /sys/fs/cgroup/memory || -w /sys/fs/cgroup/cgroup.procs ]] ||
		cannot "/sys/fs/cgroup is not writable"
fi

# A round of leader faults takes two to three minutes. With E2E_HOLD there is no limit.
timeout=${E2E_TIMEOUT:-$((30 + 4 * ${E2E_ROUNDS:-2}))m}
[[ -z ${E2E_HOLD:-} ]] || timeout=0
exec "${GO:-go}" test ./e2e -count=1 -parallel 4 -timeout "$timeout" "$@"
