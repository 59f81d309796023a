package plugin

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/buildinfo"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

func TestArgumentsNameObjects(t *testing.T) {
	for arguments, c := range map[string]struct {
		kinds int
		name  string
		err   string
	}{
		"":                         {kinds: 3},
		"appservice/web":           {kinds: 1, name: "web"},
		"asvc web":                 {kinds: 1, name: "web"},
		"AppServices.fixpoint.dev": {kinds: 1},
		"sst/invoices":             {kinds: 1, name: "invoices"},
		"appservice/":              {err: "names no object"},
		"appservice/web mcp":       {err: `unexpected argument "mcp"`},
		"deployment/web":           {err: `"deployment" is not a kind of Fixpoint: use one of appservice, mcpserver, securestorage`},
	} {
		t.Run(arguments, func(t *testing.T) {
			g := NewWithT(t)
			is, err := parseTarget(strings.Fields(arguments))
			if c.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(is.kinds).To(HaveLen(c.kinds))
			g.Expect(is.name).To(Equal(c.name))
		})
	}
}

func TestInvalidFlagsAreRefusedBeforeAnythingIsRead(t *testing.T) {
	for arguments, want := range map[string]string{
		"status -o table":                   "--output is \"table\": set json or yaml",
		"drift --since -1h":                 "--since is -1h0m0s: set a positive duration",
		"plan":                              "give one of KIND/NAME, -f FILE and --all",
		"plan appservice/web --all":         "give one of KIND/NAME, -f FILE and --all",
		"plan appservice/web --server-side": "--server-side requires -f FILE",
		"plan -f x appservice":              `unexpected argument "appservice" beside -f`,
		"plan --all --cloud-token-file x":   "--cloud-token-file requires --cloud-endpoint",
		"tree appservice":                   "no object is named: give it as KIND/NAME",
		"suspend appservice/web -A":         "unknown shorthand flag",
	} {
		t.Run(arguments, func(t *testing.T) {
			g := NewWithT(t)
			streams := testStreams()
			errs := &bytes.Buffer{}
			streams.ErrOut = errs
			code := Run(t.Context(), append(strings.Fields(arguments), "--server", "http://127.0.0.1:1"), streams)
			g.Expect(code).To(Equal(exitFailure))
			g.Expect(errs.String()).To(And(HavePrefix("error: "), ContainSubstring(want)))
		})
	}
}

// printed is what plan prints about an object that changes.
func printed(before, after client.Object) ([]string, error) {
	changes, err := diff(before, after)
	lines := make([]string, 0, len(changes))
	for _, change := range changes {
		lines = append(lines, change.String())
	}
	return lines, err
}

func TestDiffComparesItemsOfListsByTheirKeys(t *testing.T) {
	container := func(name, image string) corev1.Container { return corev1.Container{Name: name, Image: image} }
	with := func(containers ...corev1.Container) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "1", Annotations: map[string]string{ssa.RecordAnnotationPrefix + "x": "record"}}}
		d.Spec.Template.Spec.Containers = containers
		return d
	}
	const path = "spec.template.spec.containers"
	for name, c := range map[string]struct {
		before, after client.Object
		want          []string
	}{
		"nothing":        {with(container("a", "1")), with(container("a", "1")), []string{}},
		"an item":        {with(container("a", "1"), container("b", "1")), with(container("b", "2"), container("a", "1")), []string{`~ ` + path + `[name=b].image: "1" -> "2"`}},
		"a new item":     {with(container("a", "1")), with(container("a", "1"), container("b", "")), []string{`+ ` + path + `[name=b].name: "b"`}},
		"a removed item": {with(container("a", "1"), container("b", "")), with(container("a", "1")), []string{`- ` + path + `[name=b].name: "b"`}},
		"a created object has no allocated fields": {nil, &corev1.Service{Spec: corev1.ServiceSpec{
			ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30000}},
		}}, []string{`+ spec.ports[name=http].name: "http"`, `+ spec.ports[name=http].port: 80`, `+ spec.ports[name=http].targetPort: 0`}},
	} {
		t.Run(name, func(t *testing.T) {
			lines, err := printed(c.before, c.after)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(lines).To(Equal(c.want))
		})
	}
}

func TestManagerFlagsExpandTheEnvironment(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "system"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{
		{Name: "proxy", Args: []string{"--bridge-image=wrong"}},
		{Name: "manager", Args: []string{"--leader-elect", "--bridge-image=$(IMAGE)", "--leader-election-namespace=$(NAMESPACE)"}, Env: []corev1.EnvVar{
			{Name: "IMAGE", Value: "registry/fixpoint:1"},
			{Name: "NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}},
		}},
	}
	NewWithT(t).Expect(managerFlags(d)).To(Equal(map[string]string{
		"pod-namespace": "system", "leader-elect": "true", "bridge-image": "registry/fixpoint:1", "leader-election-namespace": "system",
	}))
}

// A plan must have the settings that the manager has, however its arguments are written.
func TestManagerFlagsAreReadAsTheManagerReadsThem(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want map[string]string
	}{
		"the last value":            {[]string{"--bridge-image=a", "--pod-labels=a=b,c=d", "--bridge-image=b"}, map[string]string{"bridge-image": "b", "pod-labels": "a=b,c=d"}},
		"the last namespace":        {[]string{"--pod-namespace=a", "--pod-namespace", "b"}, map[string]string{"pod-namespace": "b"}},
		"a value after its flag":    {[]string{"--pod-labels", "a=b", "-bridge-image", "$(IMAGE)"}, map[string]string{"pod-labels": "a=b", "bridge-image": "registry/fixpoint:1"}},
		"a boolean before a flag":   {[]string{"--no-cluster-rights", "--pod-overrides", "all"}, map[string]string{"no-cluster-rights": "true", "pod-overrides": "all"}},
		"a boolean with its value":  {[]string{"--metrics-secure", "--metrics-secure=false"}, map[string]string{"metrics-secure": "false"}},
		"a boolean at the end":      {[]string{"--metrics-bind-address", ":8443", "--no-cluster-rights"}, map[string]string{"metrics-bind-address": ":8443", "no-cluster-rights": "true"}},
		"an empty value at the end": {[]string{"--pod-labels=a=b", "--pod-labels="}, map[string]string{"pod-labels": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "system"}}
			d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Args: c.args, Env: []corev1.EnvVar{{Name: "IMAGE", Value: "registry/fixpoint:1"}}}}
			want := map[string]string{"pod-namespace": "system"}
			maps.Copy(want, c.want)
			NewWithT(t).Expect(managerFlags(d)).To(Equal(want))
		})
	}
}

func TestReportRedacts(t *testing.T) {
	g := NewWithT(t)
	r := &collection{}
	app := &v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"last-applied": "hunter2"}}}
	app.Spec.Config = map[string]string{"PASSWORD": "hunter2"}
	app.Spec.Env = []corev1.EnvVar{{Name: "TOKEN", Value: "hunter2"}}
	app.Status.Drifts = []v1beta1.Drift{{Desired: "hunter2", Found: "hunter2"}}
	server := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Name: "tools"}}
	server.Spec.Files = []v1beta1.MCPServerFile{{Path: "/etc/a", Content: "hunter2"}}
	server.Spec.Args = []string{"hunter2"}
	for _, live := range []client.Object{app, server, &corev1.Secret{StringData: map[string]string{"a": "hunter2"}}, &corev1.ConfigMap{Data: map[string]string{"a": "hunter2"}}} {
		g.Expect(r.addObject("objects", live)).To(Succeed())
	}
	g.Expect(r.files).To(HaveLen(3), "no Secret")
	for _, file := range r.files {
		g.Expect(string(file.content)).To(And(Not(ContainSubstring("hunter2")), ContainSubstring("(redacted)")), file.path)
	}
	g.Expect(withoutTokens(`sent Authorization: Bearer abcdefghijkl and "token": "0123456789"; password=short`)).To(Equal(
		`sent Authorization: Bearer (redacted) and "token": "(redacted)"; password=short`))
}

// Names, messages and values that other users wrote must not control the terminal.
func TestTextForTerminalsHasNoControlCharacters(t *testing.T) {
	g := NewWithT(t)
	hostile := app("web", isRunning, func(a *v1beta1.AppService) {
		a.Annotations = map[string]string{v1beta1.AnnotationReason: "\x1b[2Jgone"}
		a.Status.Conditions[1].Message = "a\x1b]0;title\x07b\u009b31m\u202egnp.exe\u2066"
		a.Status.Drifts = []v1beta1.Drift{{Kind: "ConfigMap", Name: "web", Field: ".data.A", Manager: "x\x1b[1A", Desired: "\r", Found: "\b"}}
	})
	for _, text := range []string{
		statusOf(hostile), whyOf(evidence{object: hostile}), driftText(driftRows([]object{hostile}), now, 0), driftLine(driftRows([]object{hostile})[0]),
		fleetText(fleetRows([]object{hostile}), now, ""),
		planText(planResult{Notes: []string{"Kind\x1b[2J web of the file is not planned"}}), notesText([]string{"\x1b[2J"}),
		versionText(versions{Plugin: buildinfo.Info{Version: "v1.0.0"}, Managers: []managerVersion{{Image: "registry.test/fixpoint\x1b[2J:v2\x1b[8m"}}}),
	} {
		g.Expect(strings.ContainsAny(text, controlling)).To(BeFalse(), "%q", text)
	}
}

// controlling are characters that change a terminal or the direction of text.
const controlling = "\x1b\x07\x08\r\u009b\u202e\u2066"

// A file that others wrote must not control the terminal either.
func TestErrorsForTerminalsHaveNoControlCharacters(t *testing.T) {
	g := NewWithT(t)
	streams := testStreams()
	errs := &bytes.Buffer{}
	streams.In, streams.ErrOut = strings.NewReader(`{"apiVersion": "fixpoint.dev/v1beta1", "kind": "AppService", "metadata": {"name": "\u001b[2Jweb"}}`), errs
	g.Expect(Run(t.Context(), []string{"plan", "-f", "-", "-n", "shop", "--server", "http://127.0.0.1:1"}, streams)).To(Equal(exitFailure))
	g.Expect(errs.String()).To(ContainSubstring("web as a dry run"))
	g.Expect(strings.ContainsAny(errs.String(), controlling)).To(BeFalse(), "%q", errs.String())

	errs.Reset()
	printError(errs, "one\ntwo")
	g.Expect(errs.String()).To(Equal("error: one\ntwo\n"), "lines stay")
}

func TestEventsAreAsRecentAsTheirLatestTime(t *testing.T) {
	e := eventsv1.Event{DeprecatedLastTimestamp: before(time.Hour), Series: &eventsv1.EventSeries{LastObservedTime: metav1.NewMicroTime(now)}}
	NewWithT(t).Expect(eventTime(e)).To(BeTemporally("==", now))
}

// A plan of many objects reads each kind once.
func TestPlanReaderListsEachKindOnce(t *testing.T) {
	g := NewWithT(t)
	requests := []string{}
	server := ssatest.NewServer(scheme, ssatest.Options{Intercept: func(call ssatest.Call) error {
		if !call.Done && call.Verb != "create" {
			requests = append(requests, call.String())
		}
		return nil
	}})
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: "shop", UID: "one"}}
	for _, name := range []string{"a", "b"} {
		child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Labels: map[string]string{"name": name}}}
		if name == "a" {
			child.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
		}
		g.Expect(server.Create(t.Context(), child)).To(Succeed())
	}
	reader := &planReader{api: server, fleet: true}
	for range 2 {
		var list corev1.ConfigMapList
		owned, err := ssa.OwnedIn(t.Context(), reader, owner, owner.GetNamespace(), &list)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(owned).To(HaveLen(1))
		g.Expect(reader.List(t.Context(), &list, client.MatchingLabels{"name": "b"}, client.InNamespace("shop"))).To(Succeed())
		g.Expect(list.Items).To(ConsistOf(HaveField("Name", "b")))
		g.Expect(reader.List(t.Context(), &list, client.InNamespace("elsewhere"))).To(Succeed())
		g.Expect(list.Items).To(BeEmpty())
		var live corev1.ConfigMap
		g.Expect(reader.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "b"}, &live)).To(Succeed())
		g.Expect(client.IgnoreNotFound(reader.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "c"}, &live))).To(Succeed())
	}
	g.Expect(requests).To(HaveLen(1))
	g.Expect(reader.List(t.Context(), &corev1.ConfigMapList{}, client.MatchingFields{"other": "x"})).To(MatchError(ContainSubstring("is not supported")))
}

func TestPlanRefusesWritesToTheCloud(t *testing.T) {
	g := NewWithT(t)
	p := &planner{}
	g.Expect(p.useCloud(planOptions{cloudEndpoint: "http://127.0.0.1:1"})).To(MatchError(ContainSubstring("would send your Azure login unencrypted")))
	g.Expect(p.useCloud(planOptions{cloudEndpoint: "nonsense"})).To(MatchError(HavePrefix("--cloud-endpoint: ")))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://127.0.0.1:1/x", nil)
	g.Expect(err).NotTo(HaveOccurred())
	response, err := readOnly{}.Do(request)
	if response != nil {
		response.Body.Close()
	}
	g.Expect(err).To(MatchError("a plan must not send PUT /x"))
}

func TestReportLeavesNoIncompleteFile(t *testing.T) {
	g := NewWithT(t)
	name := filepath.Join(t.TempDir(), "report.tar.gz")
	full := errors.New("no space left on device")
	g.Expect(writeNew(name, func(to io.Writer) error {
		_, err := to.Write([]byte("half"))
		return errors.Join(err, full)
	})).To(And(MatchError(full), MatchError(HavePrefix("writing "+name+": "))))
	g.Expect(name).NotTo(BeAnExistingFile())
	write := func(to io.Writer) error { return (&collection{}).write(to, now) }
	g.Expect(writeNew(name, write)).To(Succeed())
	g.Expect(writeNew(name, write)).To(MatchError(ContainSubstring("file exists")))
	g.Expect(name).To(BeAnExistingFile(), "it is that of an earlier report")
}

func TestReportHasTheEventsOfTheNamespace(t *testing.T) {
	g := NewWithT(t)
	here, elsewhere := event(pod("web"), "Failed", "here"), event(pod("web"), "Failed", "elsewhere")
	here.Namespace, here.Name, elsewhere.Namespace, elsewhere.Name = "shop", "a", "factory", "b"
	r := &collection{}
	g.Expect(clientOf(&here, &elsewhere).collectEvents(t.Context(), r, "shop")).To(Succeed())
	g.Expect(r.files).To(HaveLen(1))
	g.Expect(r.files[0].path).To(Equal("events/shop.txt"))
	g.Expect(string(r.files[0].content)).To(And(HaveSuffix("Pod/web Failed: here\n"), Not(ContainSubstring("elsewhere"))))
}
