package plugin

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/internal/buildinfo"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

func newReport(o *options) *cobra.Command {
	var file string
	command := &cobra.Command{
		Use:   "report [KIND[/NAME]]",
		Short: "Write an archive for support: objects, children, Events, and the logs, metrics and version of the manager.",
		Long: "Write an archive for support: the objects of Fixpoint, their children down to pods, Events, and the logs, metrics and version of the manager. " +
			"Secrets are not read, and values that may be confidential are redacted: configuration, files, environment variables, commands, arguments and annotations. " +
			"Look through the archive before you send it: logs and messages are as they are, but for tokens.",
		Example: "  kubectl fixpoint report -A\n  kubectl fixpoint report appservice/web --file web.tar.gz",
		Args:    cobra.MaximumNArgs(2), ValidArgsFunction: o.completeObjects,
		RunE: func(command *cobra.Command, args []string) error {
			t, c, err := o.start(args)
			if err != nil {
				return err
			}
			if file == "" {
				file = "fixpoint-report-" + o.now().UTC().Format("20060102-150405") + ".tar.gz"
			}
			return o.report(command.Context(), c, t, file)
		},
	}
	command.Flags().StringVar(&file, "file", "", "`FILE` to write; it must not exist. Defaults to fixpoint-report-TIME.tar.gz.")
	o.addAllNamespaces(command)
	return command
}

func (o *options) report(ctx context.Context, c *clients, t target, name string) error {
	collected, err := c.collect(ctx, t)
	if err != nil {
		return err
	}
	if err := writeNew(name, func(to io.Writer) error { return collected.write(to, o.now()) }); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "%s has %d files. Look through it before you send it.\n", name, len(collected.files)+1)
	for _, note := range collected.notes {
		fmt.Fprintf(o.Out, "Not included: %s.\n", note)
	}
	return nil
}

// writeNew writes a file that does not exist. It leaves no file that is incomplete, such as on a full disk: one would look
// like a report, and the command could not be repeated.
func writeNew(name string, write func(io.Writer) error) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("writing --file: %w", err)
	}
	if err := errors.Join(write(file), file.Close()); err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", name, err), os.Remove(name))
	}
	return nil
}

// collection is what a report consists of.
type collection struct {
	files []reportFile
	notes []string
}

type reportFile struct {
	path    string
	content []byte
}

func (r *collection) add(name string, content []byte) {
	r.files = append(r.files, reportFile{name, content})
}

func (r *collection) note(notes ...string) {
	for _, note := range notes {
		if note != "" && !slices.Contains(r.notes, note) {
			r.notes = append(r.notes, note)
		}
	}
}

// addObject adds an object without what may be confidential. Secrets are left out.
func (r *collection) addObject(folder string, live client.Object) error {
	if _, isSecret := live.(*corev1.Secret); isSecret {
		return nil
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return fmt.Errorf("converting %s %s: %w", kindName(live), live.GetName(), err)
	}
	redactObject(tree)
	raw, err := yaml.Marshal(tree)
	if err != nil {
		return fmt.Errorf("serializing %s %s: %w", kindName(live), live.GetName(), err)
	}
	r.add(path.Join(folder, strings.ToLower(kindName(live))+"-"+live.GetName()+".yaml"), raw)
	return nil
}

// confidentialFields are fields of the kinds of Fixpoint whose values may be confidential, beside those of children.
var confidentialFields = [][]string{{"spec", "config"}, {"spec", "files"}, {"status", "drifts"}}

// redactObject redacts in place.
func redactObject(tree map[string]any) {
	workload.RedactValues(tree)
	for _, field := range confidentialFields {
		parent, _ := tree[field[0]].(map[string]any)
		switch value := parent[field[1]].(type) {
		case map[string]any:
			hideAll(value)
		case []any:
			for _, item := range value {
				fields, _ := item.(map[string]any)
				hideSome(fields, "content", "data", "desired", "found")
			}
		}
	}
}

func hideAll(values map[string]any) {
	for key := range values {
		values[key] = workload.Redacted
	}
}

func hideSome(values map[string]any, keys ...string) {
	for _, key := range keys {
		if _, has := values[key]; has {
			values[key] = workload.Redacted
		}
	}
}

// collect reads what belongs to a report; what the user may not read, it notes.
func (c *clients) collect(ctx context.Context, t target) (*collection, error) {
	r := &collection{}
	objects, notes, err := c.objects(ctx, t)
	if err != nil {
		return nil, err
	}
	r.note(notes...)
	namespaces := map[string]bool{}
	for _, o := range objects {
		namespaces[o.GetNamespace()] = true
		if err := c.collectObject(ctx, r, o); err != nil {
			return nil, err
		}
	}
	for namespace := range namespaces {
		if err := c.collectEvents(ctx, r, namespace); err != nil {
			return nil, err
		}
	}
	found := versions{Plugin: buildinfo.Get()}
	if err := found.read(ctx, c); err != nil {
		return nil, err
	}
	r.add("versions.txt", []byte(versionText(found)))
	return r, c.collectManagers(ctx, r)
}

func (c *clients) collectObject(ctx context.Context, r *collection, o object) error {
	folder := path.Join("objects", o.GetNamespace(), strings.ToLower(o.kind.name)+"-"+o.GetName())
	if err := r.addObject(folder, o.Object); err != nil {
		return err
	}
	tree, notes, err := c.tree(ctx, o)
	if err != nil {
		return err
	}
	r.note(notes...)
	return r.addTree(folder, tree)
}

func (r *collection) addTree(folder string, n node) error {
	for _, child := range n.children {
		if err := r.addObject(folder, child.object); err != nil {
			return err
		}
		if err := r.addTree(folder, child); err != nil {
			return err
		}
	}
	return nil
}

func (c *clients) collectEvents(ctx context.Context, r *collection, namespace string) error {
	var b strings.Builder
	err := c.listEach(ctx, &eventsv1.EventList{}, func(live client.Object) {
		if e, ok := live.(*eventsv1.Event); ok {
			fmt.Fprintf(&b, "%s %s %s/%s %s: %s\n", eventTime(*e).UTC().Format(time.RFC3339), e.Type, e.Regarding.Kind, e.Regarding.Name, e.Reason, withoutTokens(e.Note))
		}
	}, client.InNamespace(namespace))
	if apierrors.IsForbidden(err) {
		r.note("Events of namespace " + namespace + ", which you may not list")
		return nil
	}
	r.add(path.Join("events", namespace+".txt"), []byte(b.String()))
	return err
}

// logLines is how much of the log of each pod a report has.
const logLines = int64(5000)

// collectManagers adds the Deployments of the managers, and the logs and metrics of their pods.
func (c *clients) collectManagers(ctx context.Context, r *collection) error {
	deployments, note, err := c.managers(ctx)
	if err != nil {
		return err
	}
	r.note(note)
	pods, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return fmt.Errorf("building a client for logs: %w", err)
	}
	for i := range deployments {
		if err := c.collectManager(ctx, r, &deployments[i], pods); err != nil {
			return err
		}
	}
	return nil
}

func (c *clients) collectManager(ctx context.Context, r *collection, d *appsv1.Deployment, api kubernetes.Interface) error {
	folder := path.Join("manager", d.Namespace)
	if err := r.addObject(folder, d); err != nil {
		return err
	}
	var list corev1.PodList
	selector := client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(d.Spec.Selector.MatchLabels)}
	if err := c.List(ctx, &list, client.InNamespace(d.Namespace), selector); err != nil {
		if apierrors.IsForbidden(err) {
			r.note("pods of the manager, which you may not list")
			return nil
		}
		return fmt.Errorf("listing the pods of the manager: %w", err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if err := r.addObject(folder, pod); err != nil {
			return err
		}
		lines := logLines
		log, err := api.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: managerContainer, TailLines: &lines}).DoRaw(ctx)
		if err != nil {
			r.note(fmt.Sprintf("the log of %s: %v", pod.Name, err))
		} else {
			r.add(path.Join(folder, pod.Name+".log"), []byte(withoutTokens(string(log))))
		}
		metrics, err := c.metrics(ctx, pod, d, api)
		if err != nil {
			r.note(fmt.Sprintf("the metrics of %s: %v", pod.Name, err))
		} else {
			r.add(path.Join(folder, pod.Name+".metrics"), metrics)
		}
	}
	return nil
}

// metrics reads the metrics of a pod through the API server.
func (c *clients) metrics(ctx context.Context, pod *corev1.Pod, d *appsv1.Deployment, api kubernetes.Interface) ([]byte, error) {
	flags := managerFlags(d)
	address := flags["metrics-bind-address"]
	port := address[strings.LastIndex(address, ":")+1:]
	if port == "" || port == "0" {
		return nil, fmt.Errorf("they are disabled: --metrics-bind-address")
	}
	scheme := "https"
	if flags["metrics-secure"] == "false" {
		scheme = "http"
	}
	return api.CoreV1().Pods(pod.Namespace).ProxyGet(scheme, pod.Name, port, "metrics", nil).DoRaw(ctx)
}

var tokens = regexp.MustCompile(`(?i)(bearer\s+|(?:token|secret|password|authorization)["']?\s*[:=]\s*["']?)[A-Za-z0-9._~+/=-]{8,}|eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9._-]+`)

// withoutTokens removes what looks like a credential from texts that others wrote.
func withoutTokens(text string) string {
	return tokens.ReplaceAllString(text, "${1}"+workload.Redacted)
}

// write writes the archive: the same bytes for the same files and time.
func (r *collection) write(to io.Writer, now time.Time) error {
	compressed := gzip.NewWriter(to)
	archive := tar.NewWriter(compressed)
	files := append(slices.Clone(r.files), reportFile{"notes.txt", []byte(strings.Join(r.notes, "\n") + "\n")})
	for _, file := range files {
		header := &tar.Header{Name: path.Join("fixpoint-report", file.path), Mode: 0o600, Size: int64(len(file.content)), ModTime: now}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(file.content); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}
