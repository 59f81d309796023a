package harness

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// Root is the folder of the project, as seen from a package two folders below it.
const Root = "../.."

const (
	// ManagerUser is the user as which the API server, its RBAC and its audit log know the manager.
	ManagerUser = "fixpoint-manager"
	// ManagerGroup has the rights of the manager and those on Leases, for tests with several managers.
	ManagerGroup = "fixpoint-managers"
)

const (
	// Timeout is how long [Eventually] and Gomega's own wait by default. What works takes seconds on an idle machine,
	// and far longer in the background of a busy one, where make test runs most suites.
	Timeout = 10 * time.Minute
	// Interval is the pause between two checks of what is waited for. Each check is a request, and ten
	// tests at a time that check more often cost the API server more than the manager does.
	Interval = 100 * time.Millisecond
)

// Suite is what all tests of a package share.
type Suite struct {
	Cluster *cluster.Cluster
	// API is an administrator's client.
	API       client.WithWatch
	verbosity int
	// audited says whether the API server records requests.
	audited bool
	// controlled says whether the controller manager runs, which creates service accounts.
	controlled bool
}

// Options of a suite.
type Options struct {
	// Cluster is what the cluster consists of. The CRDs of the project are installed unless CRDPaths
	// names others.
	Cluster cluster.Options
	// Parallel is how many tests run at the same time, unless the command line says otherwise. Tests
	// wait far more than they compute.
	Parallel int
	// Timeout replaces [Timeout].
	Timeout time.Duration
	// Verbosity is that of the managers' logs. The default is 1, which is all that the controllers log;
	// libraries log more.
	Verbosity int
}

// Run runs the tests of a package against one cluster, on which the manager has its rights, and exits
// with their result. Before the first test, use is given the suite.
func Run(tests interface{ Run() int }, o Options, use func(*Suite) error) {
	Prepare(o)
	if len(o.Cluster.CRDPaths) == 0 {
		o.Cluster.CRDPaths = []string{filepath.Join(Root, "config", "crd", "bases")}
	}
	cluster.RunTests(tests, o.Cluster, func(c *cluster.Cluster) {
		suite, err := newSuite(c, o)
		Must(err)
		Must(Grant(context.Background(), suite.API))
		Must(use(suite))
	})
}

// Prepare sets what holds for the whole process: no logs but those that a test records, and how long
// and how often tests wait.
func Prepare(o Options) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // client-go logs every watch that ends with a stopped manager
	timeout := cmp.Or(o.Timeout, Timeout)
	gomega.SetDefaultEventuallyTimeout(timeout)
	gomega.SetDefaultEventuallyPollingInterval(Interval)
	gomega.SetDefaultConsistentlyPollingInterval(Interval)
	if o.Parallel > 0 {
		Must(flag.Set("test.parallel", strconv.Itoa(o.Parallel))) // the command line is parsed later
	}
}

func newSuite(c *cluster.Cluster, o Options) (*Suite, error) {
	api, err := client.NewWithWatch(c.Admin(), client.Options{Scheme: controllers.NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("creating the administrator's client: %w", err)
	}
	return &Suite{Cluster: c, API: api, verbosity: max(1, o.Verbosity), audited: o.Cluster.Audit, controlled: o.Cluster.Parts == cluster.All}, nil
}

// Must ends the process with an error, before any test runs.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Grant creates the roles that are shipped for the manager and binds them: those of the controllers, of
// workload identities, of metrics, of the webhook and of the key of hashes to [ManagerUser] and [ManagerGroup], those on Leases to
// the group alone. Roles of a namespace become roles of the cluster, since each test has namespaces of its own.
func Grant(ctx context.Context, api client.Client) error {
	group := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: ManagerGroup}
	user := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: ManagerUser}
	files, err := filepath.Glob(filepath.Join(Root, "config", "rbac", "manager", "roles", "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("finding the roles of the controllers: %w", cmp.Or(err, fs.ErrNotExist))
	}
	subjects := map[string][]rbacv1.Subject{
		filepath.Join(Root, "config", "rbac", "metrics_auth_role.yaml"):                   {user, group},
		filepath.Join(Root, "config", "rbac", "hash_key_role.yaml"):                       {user, group},
		filepath.Join(Root, "config", "rbac", "leader_election_role.yaml"):                {group},
		filepath.Join(Root, "config", "rbac", "webhook_role.yaml"):                        {user, group},
		filepath.Join(Root, "config", "rbac", "webhook_definitions_role.yaml"):            {user, group},
		filepath.Join(Root, "config", "rbac", "manager", "releases_role.yaml"):            {group},
		filepath.Join(Root, "config", "namespace-selector", "role.yaml"):                  {group},
		filepath.Join(Root, "config", "workload-identity", "workload_identity_role.yaml"): {user, group},
		filepath.Join(Root, "config", "account-keys", "account_keys_role.yaml"):           {user, group},
		filepath.Join(Root, "config", "session-keys", "session_keys_role.yaml"):           {user, group},
		filepath.Join(Root, "config", "contract-gates", "contract_gates_role.yaml"):       {user, group},
	}
	for _, file := range files {
		subjects[file] = []rbacv1.Subject{user, group}
	}
	for file, subjects := range subjects {
		role, err := readRole(file)
		if err != nil {
			return err
		}
		for _, object := range []client.Object{role, bind(role.Name, subjects)} {
			if err := api.Create(ctx, object); err != nil {
				return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
			}
		}
	}
	return nil
}

func readRole(file string) (*rbacv1.ClusterRole, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading a role: %w", err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(content, role); err != nil {
		return nil, fmt.Errorf("parsing %s: %w", file, err)
	}
	role.TypeMeta, role.Namespace = metav1.TypeMeta{}, ""
	return role, nil
}

func bind(role string, subjects []rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   subjects,
	}
}
