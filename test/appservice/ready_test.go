package appservice_test

import (
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// kubectl runs it as an administrator and returns what it prints.
func (w *fixture) kubectl(args ...string) string {
	w.T.Helper()
	kubeconfig, err := shared.Kubeconfig(cluster.Admin, cluster.Masters)
	w.Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(w.T.Context(), shared.Kubectl(), append([]string{"--kubeconfig=" + kubeconfig, "--namespace=" + w.Namespace}, args...)...)
	cmd.Env = []string{"HOME=" + w.T.TempDir(), "PATH=/usr/bin:/bin"}
	output, err := cmd.CombinedOutput()
	w.Expect(err).NotTo(HaveOccurred(), "kubectl %s:\n%s", strings.Join(args, " "), output)
	return string(output)
}

func TestBecomesReady(t *testing.T) {
	w := newManagedFixture(t)
	versions := harness.Versions[*v1beta1.AppService](w, &v1beta1.AppServiceList{}, "web")
	configs := harness.Versions[*corev1.ConfigMap](w, &corev1.ConfigMapList{}, "web")
	services := harness.Versions[*corev1.Service](w, &corev1.ServiceList{}, "web")
	deployments := harness.Versions[*appsv1.Deployment](w, &appsv1.DeploymentList{}, "web")

	// When an AppService with config and three pods is created
	w.create("web", replicas(3), config("GREETING", "hello"))
	w.kubectl("wait", "--for=condition=Ready", "appservice/web", "--timeout=3m")
	app := w.ready("web")

	// Then its status says so,
	w.Expect(conditions(app)).To(Equal(map[string]string{
		"Ready":           "True Ready",
		"ConfigReady":     "True Ready",
		"ServiceReady":    "True Ready",
		"DeploymentReady": "True Ready",
	}))
	for _, c := range app.Status.Conditions {
		w.Expect(c.ObservedGeneration).To(Equal(app.Generation), c.Type)
		w.Expect(c.Message).NotTo(BeEmpty(), c.Type)
	}
	w.Expect(app.Status.ObservedGeneration).To(Equal(app.Generation))
	w.Expect(app.Status.Phase).To(Equal(v1beta1.PhaseRunning))
	w.Expect(app.Status.URL).To(Equal("http://web." + w.Namespace + ".svc:8080"))
	w.Expect(app.Status.Replicas).To(BeEquivalentTo(3))
	w.Expect(app.Status.ReadyReplicas).To(BeEquivalentTo(3))
	w.Expect(app.Status.Selector).To(Equal("app.kubernetes.io/name=web"))
	w.Expect(app.Status.Drifts).To(BeEmpty())
	w.Expect(app.Finalizers).To(ConsistOf("fixpoint.dev/teardown"))

	// and took few writes to get there,
	w.Settled()
	w.Expect(configs()).To(HaveLen(1))
	w.Expect(services()).To(HaveLen(1))
	w.Expect(deployments()).To(HaveEach(HaveField("Generation", BeEquivalentTo(1))))
	w.tookFewWrites(w.Requests(w.Began).Writes())

	// and kstatus was right all the way,
	var course []string
	for _, version := range versions() {
		status := kstatus(version)
		if len(version.Status.Conditions) == 0 {
			w.Expect(status).To(Equal("InProgress"), "the manager has not reported yet")
		} else if conditions(version)["Ready"] == "True Ready" {
			w.Expect(status).To(Equal("Current"))
			w.Expect(version.Status.ReadyReplicas).To(BeEquivalentTo(3), "Ready means that all pods are")
		} else {
			w.Expect(conditions(version)).To(HaveKeyWithValue("Reconciling", HavePrefix("True ")))
		}
		if len(course) == 0 || course[len(course)-1] != status {
			course = append(course, status)
		}
	}
	w.Expect(course).To(Equal([]string{"InProgress", "Current"}))

	// and kubectl shows what people look for.
	lines := strings.Split(strings.TrimSpace(w.kubectl("get", "asvc")), "\n")
	w.Expect(strings.Fields(lines[0])).To(Equal([]string{"NAME", "READY", "REASON", "PODS", "URL", "AGE"}))
	w.Expect(strings.Fields(lines[1])[:5]).To(Equal([]string{"web", "True", "Ready", "3", app.Status.URL}))
	wide := strings.Fields(w.kubectl("get", "fixpoint", "-o", "wide", "--no-headers"))
	w.Expect(wide).To(ContainElements("Running", image))
}

// tookFewWrites is about those from nothing to Ready. A manager that reads a stale cache may need more.
func (w *fixture) tookFewWrites(writes cluster.Requests) {
	w.T.Helper()
	w.T.Logf("writes from nothing to Ready: %d", len(writes))
	for _, write := range writes {
		w.Expect(write.FieldManager()).To(Equal("fixpoint-appservice"), "%s", write)
	}
	if w.ReadsStale() {
		return
	}
	w.Expect(writes.Succeeded()).To(HaveLen(len(writes)), "%s", writes)
	ofStatus := writes.Where(func(r cluster.Request) bool { return r.Subresource == "status" })
	w.Expect(len(writes)-len(ofStatus)).To(Equal(4), "the finalizer and three children:\n%s", writes)
	// A rollout that takes longer than the first report waits is reported then, after each further interval, and when
	// it ends.
	atMost, took := 1, ofStatus[len(ofStatus)-1].Received.Sub(writes[0].Received)
	if took > workload.ReportInterval {
		atMost = 2 + int((took-workload.ReportInterval)/phases.ProgressInterval)
	}
	w.Expect(len(ofStatus)).To(BeNumerically("<=", atMost), "writes from nothing to Ready:\n%s", writes)
}

func TestEmitsOneEventOnTheWayToReady(t *testing.T) {
	w := newManagedFixture(t)

	w.createReady("web", config("GREETING", "hello"))

	w.Eventually(func() []string { return w.events("web") }).Should(ContainElement("Normal Ready Ready is True: all phases are ready"))
	w.Settled()
	w.Expect(w.events("web")).To(ConsistOf("Normal Ready Ready is True: all phases are ready"))
}

// declaration is a child, and what of it has to read as given in YAML, the API server's defaults
// included.
type declaration struct {
	child client.Object
	spec  any
	want  string
}

func TestChildrenAreExactlyAsDeclared(t *testing.T) {
	w := newManagedFixture(t)

	app := w.createReady("web", everything)

	children := map[string]declaration{}
	configMap := harness.Read(w, "web", &corev1.ConfigMap{})
	children["ConfigMap"] = declaration{configMap, configMap.Data, `{GREETING: hello}`}
	service := harness.Read(w, "web", &corev1.Service{})
	service.Spec.ClusterIP, service.Spec.ClusterIPs = "", nil
	children["Service"] = declaration{service, service.Spec, `
ports: [{name: http, port: 8080, protocol: TCP, targetPort: http}]
selector: {app.kubernetes.io/name: web}
internalTrafficPolicy: Cluster
ipFamilies: [IPv4]
ipFamilyPolicy: SingleStack
sessionAffinity: None
type: ClusterIP`}
	deployment := w.deployment("web")
	w.Expect(deployment.Spec.Template.Annotations).To(HaveKeyWithValue("fixpoint.dev/config-hash", HaveLen(16)))
	deployment.Spec.Template.Annotations = nil
	children["Deployment"] = declaration{deployment, deployment.Spec, `
replicas: 2
progressDeadlineSeconds: 600
revisionHistoryLimit: 10
selector: {matchLabels: {app.kubernetes.io/name: web}}
strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 0}}
template:
  metadata:
    labels: {app.kubernetes.io/name: web, app.kubernetes.io/managed-by: fixpoint}
  spec:
    automountServiceAccountToken: false
    containers:
    - name: app
      image: registry.test/shop:1
      imagePullPolicy: IfNotPresent
      ports: [{name: http, containerPort: 8080, protocol: TCP}]
      env: [{name: MODE, value: fast}]
      envFrom: [{configMapRef: {name: web}}]
      resources: {}
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      terminationMessagePath: /dev/termination-log
      terminationMessagePolicy: File
    dnsPolicy: ClusterFirst
    restartPolicy: Always
    schedulerName: default-scheduler
    securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
    terminationGracePeriodSeconds: 30`}
	autoscaler := harness.Read(w, "web", &autoscalingv2.HorizontalPodAutoscaler{})
	children["HorizontalPodAutoscaler"] = declaration{autoscaler, autoscaler.Spec, `
scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
minReplicas: 2
maxReplicas: 5
metrics:
- {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}
- {type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 90}}}`}
	budget := harness.Read(w, "web", &policyv1.PodDisruptionBudget{})
	children["PodDisruptionBudget"] = declaration{budget, budget.Spec, `
maxUnavailable: 1
selector: {matchLabels: {app.kubernetes.io/name: web}}`}
	in := harness.Read(w, "web", &networkingv1.Ingress{})
	children["Ingress"] = declaration{in, in.Spec, `
ingressClassName: shared
rules:
- host: shop.example.com
  http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}`}

	for kind, c := range children {
		got, err := yaml.Marshal(c.spec)
		w.Expect(err).NotTo(HaveOccurred())
		w.Expect(got).To(MatchYAML(c.want), kind)
	}
	for kind, newObject := range childKinds {
		child := harness.Read(w, "web", newObject())
		w.Expect(child.GetLabels()).To(Equal(labels("web")), kind)
		w.Expect(child.GetOwnerReferences()).To(beOwnerReferenceTo(app), kind)
	}
	w.Expect(app.Status.URL).To(Equal("http://shop.example.com"))
	w.Expect(conditions(app)).To(And(
		HaveKeyWithValue("AutoscalingReady", HavePrefix("True ")),
		HaveKeyWithValue("DisruptionBudgetReady", "True Ready"),
		HaveKeyWithValue("IngressReady", "True Ready")))
}

func TestAutoscalerWithoutMetricsIsReportedAndReady(t *testing.T) {
	w := newManagedFixture(t)
	versions := harness.Versions[*v1beta1.AppService](w, &v1beta1.AppServiceList{}, "web")

	// The cluster has no metrics server.
	w.create("web", autoscaled(2, 4))

	app := w.shows("web", "AutoscalingReady", "True ScalingInactive", ContainSubstring("set spec.resources.requests and install metrics-server"))
	w.Expect(w.ready("web").Status.Phase).To(Equal(v1beta1.PhaseRunning))
	w.Expect(app.Status.ReadyReplicas).To(BeEquivalentTo(2), "the autoscaler keeps to its minimum all the same")
	w.Expect(w.deployment("web").Spec.Replicas).To(HaveValue(BeEquivalentTo(2)))

	// What is Ready has as many pods as its spec declares at the least: not the one that a Deployment
	// begins with, nor those of before an edit.
	w.Expect(w.changeReady("web", autoscaled(3, 4)).Status.ReadyReplicas).To(BeEquivalentTo(3))
	for _, version := range versions() {
		if version.Status.ObservedGeneration == version.Generation && conditions(version)["Ready"] == "True Ready" {
			w.Expect(version.Status.ReadyReplicas).To(BeNumerically(">=", version.Spec.Autoscaling.MinReplicas), "generation %d", version.Generation)
		}
	}
}

func TestReportsAutoscalerDisabledByScalingToZero(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", autoscaled(2, 4))

	w.kubectl("scale", "deployment", "web", "--replicas=0")

	app := w.shows("web", "AutoscalingReady", "False ScalingInactive", ContainSubstring("kubectl scale deployment web --replicas=2"))
	w.Expect(conditions(app)).To(HaveKeyWithValue("Ready", "False ScalingInactive"))

	w.kubectl("scale", "deployment", "web", "--replicas=2")
	w.Expect(w.ready("web").Status.ReadyReplicas).To(BeEquivalentTo(2))
}
