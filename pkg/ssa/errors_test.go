package ssa

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var deployment = identity{
	gvk: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
	key: types.NamespacedName{Namespace: "shop", Name: "web"},
}

var deployments = schema.GroupResource{Group: "apps", Resource: "deployments"}

// answered is an error as the API server's answer becomes one in the client.
func answered(code int32, reason metav1.StatusReason, message string, details *metav1.StatusDetails) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: details}}
}

func forbidden(message string) error {
	return answered(http.StatusForbidden, metav1.StatusReasonForbidden, `deployments.apps "web" is forbidden: `+message, nil)
}

func causes(causes ...metav1.StatusCause) *metav1.StatusDetails {
	return &metav1.StatusDetails{Causes: causes}
}

func invalid(field, message string) error {
	return answered(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "Deployment.apps \"web\" is invalid: "+field+": "+message,
		causes(metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: message}))
}

func TestClassify(t *testing.T) {
	for name, test := range map[string]struct {
		err       error
		reason    Reason
		message   string
		transient bool
		permanent bool
	}{
		"a field that another applier holds": {
			err: answered(409, metav1.StatusReasonConflict, "Apply failed with 1 conflict", causes(metav1.StatusCause{
				Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.replicas", Message: `conflict with "kubectl" with subresource "scale" using apps/v1 at 2026-01-02T03:04:05Z`})),
			reason: ReasonConflict, message: `.spec.replicas is managed by "kubectl"; remove the field there, or set the same value in both`,
		},
		"two fields that other appliers hold": {
			err: answered(409, metav1.StatusReasonConflict, "Apply failed with 2 conflicts", causes(
				metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.replicas", Message: `conflict with "b"`},
				metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.paused", Message: `conflict with "a"`})),
			reason: ReasonConflict, message: `.spec.paused is managed by "a", .spec.replicas is managed by "b"; remove the field there, or set the same value in both`,
		},
		"an old resourceVersion of a Namespace": {
			err:    apierrors.NewConflict(schema.GroupResource{Resource: "namespaces"}, "web", errors.New("the object has been modified; please apply your changes to the latest version and try again")),
			reason: ReasonStale, message: "it has changed since it was read; retrying", transient: true,
		},
		"an old resourceVersion": {
			err:    apierrors.NewConflict(deployments, "web", errors.New("the object has been modified; please apply your changes to the latest version and try again")),
			reason: ReasonStale, message: "it has changed since it was read; retrying", transient: true,
		},
		"an object that is gone": {
			err:    answered(409, metav1.StatusReasonConflict, `Operation cannot be fulfilled on deployments.apps "web": uid mismatch: the provided object specified uid 1, and no existing object was found`, nil),
			reason: ReasonStale, message: "it has changed since it was read; retrying", transient: true,
		},
		"an object that was recreated": {
			err: invalid("metadata.uid", `Invalid value: "1": field is immutable`), reason: ReasonStale, message: "it has changed since it was read; retrying", transient: true,
		},
		"an object that has got another controller": {
			err:    invalid("metadata.ownerReferences", `Invalid value: [...]: Only one reference can have Controller set to true. Found "true" in references for A/x and B/y`),
			reason: ReasonStale, message: "it has changed since it was read; retrying", transient: true,
		},
		"a status of what is not there": {
			err: apierrors.NewNotFound(deployments, "web"), reason: ReasonStale, message: "it has changed since it was read; retrying", transient: true,
		},
		"a namespace that is not there": {
			err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"), transient: true,
			reason: ReasonNamespaceTerminating, message: "namespace shop is being deleted or does not exist",
		},
		"a namespace that is being deleted": {
			err: answered(403, metav1.StatusReasonForbidden, `deployments.apps "web" is forbidden: unable to create new content in namespace shop because it is being terminated`,
				causes(metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})), transient: true,
			reason: ReasonNamespaceTerminating, message: "namespace shop is being deleted or does not exist",
		},
		"a kind without a mapping": {
			err:    &meta.NoKindMatchError{GroupKind: deployment.gvk.GroupKind(), SearchedVersions: []string{"v1"}},
			reason: ReasonKindMissing, message: "the cluster does not serve apps/v1 Deployment; install the API that provides it, or disable the option that needs it",
		},
		"a kind that is not served any more": {
			err:    apierrors.NewGenericServerResponse(404, "PATCH", deployments, "web", "404 page not found", 0, true),
			reason: ReasonKindMissing, message: "the cluster does not serve apps/v1 Deployment; install the API that provides it, or disable the option that needs it",
		},
		"a quota": {
			err:    forbidden("exceeded quota: team, requested: limits.cpu=2,pods=1, used: limits.cpu=7,pods=3, limited: limits.cpu=8,pods=3"),
			reason: ReasonQuotaExceeded, message: "exceeded quota: team, requested: limits.cpu=2,pods=1, limited: limits.cpu=8,pods=3; raise the quota or request less",
		},
		"a webhook": {
			err: forbidden(`admission webhook "policy.example.com" denied the request: no`), reason: ReasonAdmissionDenied,
			message: `admission webhook "policy.example.com" denied the request: no`,
		},
		"a webhook that answers with the code of a conflict": {
			err: answered(409, metav1.StatusReasonConflict, `admission webhook "policy.example.com" denied the request: no`, nil), reason: ReasonAdmissionDenied,
			message: `admission webhook "policy.example.com" denied the request: no`,
		},
		"a webhook that missed something itself": {
			err: forbidden(`admission webhook "policy.example.com" denied the request: the server could not find the requested resource`), reason: ReasonAdmissionDenied,
			message: `admission webhook "policy.example.com" denied the request: the server could not find the requested resource`,
		},
		"a policy": {
			err: forbidden(`ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`), reason: ReasonAdmissionDenied,
			message: `ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`,
		},
		"Pod Security": {
			err: forbidden(`violates PodSecurity "restricted:latest": runAsNonRoot != true`), reason: ReasonAdmissionDenied,
			message: `violates PodSecurity "restricted:latest": runAsNonRoot != true`,
		},
		"a limit range": {
			err: forbidden("maximum cpu usage per Container is 1, but limit is 2"), reason: ReasonAdmissionDenied, message: "maximum cpu usage per Container is 1, but limit is 2",
		},
		"a missing permission": {
			err:     forbidden(`User "system:serviceaccount:a:b" cannot patch resource "deployments" in API group "apps" in the namespace "shop"`),
			reason:  ReasonForbidden,
			message: `deployments.apps "web" is forbidden: User "system:serviceaccount:a:b" cannot patch resource "deployments" in API group "apps" in the namespace "shop"; grant the manager's service account this permission`,
		},
		"a permission on the owner's finalizers": {
			err:    forbidden(`cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>`),
			reason: ReasonForbidden,
			message: `deployments.apps "web" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>; ` +
				"grant the manager's service account the verb update on the subresource finalizers of the owner's kind",
		},
		"a permission to delete what gets an owner": {
			err:    forbidden(`cannot set an ownerRef on a resource you can't delete: , <nil>`),
			reason: ReasonForbidden,
			message: `deployments.apps "web" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>; ` +
				"grant the manager's service account the verb delete on the kind Deployment",
		},
		"an owner whose kind the API server has not discovered": {
			err:    forbidden(`cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion fixpoint.dev/v1beta1 Kind AppService: no matches for kind "AppService" in version "fixpoint.dev/v1beta1"`),
			reason: ReasonAPIUnavailable, transient: true, message: "the API server does not know the kind of the owner yet; retrying",
		},
		"an owner whose kind the API server has not discovered, by another message": {
			err:    forbidden(`cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: RESTMapping not found for fixpoint.dev/v1beta1, Kind=AppService`),
			reason: ReasonAPIUnavailable, transient: true, message: "the API server does not know the kind of the owner yet; retrying",
		},
		"a permission that the manager has not got itself": {
			err:     forbidden(`user "m" (groups=["g"]) is attempting to grant RBAC permissions not currently held`),
			reason:  ReasonForbidden,
			message: `deployments.apps "web" is forbidden: user "m" (groups=["g"]) is attempting to grant RBAC permissions not currently held; grant the manager's service account this permission`,
		},
		"an invalid value": {
			err: invalid("spec.replicas", "Invalid value: -1: must be non-negative"), reason: ReasonInvalid, permanent: true,
			message: "spec.replicas: Invalid value: -1: must be non-negative",
		},
		"an immutable field": {
			err: invalid("spec.selector", "Invalid value: {}: field is immutable"), reason: ReasonImmutableField, permanent: true,
			message: "spec.selector: Invalid value: {}: field is immutable; restore the previous value, or delete the object so that it is recreated",
		},
		"a field of a StatefulSet": {
			err:    invalid("spec", "Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden"),
			reason: ReasonImmutableField, permanent: true,
			message: "spec: Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden; restore the previous value, or delete the object so that it is recreated",
		},
		"an owner reference that is invalid": {
			err: invalid("metadata.ownerReferences", "Invalid value: {}: name must not be empty"), reason: ReasonInvalid, permanent: true,
			message: "metadata.ownerReferences: Invalid value: {}: name must not be empty",
		},
		"an invalid value that reads like a missing permission": {
			err: invalid("spec.user", `Invalid value: "a": user "a" cannot be used`), reason: ReasonInvalid, permanent: true,
			message: `spec.user: Invalid value: "a": user "a" cannot be used`,
		},
		"two invalid values": {
			err: answered(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "invalid", causes(
				metav1.StatusCause{Field: "spec.a", Message: "one"}, metav1.StatusCause{Field: "spec.b", Message: "two"})),
			reason: ReasonInvalid, permanent: true, message: "spec.a: one; spec.b: two",
		},
		"a bad request": {
			err: apierrors.NewBadRequest("the body is (no): JSON"), reason: ReasonInvalid, permanent: true, message: "the body is (no): JSON",
		},
		"a configuration that does not fit the schema": {
			err:    answered(500, "", `failed to create typed patch object (shop/web; apps/v1, Kind=Deployment): .spec.replicas: expected numeric (int or float), got string`, nil),
			reason: ReasonInvalid, permanent: true, message: ".spec.replicas: expected numeric (int or float), got string",
		},
		"a webhook that does not answer": {
			err:    apierrors.NewInternalError(fmt.Errorf(`failed calling webhook "w.example.com": failed to call webhook: Post "https://w.shop.svc:443/v?timeout=10s": read tcp 10.0.0.1:51234->10.0.0.2:443: connection reset by peer`)),
			reason: ReasonAPIUnavailable, transient: true, message: `an admission webhook did not respond: failed calling webhook "w.example.com": connection reset by peer`,
		},
		"a webhook whose certificate has expired": {
			err:    apierrors.NewInternalError(fmt.Errorf(`failed calling webhook "w.example.com": failed to call webhook: Post "https://w.shop.svc:443/v?timeout=10s": tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-01-02T03:04:05Z is after 2026-01-01T00:00:00Z`)),
			reason: ReasonAPIUnavailable, transient: true, message: `an admission webhook did not respond: failed calling webhook "w.example.com": certificate has expired or is not yet valid`,
		},
		"an API server without an address for a Service": {
			err:    apierrors.NewInternalError(fmt.Errorf(`failed to allocate a serviceIP for Service "web": range is full`)),
			reason: ReasonAPIUnavailable, transient: true, message: "the API server failed: range is full; retrying",
		},
		"an internal error in other words": {
			err:    answered(500, metav1.StatusReasonInternalError, "out of order", nil),
			reason: ReasonAPIUnavailable, transient: true, message: "the API server failed: out of order; retrying",
		},
		"an API server that does not listen": {
			err:    &url.Error{Op: "Patch", URL: "https://127.0.0.1:6443", Err: syscall.ECONNREFUSED},
			reason: ReasonAPIUnavailable, transient: true, message: "the API server did not accept the request; retrying",
		},
		"an API server that is busy": {
			err: apierrors.NewTooManyRequests("later", 1), reason: ReasonAPIUnavailable, transient: true, message: "the API server did not accept the request; retrying",
		},
		"an API server that does not answer in time": {
			err: apierrors.NewTimeoutError("later", 1), reason: ReasonAPIUnavailable, transient: true, message: "the API server did not accept the request; retrying",
		},
		"an API server that could not do it in time": {
			err: apierrors.NewServerTimeout(deployments, "patch", 1), reason: ReasonAPIUnavailable, transient: true, message: "the API server did not accept the request; retrying",
		},
		"an API server that is not available": {
			err: apierrors.NewServiceUnavailable("later"), reason: ReasonAPIUnavailable, transient: true, message: "the API server did not accept the request; retrying",
		},
		"a proxy in front of the API server": {
			err:    apierrors.NewGenericServerResponse(520, "PATCH", deployments, "web", "<html>", 0, true),
			reason: ReasonAPIUnavailable, transient: true, message: "the API server did not accept the request; retrying",
		},
		"a proxy that refuses with a code of its own": {
			err:    apierrors.NewGenericServerResponse(418, "PATCH", deployments, "web", "<html>", 0, true),
			reason: ReasonAPIUnavailable, transient: true, message: "the API server did not accept the request; retrying",
		},
		"a plugin that lacks a mapping": {
			err: forbidden("no RESTMapping for the quota"), reason: ReasonAdmissionDenied, message: "no RESTMapping for the quota",
		},
		"a deadline": {
			err: context.DeadlineExceeded, reason: ReasonAPIUnavailable, transient: true, message: "the API server did not accept the request; retrying",
		},
		"an object that is larger than etcd stores": {
			err:    answered(500, "", "etcdserver: request is too large", nil),
			reason: ReasonInvalid, permanent: true, message: "it is larger than the API server accepts; make it smaller",
		},
		"an object that is larger than a message to etcd": {
			err:    answered(500, "", "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097293 vs. 2097152)", nil),
			reason: ReasonInvalid, permanent: true, message: "it is larger than the API server accepts; make it smaller",
		},
		"an object that is larger than a request may be": {
			err:    apierrors.NewRequestEntityTooLargeError("limit is 3145728"),
			reason: ReasonInvalid, permanent: true, message: "it is larger than the API server accepts; make it smaller",
		},
		"anything else": {
			err: answered(http.StatusTeapot, "Teapot", "short and stout", nil), reason: ReasonFailed, message: "patching: short and stout",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := classify(deployment, fmt.Errorf("patching: %w", test.err))

			typed := &Error{}
			g.Expect(errors.As(err, &typed)).To(BeTrue())
			g.Expect(typed.Reason).To(Equal(test.reason))
			g.Expect(typed.Message).To(Equal(test.message))
			g.Expect(typed.ConditionReason()).To(Equal(string(test.reason)))
			g.Expect(typed.Error()).To(HavePrefix("Deployment shop/web: "))
			g.Expect(typed.Transient).To(Equal(test.transient), "transient")
			g.Expect(typed.Permanent()).To(Equal(test.permanent), "permanent")
			g.Expect(IsStale(err)).To(Equal(test.reason == ReasonStale))
			g.Expect(errors.Is(err, test.err)).To(BeTrue(), "the cause is wrapped")
		})
	}
}

func TestClassifyCutsWhatTheAPIServerQuotes(t *testing.T) {
	g := NewWithT(t)
	typed := &Error{}
	g.Expect(errors.As(classify(deployment, invalid("spec", strings.Repeat("ü", 5000))), &typed)).To(BeTrue())
	g.Expect(len(typed.Message)).To(BeNumerically("<", maxMessage+50))
	g.Expect(strings.ToValidUTF8(typed.Message, "?")).To(Equal(typed.Message))
}

func TestMessagesAreKeptUpToTheirBound(t *testing.T) {
	g := NewWithT(t)
	longest := strings.Repeat("a", 256) + strings.Repeat("b", 256)
	g.Expect(shorten(longest)).To(Equal(longest))
	g.Expect(shorten(longest + "c")).To(Equal(longest[:256] + " … " + longest[257:] + "c"))
}

func TestNamespaceThatIsGoneIsAnObjectThatIsGone(t *testing.T) {
	namespace := identity{gvk: corev1.SchemeGroupVersion.WithKind("Namespace"), key: types.NamespacedName{Name: "shop"}}
	err := classify(namespace, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"))
	NewWithT(t).Expect(IsStale(err)).To(BeTrue(), "%v", err)
}

func TestClassifyOfNothing(t *testing.T) {
	NewWithT(t).Expect(classify(deployment, nil)).To(Succeed())
}
