package ssa

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Reason names a class of failure in the form that conditions want.
type Reason string

// The reasons with which an apply fails. Each is a value that a condition can show.
const (
	ReasonConflict             Reason = "Conflict"             // another manager holds a field of a shared object
	ReasonNotOwned             Reason = "NotOwned"             // it exists without a controller, and the policy is AdoptNever
	ReasonOwnedByAnother       Reason = "OwnedByAnother"       // it exists and another controller owns it
	ReasonImmutableField       Reason = "ImmutableField"       // the kind does not allow the change on an existing object
	ReasonQuotaExceeded        Reason = "QuotaExceeded"        // a ResourceQuota refuses the write
	ReasonAdmissionDenied      Reason = "AdmissionDenied"      // an admission webhook, policy or plugin refuses the write
	ReasonInvalid              Reason = "Invalid"              // the API server finds a value invalid
	ReasonForbidden            Reason = "Forbidden"            // the manager's service account lacks a permission
	ReasonKindMissing          Reason = "KindMissing"          // the API server does not serve the kind
	ReasonNamespaceTerminating Reason = "NamespaceTerminating" // the namespace is being deleted or does not exist
	ReasonAPIUnavailable       Reason = "APIUnavailable"       // no response yet, or the kind of the owner is not known yet
	ReasonStale                Reason = "Stale"                // it changed since it was read; a fresh read helps
	ReasonTerminating          Reason = "Terminating"          // it is being deleted; once gone it can be recreated
	ReasonFailed               Reason = "Failed"               // any other error
)

// Error is why an object could not be applied, and what to do about it. It wraps the API server's own error.
type Error struct {
	Reason Reason
	Object string // the kind and name of what was applied
	// Message says what is wrong and what to do. Without counters, times and generated names, it is the same each try.
	Message   string
	Transient bool // retrying helps, without any change by a person
	cause     error
}

func (e *Error) Error() string { return e.Object + ": " + e.Message }

// Unwrap returns the API server's error, if there was one.
func (e *Error) Unwrap() error { return e.cause }

// ConditionReason is the reason for a condition that reports this error.
func (e *Error) ConditionReason() string { return string(e.Reason) }

// Permanent is true if retrying does not help until a person changes something.
func (e *Error) Permanent() bool {
	permanent := []Reason{ReasonInvalid, ReasonImmutableField, ReasonNotOwned, ReasonOwnedByAnother}
	return slices.Contains(permanent, e.Reason) && !e.Transient
}

// IsStale is true if the write failed because the object has changed since it was read. It helps to read it again.
func IsStale(err error) bool {
	typed, ok := errors.AsType[*Error](err)
	return ok && typed.Reason == ReasonStale
}

var (
	conflictManager = regexp.MustCompile(`"[^"]*"`)
	quotaUsed       = regexp.MustCompile(`, used: [^,]*(,[^,:]*=[^,]*)*`)
	accessDenied    = regexp.MustCompile(`(?i)\buser "[^"]*" (cannot |\(groups=)|cannot set (blockOwnerDeletion|an ownerRef)`)
	admissionDenied = regexp.MustCompile(`denied the request|denied request|violates PodSecurity`)
	webhookFailure  = regexp.MustCompile(`failed calling webhook "[^"]*"`)
	tooLarge        = regexp.MustCompile(`request is too large|message larger than max`)
	immutable       = regexp.MustCompile(`(?i)field is immutable|is immutable|may not be (changed|unset)|cannot be changed|updates to .* are forbidden`)
)

// unserved is in the 404 of a kind that is not served, and not in those of namespaces and objects.
const unserved = "the server could not find the requested resource"

// malformed begins the API server's answer to a configuration that does not fit the schema, such as a
// list that has a key twice. It comes with code 500 and without a reason.
const malformed = "failed to create typed patch object "

// failure is an error of the API server, in the parts by which it is classified.
type failure struct {
	error
	id      identity
	status  metav1.Status // without one if the API server did not answer
	message string
	details metav1.StatusDetails
}

// classify turns an error of the API server into an [*Error].
func classify(id identity, err error) error {
	if err == nil {
		return nil
	}
	f := failure{error: err, id: id}
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		f.status = api.Status()
		f.message = strings.TrimSpace(f.status.Message)
		f.details = ptr.Deref(f.status.Details, metav1.StatusDetails{})
	}
	reason, message := f.classify()
	transient := []Reason{ReasonNamespaceTerminating, ReasonStale, ReasonAPIUnavailable}
	return &Error{Reason: reason, Object: id.String(), Message: message, Transient: slices.Contains(transient, reason), cause: err}
}

// classify tells failures apart; the first case that fits counts.
func (f failure) classify() (Reason, string) {
	switch err := f.error; {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err) && strings.Contains(err.Error(), unserved):
		return ReasonKindMissing, fmt.Sprintf("the cluster does not serve %s %s; install the API that provides it, "+
			"or disable the option that needs it", f.id.apiVersion(), f.id.gvk.Kind)
	// Before the status codes, because a webhook may choose any code for its refusal.
	case admissionDenied.MatchString(f.message):
		return ReasonAdmissionDenied, f.denial()
	case len(f.conflicts()) > 0:
		return ReasonConflict, strings.Join(f.conflicts(), ", ") + "; remove the field there, or set the same value in both"
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause),
		apierrors.IsNotFound(err) && f.details.Kind == "namespaces" && f.id.key.Namespace != "":
		return ReasonNamespaceTerminating, fmt.Sprintf("namespace %s is being deleted or does not exist", f.id.key.Namespace)
	case f.isStale():
		return ReasonStale, "it has changed since it was read; retrying"
	case strings.Contains(f.message, "exceeded quota"):
		refusal := after(quotaUsed.ReplaceAllString(f.message, ""), "is forbidden: ")
		return ReasonQuotaExceeded, refusal + "; raise the quota or request less"
	case apierrors.IsForbidden(err):
		return f.classifyForbidden()
	case slices.ContainsFunc(f.details.Causes, func(c metav1.StatusCause) bool { return immutable.MatchString(c.Message) }):
		return ReasonImmutableField, f.problems() + "; restore the previous value, or delete the object so that it is recreated"
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), strings.HasPrefix(f.message, malformed):
		return ReasonInvalid, f.problems()
	// Before the answers that retrying helps with: that of etcd comes with code 500 and without a reason.
	case apierrors.IsRequestEntityTooLargeError(err), tooLarge.MatchString(f.message):
		return ReasonInvalid, "it is larger than the API server accepts; make it smaller"
	// Without a status, it is no answer of the API server at all.
	case f.status.Status == "", apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err),
		apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err), apierrors.IsUnexpectedServerError(err):
		return ReasonAPIUnavailable, f.unavailability()
	default:
		return ReasonFailed, f.Error()
	}
}

// classifyForbidden tells a missing permission from an admission plugin that refuses, such as LimitRanger.
func (f failure) classifyForbidden() (Reason, string) {
	switch {
	// The admission plugin that checks owner references has a discovery of its own, which lags behind a new CRD.
	case strings.Contains(f.message, "cannot set blockOwnerDeletion") && strings.Contains(f.message, "RESTMapping"):
		return ReasonAPIUnavailable, "the API server does not know the kind of the owner yet; retrying"
	case accessDenied.MatchString(f.message):
		return ReasonForbidden, f.message + "; grant the manager's service account " + f.missingPermission()
	default:
		return ReasonAdmissionDenied, f.denial()
	}
}

// missingPermission names the permission. The admission plugin that checks owner references does not.
func (f failure) missingPermission() string {
	switch {
	case strings.Contains(f.message, "cannot set blockOwnerDeletion"):
		return "the verb update on the subresource finalizers of the owner's kind"
	case strings.Contains(f.message, "cannot set an ownerRef"):
		return "the verb delete on the kind " + f.id.gvk.Kind
	default:
		return "this permission"
	}
}

// isStale: the object existed when it was read. If another object has the name now, the API server answers that the UID
// is immutable; the object may also have got another controller.
func (f failure) isStale() bool {
	return apierrors.IsConflict(f.error) || apierrors.IsNotFound(f.error) ||
		slices.ContainsFunc(f.details.Causes, func(c metav1.StatusCause) bool {
			return c.Field == "metadata.uid" || strings.Contains(c.Message, "Only one reference can have Controller set to true")
		})
}

// conflicts are the fields that other managers hold.
func (f failure) conflicts() (held []string) {
	for _, cause := range f.details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			held = append(held, cause.Field+" is managed by "+conflictManager.FindString(cause.Message))
		}
	}
	slices.Sort(held)
	return held
}

func (f failure) denial() string { return shorten(after(f.message, "is forbidden: ")) }

func (f failure) unavailability() string {
	if webhook := webhookFailure.FindString(f.message); webhook != "" {
		// What lies between names addresses and ports, which change from try to try, as does the time at the end of an
		// error of a certificate.
		message, _, _ := strings.Cut(f.message, ": current time ")
		return "an admission webhook did not respond: " + webhook + message[strings.LastIndex(message, ": "):]
	}
	// Such as that it has no address left for a Service. What a proxy answers in its place has no cause.
	if apierrors.IsInternalError(f.error) && !apierrors.IsUnexpectedServerError(f.error) {
		cause := f.message[strings.LastIndex(f.message, ": ")+1:]
		return "the API server failed: " + shorten(strings.TrimSpace(cause)) + "; retrying"
	}
	return "the API server did not accept the request; retrying"
}

func (f failure) problems() string {
	var found []string
	for _, cause := range f.details.Causes {
		found = append(found, strings.TrimSpace(cause.Field+": "+shorten(cause.Message)))
	}
	switch {
	case len(found) > 0:
		return strings.Join(found, "; ")
	case strings.HasPrefix(f.message, malformed):
		return shorten(after(f.message, "): ")) // what comes before names the object again
	default:
		return shorten(f.message)
	}
}

// maxMessage bounds what one cause may add to a condition, in bytes: some quote whole objects.
const maxMessage = 512

func shorten(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage/2]+" … "+s[len(s)-maxMessage/2:], "")
}

func after(s, marker string) string {
	if _, rest, ok := strings.Cut(s, marker); ok {
		return rest
	}
	return s
}
