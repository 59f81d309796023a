#!/usr/bin/env bash
# Generates everything that is generated in this repository: deep copies, apply
# configurations, CustomResourceDefinitions and the manager's ClusterRole.
#
#   hack/generate.sh           brings the tree up to date
#   hack/generate.sh --check   fails if the tree is not up to date
#
# It works on a copy of the tree. So a check leaves the tree alone, what has no
# source any more goes away, and nobody who builds at the same time sees half a
# result.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
controller_gen=${CONTROLLER_GEN:-$root/bin/controller-gen}

# What is generated as a whole: everything in there is written by the generator.
generated_dirs=(apis/v1alpha1/applyconfiguration config/crd/bases)
generated_files=(apis/v1alpha1/zz_generated.deepcopy.go config/rbac/role.yaml)

if [[ ! -x $controller_gen ]]; then
	echo "hack/generate.sh: $controller_gen is missing: run 'make generate', which builds it" >&2
	exit 2
fi

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

cd "$root"
for path in go.mod go.sum apis controllers cmd internal pkg; do
	[[ -e $path ]] && cp -r "$path" "$copy/"
done

cd "$copy"
rm -rf "${generated_dirs[@]}" "${generated_files[@]}"
"$controller_gen" object applyconfiguration crd \
	paths=./apis/... output:crd:dir=config/crd/bases

# Only packages with Go files can be loaded, and only markers make a role.
if grep -rqs --include='*.go' '+kubebuilder:rbac:' controllers; then
	"$controller_gen" rbac:roleName=manager-role \
		paths=./controllers/... output:rbac:dir=config/rbac
else
	mkdir -p config/rbac
	cp "$root/config/rbac/role.yaml" config/rbac/
fi

cd "$root"
if [[ ${1:-} == --check ]]; then
	stale=0
	for path in "${generated_dirs[@]}" "${generated_files[@]}"; do
		diff -ruN "$path" "$copy/$path" || stale=1
	done
	if ((stale)); then
		echo >&2
		echo "Generated files are stale: run 'make generate' and commit what it changes." >&2
		exit 1
	fi
	exit 0
fi

for dir in "${generated_dirs[@]}"; do
	# Unchanged files keep their times, so that make and editors stay calm.
	(cd "$copy" && find "$dir" -type f) | while read -r file; do
		if ! cmp -s "$copy/$file" "$file"; then
			mkdir -p "$(dirname "$file")"
			cp "$copy/$file" "$file"
		fi
	done
	find "$dir" -type f | while read -r file; do
		if [[ ! -e $copy/$file ]]; then rm "$file"; fi
	done
	find "$dir" -type d -empty -delete
done
for file in "${generated_files[@]}"; do
	if ! cmp -s "$copy/$file" "$file"; then cp "$copy/$file" "$file"; fi
done
