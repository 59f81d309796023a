#!/usr/bin/env bash
# Generates all generated files: deep copies, apply configurations, the schemas of the
# kinds of Kubernetes that are applied, CustomResourceDefinitions, a ClusterRole for
# each controller, from the manifests the Roles of a namespaced installation,
# dist/install.yaml and the files of the Helm chart, and the bundle of the console's
# pages.
#
#   hack/generate.sh           updates the files
#   hack/generate.sh --check   fails if a file is stale
#
# It works on a copy of the tree, so that a check does not modify the tree, obsolete
# files are deleted, and concurrent builds do not see incomplete results.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
controller_gen=${CONTROLLER_GEN:-$root/bin/controller-gen}
kustomize=${KUSTOMIZE:-$root/bin/kustomize}

# Directories and files that contain only generated content.
generated_dirs=(apis/v1beta1/applyconfiguration config/crd/bases config/rbac/manager/roles
	config/namespaced/access/roles charts/fixpoint/files examples/{website,applicationnamespace}/config/crd
	internal/console/web/dist)
generated_files=(apis/v1alpha1/zz_generated.deepcopy.go apis/v1beta1/zz_generated.deepcopy.go dist/install.yaml
	internal/kubeschema/schema.yaml
	examples/{website,applicationnamespace}/api/v1/zz_generated.deepcopy.go)

for tool in "$controller_gen" "$kustomize"; do
	if [[ ! -x $tool ]]; then
		echo "hack/generate.sh: $tool is missing: run 'make generate', which builds it" >&2
		exit 2
	fi
done

if ! command -v npm >/dev/null; then
	echo "hack/generate.sh: npm is missing, which fetches the packages of the console: install Node.js 20 or newer with npm" >&2
	exit 2
fi

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

cd "$root"
# The npm packages of the console, unless those of the lock file are installed.
web=internal/console/web
if ! cmp -s $web/package-lock.json $web/node_modules/.fixpoint-lock; then
	(cd $web && npm ci --ignore-scripts --no-audit --no-fund && cp package-lock.json node_modules/.fixpoint-lock)
fi
(cd hack/web && go build -o "$copy/bundle" .)

for path in go.mod go.sum apis controllers cmd internal pkg config charts examples hack/crds hack/kubeschema; do
	mkdir -p "$copy/$(dirname "$path")"
	[[ -e $path ]] && cp -r "$path" "$copy/$path"
done

cd "$copy"
rm -rf "${generated_dirs[@]}" "${generated_files[@]}"
"$controller_gen" object applyconfiguration crd \
	paths=./apis/... output:crd:dir=config/crd/bases

# The examples are modules of their own.
for example in examples/*/; do
	(cd "$example" && "$controller_gen" object crd paths=./api/... output:crd:dir=config/crd)
done

go run ./hack/kubeschema >internal/kubeschema/schema.yaml
go run ./hack/crds config/crd/bases/*.yaml examples/*/config/crd/*.yaml

# without_cluster_scope converts the ClusterRole of a controller to the Role of a manager
# without permissions on cluster-scoped resources (--no-cluster-rights).
without_cluster_scope() {
	awk -v cluster_scoped='^  - (ingressclasses|customresourcedefinitions|gateways)$' '
		function flush() {
			if (rule != "" && resources > 0) printf "%s", rule
			rule = ""; resources = 0
		}
		/^- apiGroups:$/ { flush(); in_rules = 1 }
		!in_rules { sub(/^kind: ClusterRole$/, "kind: Role"); print; next }
		/^  [a-zA-Z]+:$/ { part = $1 }
		part == "resources:" && $0 ~ cluster_scoped { next }
		part == "resources:" && /^  - / { resources++ }
		{ rule = rule $0 "\n" }
		END { flush() }'
}

# A role for each controller, so that the permissions of the manager follow --controllers.
mkdir -p config/rbac/manager/roles config/namespaced/access/roles
for package in controllers/*/; do
	controller=$(basename "$package")
	grep -qs -- '+kubebuilder:rbac:' "$package"*.go || continue
	"$controller_gen" rbac:roleName="manager-$controller-role",fileName="$controller.yaml" \
		paths="./$package..." output:rbac:dir=config/rbac/manager/roles
	without_cluster_scope <"config/rbac/manager/roles/$controller.yaml" >"config/namespaced/access/roles/$controller.yaml"
done

# Files of the chart that are copied from config/.
chart=charts/fixpoint/files
mkdir -p $chart/{crds,manager-roles,namespaced-manager-roles,policies,user-roles} dist
cp config/crd/bases/*.yaml $chart/crds/
cp config/rbac/manager/roles/*.yaml $chart/manager-roles/
cp config/namespaced/access/roles/*.yaml $chart/namespaced-manager-roles/
cp config/rbac/hash_key_role.yaml config/rbac/leader_election_role.yaml config/rbac/metrics_auth_role.yaml config/rbac/metrics_reader_role.yaml \
	config/rbac/manager/releases_role.yaml config/rbac/webhook_role.yaml config/rbac/webhook_definitions_role.yaml config/workload-identity/workload_identity_role.yaml \
	config/account-keys/account_keys_role.yaml config/session-keys/session_keys_role.yaml \
	config/contract-gates/contract_gates_role.yaml $chart/
cp config/namespace-selector/role.yaml $chart/namespace_selector_role.yaml
cp config/policies/{annotations,hosts,service_accounts}.yaml $chart/policies/
cp config/rbac/*_{admin,editor,viewer}_role.yaml $chart/user-roles/
cp config/prometheus/alerts.yaml $chart/
cp config/grafana/dashboard.json $chart/

{
	echo "# Generated by \`make generate\` from config/default. Install it with"
	echo "#   kubectl apply --server-side -f install.yaml"
	"$kustomize" build config/default
} >dist/install.yaml

"$copy/bundle" -source $web -out $web/dist

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
	mkdir -p "$dir"
	# Unchanged files keep their modification times, for make and editors.
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
	mkdir -p "$(dirname "$file")"
	if ! cmp -s "$copy/$file" "$file"; then cp "$copy/$file" "$file"; fi
done
