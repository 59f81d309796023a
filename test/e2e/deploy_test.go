package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

const (
	// systemNamespace and managerName are defined in config/default.
	systemNamespace = "fixpoint-system"
	managerName     = "fixpoint-controller-manager"
	managerReplicas = 3
	// cloudNamespace contains the fake cloud.
	cloudNamespace = "fixpoint-e2e-cloud"
	cloudName      = "fake-cloud"
	deployTime     = 3 * time.Minute
)

// overlay is config/default with the fake cloud in place of Azure, and with the image that the nodes have. The
// node of the tests does not account for ephemeral storage (test/node/config/kubelet.yaml). Each replica has its
// own token, so that the cloud's ledger identifies it. All namespaces may use it in the demo of the fake cloud.
const overlay = `resources:
- ../default
components:
- ../session-keys
- ../contract-gates
patches:
- target:
    kind: Deployment
    name: fixpoint-controller-manager
  patch: |-
    - op: replace
      path: /spec/template/spec/containers/0/imagePullPolicy
      value: IfNotPresent
    - op: remove
      path: /spec/template/spec/containers/0/resources/requests/ephemeral-storage
    - op: remove
      path: /spec/template/spec/containers/0/resources/limits/ephemeral-storage
    - op: add
      path: /spec/template/spec/containers/0/args/-
      value: --cloud-endpoint=http://fake-cloud.fixpoint-e2e-cloud.svc:7443
    - op: add
      path: /spec/template/spec/containers/0/args/-
      value: --cloud-token-file=/cloud/token
    - op: add
      path: /spec/template/spec/containers/0/args/-
      value: --ambient-credentials=*=/subscriptions/` + fakecloud.DemoSubscription + `
- target:
    kind: Deployment
    name: fixpoint-controller-manager
  patch: |-
    apiVersion: apps/v1
    kind: Deployment
    metadata:
      name: fixpoint-controller-manager
    spec:
      template:
        spec:
          initContainers:
          - name: token
            image: ` + subjectImage + `
            args: [token]
            env:
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            - {name: TOKEN, value: fakecloud:$(POD_NAME)}
            - {name: TOKEN_FILE, value: /cloud/token}
            volumeMounts:
            - {name: cloud, mountPath: /cloud}
            securityContext:
              allowPrivilegeEscalation: false
              readOnlyRootFilesystem: true
              capabilities: {drop: [ALL]}
          containers:
          - name: manager
            volumeMounts:
            - {name: cloud, mountPath: /cloud, readOnly: true}
          volumes:
          - name: cloud
            emptyDir: {}
`

// samplesOverlay is config/samples without ephemeral storage, for the same reason, and with images that the nodes have.
const samplesOverlay = `resources:
- ../samples
patches:
- target: {kind: AppService|MCPServer}
  patch: |-
    - op: remove
      path: /spec/resources/requests/ephemeral-storage
    - op: remove
      path: /spec/resources/limits/ephemeral-storage
    - op: replace
      path: /spec/imagePullPolicy
      value: IfNotPresent
`

// cloudManifest deploys the fake cloud. Its state survives a restart of the container.
const cloudManifest = `apiVersion: v1
kind: Namespace
metadata:
  name: fixpoint-e2e-cloud
  labels:
    pod-security.kubernetes.io/enforce: restricted
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: fake-cloud
  namespace: fixpoint-e2e-cloud
spec:
  strategy: {type: Recreate}
  selector:
    matchLabels: {app: fake-cloud}
  template:
    metadata:
      labels: {app: fake-cloud}
    spec:
      automountServiceAccountToken: false
      securityContext:
        runAsNonRoot: true
        seccompProfile: {type: RuntimeDefault}
      containers:
      - name: fake-cloud
        image: ` + cloudImage + `
        command: [/fake-cloud, --listen=:7443, --demo, --state=/state/cloud.json]
        ports:
        - containerPort: 7443
        readinessProbe:
          tcpSocket: {port: 7443}
          periodSeconds: 1
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {drop: [ALL]}
        volumeMounts:
        - {name: state, mountPath: /state}
      volumes:
      - name: state
        emptyDir: {}
---
apiVersion: v1
kind: Service
metadata:
  name: fake-cloud
  namespace: fixpoint-e2e-cloud
spec:
  selector: {app: fake-cloud}
  ports:
  - port: 7443
---
# No controller serves this class; it is the default of Ingresses without a class, as on most clusters.
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata:
  name: fixpoint-e2e
  annotations:
    ingressclass.kubernetes.io/is-default-class: "true"
spec:
  controller: fixpoint.dev/none
`

// deploy deploys the fake cloud and the manager, like make deploy, and waits until all replicas are ready.
func deploy(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, deployTime)
	defer cancel()
	progress("deploying the fake cloud and the manager")
	image := projectImage
	if given := os.Getenv(imageVariable); given != "" {
		image = given
	}
	if err := kubectl(ctx, cloudManifest, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	if err := copyConfig(ctx, dir, image); err != nil {
		return err
	}
	if err := applyOverlay(ctx, "e2e", overlay); err != nil {
		return err
	}
	if err := available(ctx, cloudNamespace, cloudName, 1); err != nil {
		return err
	}
	if err := available(ctx, systemNamespace, managerName, managerReplicas); err != nil {
		return err
	}
	progress("the manager is deployed")
	return nil
}

// copyConfig copies config/ and sets the image in the copy.
func copyConfig(ctx context.Context, dir, image string) error {
	if err := command(ctx, ".", "cp", "-r", "../../config", dir); err != nil {
		return err
	}
	configs = filepath.Join(dir, "config")
	path := filepath.Join(configs, "manager", "kustomization.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("setting the image: %w", err)
	}
	var kustomization map[string]any
	if err := yaml.Unmarshal(content, &kustomization); err != nil {
		return fmt.Errorf("setting the image: %w", err)
	}
	name, tag := image, ""
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		name, tag = image[:at], image[at+1:]
	}
	kustomization["images"] = []map[string]string{{"name": "controller", "newName": name, "newTag": tag}}
	if content, err = yaml.Marshal(kustomization); err != nil {
		return fmt.Errorf("setting the image: %w", err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("setting the image: %w", err)
	}
	return nil
}

// configs is the path of the copy of config/.
var configs string

// applyOverlay writes a kustomization into the copy and applies it.
func applyOverlay(ctx context.Context, name, content string) error {
	dir := filepath.Join(configs, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing the overlay: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(content), 0o644); err != nil {
		return fmt.Errorf("writing the overlay: %w", err)
	}
	return kubectl(ctx, "", "apply", "--server-side", "-k", dir)
}

// kubectl runs the kubectl of the cluster under test.
func kubectl(ctx context.Context, input string, args ...string) error {
	program, config := "kubectl", os.Getenv("KUBECONFIG")
	if local != nil {
		var err error
		program = local.Cluster.Kubectl()
		if config, err = local.Cluster.Kubeconfig("admin", "system:masters"); err != nil {
			return err
		}
	}
	if config != "" {
		args = append([]string{"--kubeconfig=" + config}, args...)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// available waits until a Deployment has exactly the desired pods.
func available(ctx context.Context, namespace, name string, replicas int32) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = isAvailable(ctx, namespace, name, replicas)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for Deployment %s/%s: %w", namespace, name, last)
	}
	return nil
}

func isAvailable(ctx context.Context, namespace, name string, replicas int32) error {
	var deployment appsv1.Deployment
	if err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &deployment); err != nil {
		return err
	}
	status := deployment.Status
	if status.ObservedGeneration != deployment.Generation || status.Replicas != replicas ||
		status.UpdatedReplicas != replicas || status.AvailableReplicas != replicas {
		return fmt.Errorf("want %d available pods, have %+v", replicas, status)
	}
	return nil
}
