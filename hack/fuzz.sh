#!/usr/bin/env bash
# Runs each fuzz target of the module for FUZZTIME, as many at a time as there are processors. An input that
# fails is written to testdata/fuzz of its package: commit it with the fix, and it is a test from then on.
# Minimizing an input ends after 100 runs: by default it takes a minute, most of the time of a run. Inputs that
# reach new code are kept in bin/fuzz, from which the next run continues.
#
# Only the code that the inputs are for is instrumented, and the libraries that read them for it. With -fuzz, go test
# instruments all packages: the engine reads 340,000 counters after each input then, which takes longer than most
# targets, and counts code that runs beside them as new.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=${GO:-go}
time=${FUZZTIME:-30s}
mkdir -p bin/fuzz/corpus

instrumented=()
for packages in github.com/fixpoint-dev/fixpoint/... github.com/Azure/azure-sdk-for-go/... github.com/modelcontextprotocol/... \
	github.com/go-jose/... sigs.k8s.io/structured-merge-diff/... encoding/json net/url; do
	instrumented+=("-gcflags=$packages=-d=libfuzzer")
done

targets=$(mktemp)
trap 'rm -f "$targets"' EXIT
for package in $(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do
	binary=$PWD/bin/fuzz/${package//\//-}.test
	"$go" test -c -vet=off "${instrumented[@]}" -o "$binary" "./$package"
	listed=$(cd "$package" && "$binary" -test.list '^Fuzz')
	for target in $listed; do
		echo "$package $binary $target" >>"$targets"
	done
done

# fuzz runs one target, and prints its last line, or everything if it fails.
fuzz() {
	local package=$1 binary=$2 target=$3 corpus=$PWD/bin/fuzz/corpus output
	cd "$package"
	if ! output=$("$binary" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" -test.fuzzminimizetime 100x -test.fuzzcachedir "$corpus" -test.parallel 1 2>&1); then
		# Before version 1.27, Go may report the end of the time as a failure (go.dev/issue/75804), without an input.
		if [[ $(grep -A 1 '^--- FAIL: ' <<<"$output" | tail -n 1) != '    context deadline exceeded' ]]; then
			echo "$output"
			echo "$package $target: FAILED" >&2
			return 1
		fi
	fi
	echo "$package $target: $(grep '^fuzz: ' <<<"$output" | tail -n 1)"
}
export -f fuzz
export time
xargs -P "$(nproc)" -L 1 bash -c 'set -euo pipefail; fuzz "$@"' fuzz <"$targets"
echo "$(wc -l <"$targets") targets, $time each: no failure"
