package ssa_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crypto/tls"
)

// Labels of a namespace that select the webhooks for its Deployments.
const (
	rewriteImages = "test.fixpoint.dev/rewrite-images"
	injectSidecar = "test.fixpoint.dev/inject-sidecar"
	denyAll       = "test.fixpoint.dev/deny"
)

// startWebhooks serves three admission webhooks on loopback for as long as the process lives: one
// rewrites images to a mirror, one puts a sidecar before our container, one refuses.
func startWebhooks(ctx context.Context, c client.Client) error {
	certificate, ca, err := selfSigned()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/images", admit(func(d *appsv1.Deployment) []map[string]any {
		var patch []map[string]any
		for i, container := range d.Spec.Template.Spec.Containers {
			// Not the other webhook's container: whether that is there yet depends on their order,
			// and the next write by anybody would change the object again.
			if strings.HasPrefix(container.Image, "mirror.example/") || container.Name == "sidecar" {
				continue
			}
			patch = append(patch, map[string]any{
				"op": "replace", "path": fmt.Sprintf("/spec/template/spec/containers/%d/image", i), "value": "mirror.example/" + container.Image,
			})
		}
		return patch
	}))
	mux.HandleFunc("/sidecar", admit(func(d *appsv1.Deployment) []map[string]any {
		for _, container := range d.Spec.Template.Spec.Containers {
			if container.Name == "sidecar" {
				return nil
			}
		}
		return []map[string]any{{
			"op": "add", "path": "/spec/template/spec/containers/0",
			"value": map[string]any{"name": "sidecar", "image": "sidecar:1", "env": []any{map[string]any{"name": "MODE", "value": "proxy"}}},
		}}
	}))
	mux.HandleFunc("/deny", func(w http.ResponseWriter, r *http.Request) {
		respond(w, r, func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse) bool { return false })
	})
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()

	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "mutating"}}
	for path, label := range map[string]string{"/images": rewriteImages, "/sidecar": injectSidecar, "/deny": denyAll} {
		configuration.Webhooks = append(configuration.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name:                    strings.TrimPrefix(path, "/") + ".test.fixpoint.dev",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: ptr.To(server.URL + path), CABundle: ca},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          ptr.To[int32](30), // the maximum: a busy machine can need long for an answer
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{label: "yes"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
			}},
		})
	}
	if err := c.Create(ctx, configuration); err != nil {
		return err
	}
	return awaitWebhooks(ctx, c)
}

// awaitWebhooks waits until the API server, which learns of webhooks from a watch, calls them.
func awaitWebhooks(ctx context.Context, c client.Client) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "webhooks-", Labels: map[string]string{denyAll: "yes"}}}
	if err := c.Create(ctx, namespace); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, eventually, true, func(ctx context.Context) (bool, error) {
		deployment := plainDeployment("probe")
		deployment.Namespace = namespace.Name
		err := c.Create(ctx, deployment, client.DryRunAll)
		if err != nil && !strings.Contains(err.Error(), "images must come from the mirror") {
			return false, err
		}
		return err != nil, nil
	})
}

func admit(patchFor func(*appsv1.Deployment) []map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		respond(w, r, func(request *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse) bool {
			deployment := &appsv1.Deployment{}
			if err := json.Unmarshal(request.Object.Raw, deployment); err != nil {
				return false
			}
			patch := patchFor(deployment)
			if len(patch) == 0 {
				return true
			}
			raw, err := json.Marshal(patch)
			if err != nil {
				return false
			}
			response.Patch, response.PatchType = raw, ptr.To(admissionv1.PatchTypeJSONPatch)
			return true
		})
	}
}

func respond(w http.ResponseWriter, r *http.Request, decide func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse) bool) {
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID}
	response.Allowed = decide(review.Request, response)
	if !response.Allowed {
		response.Result = &metav1.Status{Message: "images must come from the mirror"}
	}
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func selfSigned() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhooks"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, ca, nil
}
