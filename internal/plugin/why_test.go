package plugin

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// rollout is a Deployment with its ReplicaSets, each with a pod that cannot be scheduled.
func rollout(g Gomega, sets ...*appsv1.ReplicaSet) []client.Object {
	labels := map[string]string{workload.LabelName: "web"}
	control := func(owner, object client.Object) client.Object {
		object.SetLabels(labels)
		g.Expect(controllerutil.SetControllerReference(owner, object, scheme)).To(Succeed())
		return object
	}
	d := deployment(0)
	d.ManagedFields = nil
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	objects := []client.Object{control(app("web").Object, d)}
	for _, set := range sets {
		objects = append(objects, control(d, set), control(set, pod(set.Name+"-x", isUnschedulable)))
	}
	return objects
}

// A child outlives its owner for a while, and may have the name of one of a new owner of the same name. Objects of another
// namespace may have the same names and labels, and the UIDs of a backup.
func TestChildrenOfOthersAreLeftOut(t *testing.T) {
	for how, edit := range map[string]func(client.Object){
		"of an earlier owner of the name": func(o client.Object) { o.GetOwnerReferences()[0].UID = "uid-of-a-deleted-one" },
		"in another namespace":            func(o client.Object) { o.SetNamespace("factory") },
	} {
		for i, kind := range []string{"Deployment", "ReplicaSet", "Pod"} {
			t.Run(kind+" "+how, func(t *testing.T) {
				g := NewWithT(t)
				o, objects := app("web", cannotPull), rollout(g, replicaSet("web-1", 0, 1, time.Hour))
				g.Expect(kindName(objects[i])).To(Equal(kind))
				edit(objects[i])
				c := refusing(clientOf(objects...), forbidden, "EventList")

				found, err := c.evidence(t.Context(), o)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(found.pods).To(BeEmpty())
				children, _, err := c.children(t.Context(), o)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(children).To(HaveLen(min(i, 1)), "the Deployment, if it is that of the AppService")
			})
		}
	}
}

func withRevision(revision string, set *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	set.Annotations = map[string]string{"deployment.kubernetes.io/revision": revision}
	return set
}

func TestWhyBlamesAPodOfTheNewestReplicaSet(t *testing.T) {
	for name, c := range map[string]struct {
		first, second *appsv1.ReplicaSet
		want          string
	}{
		"the one that was created last": {replicaSet("web-1", 0, 1, time.Hour), replicaSet("web-2", 0, 1, time.Minute), "web-2-x"},
		"the one of a rollback": {
			withRevision("2", replicaSet("web-1", 0, 1, time.Minute)), withRevision("3", replicaSet("web-2", 0, 1, time.Hour)), "web-2-x",
		},
		"of ten revisions": {
			withRevision("9", replicaSet("web-1", 0, 1, time.Hour)), withRevision("10", replicaSet("web-2", 0, 1, time.Hour)), "web-2-x",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := app("web", cannotPull)
			found, err := refusing(clientOf(rollout(g, c.first, c.second)...), forbidden, "EventList").evidence(t.Context(), o)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found.pods).To(HaveLen(2))
			g.Expect(findCulprit(found)).NotTo(BeNil())
			g.Expect(findCulprit(found).object).To(Equal("Pod " + c.want))
		})
	}
}

func TestRemediesOfPodsFitTheCause(t *testing.T) {
	web, tools := app("web", cannotPull), mcpServer()
	scheduled := func(message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			isUnschedulable(p)
			p.Status.Conditions[0].Message = message
		}
	}
	outOfMemory := func(p *corev1.Pod) {
		crashes(p)
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated.Reason = "OOMKilled"
	}
	bridge := func(p *corev1.Pod) {
		waits("ImagePullBackOff", "")(p)
		p.Status.ContainerStatuses[0].Name = v1beta1.MCPReservedPrefix + "bridge"
	}
	for name, c := range map[string]struct {
		of   object
		edit func(*corev1.Pod)
		want string
	}{
		"no node":                {web, scheduled("3 Insufficient cpu."), "Lower spec.resources, relax spec.nodeSelector, or add nodes"},
		"no node, MCPServer":     {tools, scheduled("3 Insufficient cpu."), "Lower spec.resources, relax spec.scheduling, or add nodes"},
		"no volume":              {tools, scheduled("pod has unbound immediate PersistentVolumeClaims."), "Run kubectl describe pvc -n shop"},
		"out of memory":          {web, outOfMemory, "Raise its limit in spec.resources.limits with kubectl edit appservice/web -n shop"},
		"another crash":          {web, crashes, "Run kubectl logs x -n shop -c app --previous"},
		"an image":               {web, waits("ErrImagePull", ""), "Correct spec.image or spec.imagePullSecrets with kubectl edit appservice/web -n shop"},
		"an image without pulls": {web, waits("ErrImageNeverPull", ""), "Load the image on the nodes, or set spec.imagePullPolicy to IfNotPresent with kubectl edit appservice/web -n shop"},
		"the image of the bridge": {web, bridge,
			"Have an administrator correct the flag --bridge-image of the manager, or correct spec.imagePullSecrets with kubectl edit appservice/web -n shop"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			problem := podProblem(pod("x", c.edit))
			g.Expect(problem).NotTo(BeNil())
			g.Expect(problem.remedy("shop", "x", c.of)).To(Equal(c.want))
		})
	}
}
