package main

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	websitesv1 "github.com/fixpoint-dev/fixpoint/examples/website/api/v1"
)

func hello(edits ...func(*websitesv1.Website)) *websitesv1.Website {
	site := &websitesv1.Website{
		ObjectMeta: metav1.ObjectMeta{Name: "hello", Namespace: "default", Generation: 1},
		Spec: websitesv1.WebsiteSpec{
			Image: "nginx:1", Replicas: 2, Zone: "example.com",
			Pages: map[string]string{"index.html": "<h1>Hello</h1>", "about.html": "<p>About</p>"},
		},
	}
	for _, edit := range edits {
		edit(site)
	}
	return site
}

func TestEachPageIsAConfigMapThatTheDeploymentMounts(t *testing.T) {
	g := NewWithT(t)
	s := &scope{site: hello()}

	configMaps, err := pages.Desired(s)
	g.Expect(err).NotTo(HaveOccurred())
	deployment, err := desiredDeployment(s)
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(configMaps).To(HaveLen(2))
	g.Expect(*configMaps[0].Name).To(Equal("hello-about.html"))
	g.Expect(configMaps[0].Data).To(Equal(map[string]string{"about.html": "<p>About</p>"}))
	mounted := deployment.Spec.Template.Spec.Volumes[0].Projected.Sources
	g.Expect(mounted).To(HaveLen(2))
	for i, configMap := range configMaps {
		g.Expect(mounted[i].ConfigMap.Name).To(Equal(configMap.Name))
	}
}

func TestDeploymentIsReadyWhenRolledOut(t *testing.T) {
	cases := map[string]struct {
		status  appsv1.DeploymentStatus
		done    bool
		message string
	}{
		"rolled out":            {appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}, true, "2 pods are up to date and available"},
		"not observed":          {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}, false, "2 of 2 pods are up to date and available"},
		"one pod not available": {appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 1}, false, "1 of 2 pods are up to date and available"},
		"an old pod is left":    {appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 3, UpdatedReplicas: 2, AvailableReplicas: 3}, false, "2 of 2 pods are up to date and available"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 3}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)}, Status: c.status}

			verdict := rolledOut(live)

			g.Expect(verdict.IsDone()).To(Equal(c.done))
			g.Expect(verdict.Message()).To(Equal(c.message))
		})
	}
}
