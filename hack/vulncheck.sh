#!/usr/bin/env bash
# Runs govulncheck on the programs and libraries of the project, and on the program that
# builds releases. It fails if they reach a known vulnerability.
#
#   hack/vulncheck.sh            prints a message if the database cannot be reached
#   hack/vulncheck.sh --strict   fails if the database cannot be reached: for releases
#
# GOVULNDB is the URL of another database, such as a mirror, or file:///path of a copy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

govulncheck=${GOVULNCHECK:-$PWD/bin/govulncheck}
database=${GOVULNDB:-https://vuln.go.dev}
found=3 # the exit code of govulncheck for vulnerabilities

for module in . hack/image; do
	echo "govulncheck of $module with the database $database"
	code=0
	output=$("$govulncheck" -C "$module" -db "$database" ./... 2>&1) || code=$?
	echo "$output"
	((code != 0)) || continue
	if ((code == found)) || ! grep -Eq 'fetching vulnerabilities|creating client' <<<"$output"; then
		exit 1
	fi
	echo "govulncheck did NOT run: the database $database cannot be reached. Set GOVULNDB to a mirror or to a copy (file:///path)." >&2
	[[ ${1:-} != --strict ]] || exit 1
	exit 0
done
