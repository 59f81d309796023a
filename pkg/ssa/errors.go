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
)

// Reason names a class of failure in the form that conditions want.
type Reason string

// The reasons with which an apply fails. Each is a value that a condition can show.
const (
	// ReasonConflict: another manager holds a field of a shared object, with another value.
	ReasonConflict Reason = "Conflict"
	// ReasonNotOwned: an object of the name exists, no controller owns it, and the adoption policy is Never.
	ReasonNotOwned Reason = "NotOwned"
	// ReasonOwnedByAnother: an object of the name exists and another controller owns it.
	ReasonOwnedByAnother Reason = "OwnedByAnother"
	// ReasonImmutableField: the change is one that the kind does not allow on an existing object.
	ReasonImmutableField Reason = "ImmutableField"
	// ReasonQuotaExceeded: a ResourceQuota refuses the write.
	ReasonQuotaExceeded Reason = "QuotaExceeded"
	// ReasonAdmissionDenied: an admission webhook, policy or plugin refuses the write.
	ReasonAdmissionDenied Reason = "AdmissionDenied"
	// ReasonInvalid: the API server finds a value invalid.
	ReasonInvalid Reason = "Invalid"
	// ReasonForbidden: the manager's service account lacks a permission.
	ReasonForbidden Reason = "Forbidden"
	// ReasonKindMissing: the API server does not serve the kind.
	ReasonKindMissing Reason = "KindMissing"
	// ReasonNamespaceTerminating: the namespace is being deleted or does not exist.
	ReasonNamespaceTerminating Reason = "NamespaceTerminating"
	// ReasonAPIUnavailable: the API server or a webhook did not respond, or asked to retry later.
	ReasonAPIUnavailable Reason = "APIUnavailable"
	// ReasonStale: the object changed between the read and the write; a fresh read helps.
	ReasonStale Reason = "Stale"
	// ReasonTerminating: the object is being deleted; once it is gone it can be recreated.
	ReasonTerminating Reason = "Terminating"
	// ReasonFailed: any other error.
	ReasonFailed Reason = "Failed"
)

// FieldConflict is a field that another manager holds.
type FieldConflict struct {
	// Path is the field, such as .spec.replicas.
	Path string
	// Manager holds it.
	Manager string
}

// Error is why an object could not be applied, and what to do about it. Match it with errors.As; the
// API server's own error is wrapped.
type Error struct {
	Reason Reason
	// Object is the kind and name of what was applied.
	Object string
	// Message says what is wrong and what to do. It holds no counter, time or generated name, so
	// that it is the same from try to try.
	Message string
	// Conflicts lists the fields of a ReasonConflict.
	Conflicts []FieldConflict
	// Transient is true if retrying helps, without any change by a person.
	Transient bool
	cause     error
}

// Error implements error.
func (e *Error) Error() string { return e.Object + ": " + e.Message }

// Unwrap returns the API server's error, if there was one.
func (e *Error) Unwrap() error { return e.cause }

// ConditionReason is the reason for a condition that reports this error.
func (e *Error) ConditionReason() string { return string(e.Reason) }

// Permanent is true if retrying does not help until a person changes something.
func (e *Error) Permanent() bool {
	switch e.Reason {
	case ReasonInvalid, ReasonImmutableField, ReasonNotOwned, ReasonOwnedByAnother:
		return !e.Transient
	default:
		return false
	}
}

// IsStale is true if the write failed because the object has changed since it was read. It helps to
// read it again.
func IsStale(err error) bool {
	var typed *Error
	return errors.As(err, &typed) && typed.Reason == ReasonStale
}

func terminating(id identity) *Error {
	return &Error{Reason: ReasonTerminating, Object: id.String(), Message: "it is being deleted; it will be recreated", Transient: true}
}

var (
	conflictManager = regexp.MustCompile(`^conflict with "([^"]*)"`)
	quotaUsed       = regexp.MustCompile(`, used: [^,]*(,[^,:]*=[^,]*)*`)
	// accessDenied tells a missing permission from an admission plugin that refuses: the API server
	// answers both with Forbidden.
	accessDenied   = regexp.MustCompile(`(?i)\buser "[^"]*" (cannot |\(groups=)|cannot set blockOwnerDeletion`)
	webhookFailure = regexp.MustCompile(`failed calling webhook "[^"]*"`)
	immutable      = regexp.MustCompile(`(?i)field is immutable|is immutable|may not be (changed|unset)|cannot be changed|updates to .* are forbidden`)
)

// failure is an error of the API server, in the parts by which it is classified.
type failure struct {
	error
	status  metav1.Status
	message string
}

func (f failure) causes() []metav1.StatusCause {
	if f.status.Details == nil {
		return nil
	}
	return f.status.Details.Causes
}

// classes tell failures apart; the first that fits counts.
var classes = []struct {
	is      func(failure) bool
	reason  Reason
	message func(identity, failure) string
}{
	{isUnservedKind, ReasonKindMissing, func(id identity, _ failure) string {
		return fmt.Sprintf("the cluster does not serve %s %s; install the API that provides it, or disable the option that needs it", id.gvk.GroupVersion(), id.gvk.Kind)
	}},
	// Before the status codes, because a webhook may choose any code for its refusal.
	{isAdmissionDenial, ReasonAdmissionDenied, denial},
	{func(f failure) bool { return len(f.conflicts()) > 0 }, ReasonConflict, conflictMessage},
	{func(f failure) bool { return apierrors.IsConflict(f.error) }, ReasonStale, staleMessage},
	{isMissingNamespace, ReasonNamespaceTerminating, func(id identity, _ failure) string {
		return fmt.Sprintf("namespace %s is being deleted or does not exist", id.key.Namespace)
	}},
	// The object existed when it was read.
	{func(f failure) bool { return apierrors.IsNotFound(f.error) }, ReasonStale, staleMessage},
	{func(f failure) bool { return strings.Contains(f.message, "exceeded quota") }, ReasonQuotaExceeded, func(_ identity, f failure) string {
		return after(quotaUsed.ReplaceAllString(f.message, ""), "is forbidden: ") + "; raise the quota or request less"
	}},
	{func(f failure) bool { return apierrors.IsForbidden(f.error) && accessDenied.MatchString(f.message) }, ReasonForbidden, func(_ identity, f failure) string {
		return f.message + "; grant the manager's service account this permission"
	}},
	// By an admission plugin, such as LimitRanger.
	{func(f failure) bool { return apierrors.IsForbidden(f.error) }, ReasonAdmissionDenied, denial},
	{isReplaced, ReasonStale, staleMessage},
	{isImmutable, ReasonImmutableField, func(id identity, f failure) string {
		return problems(id, f) + "; restore the previous value, or delete the object so that it is recreated"
	}},
	{isInvalid, ReasonInvalid, problems},
	{isUnavailable, ReasonAPIUnavailable, unavailability},
	{func(failure) bool { return true }, ReasonFailed, func(_ identity, f failure) string { return f.Error() }},
}

// classify turns an error of the API server into a typed one.
func classify(id identity, err error) error {
	if err == nil {
		return nil
	}
	f := failure{error: err}
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		f.status = api.Status()
		f.message = strings.TrimSpace(f.status.Message)
	}
	typed := &Error{Object: id.String(), cause: err}
	for _, class := range classes {
		if class.is(f) {
			typed.Reason, typed.Message = class.reason, class.message(id, f)
			break
		}
	}
	switch typed.Reason {
	case ReasonConflict:
		typed.Conflicts = f.conflicts()
	case ReasonNamespaceTerminating, ReasonStale, ReasonAPIUnavailable:
		typed.Transient = true
	}
	return typed
}

// conflicts are the fields that other managers hold.
func (f failure) conflicts() []FieldConflict {
	if !apierrors.IsConflict(f.error) {
		return nil
	}
	var conflicts []FieldConflict
	for _, cause := range f.causes() {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		holder := ""
		if match := conflictManager.FindStringSubmatch(cause.Message); match != nil {
			holder = match[1]
		}
		conflicts = append(conflicts, FieldConflict{Path: cause.Field, Manager: holder})
	}
	return conflicts
}

func conflictMessage(_ identity, f failure) string {
	var held []string
	for _, c := range f.conflicts() {
		held = append(held, fmt.Sprintf("%s is managed by %q", c.Path, c.Manager))
	}
	slices.Sort(held)
	return strings.Join(held, ", ") + "; remove the field there, or set the same value in both"
}

func staleMessage(identity, failure) string { return "it has changed since it was read; retrying" }

func denial(_ identity, f failure) string { return shorten(after(f.message, "is forbidden: ")) }

func unavailability(_ identity, f failure) string {
	if webhook := webhookFailure.FindString(f.message); webhook != "" {
		// What lies between names addresses and ports, which change from try to try.
		return "an admission webhook did not respond: " + webhook + f.message[strings.LastIndex(f.message, ": "):]
	}
	return "the API server did not accept the request; retrying"
}

func problems(_ identity, f failure) string {
	var found []string
	for _, cause := range f.causes() {
		found = append(found, strings.TrimSpace(cause.Field+": "+shorten(cause.Message)))
	}
	if len(found) > 0 {
		return strings.Join(found, "; ")
	}
	if isMalformed(f) {
		return shorten(after(f.message, "): ")) // the rest names the object again
	}
	return shorten(f.message)
}

// maxMessage bounds what one cause may add to a condition, in bytes: the API server quotes whole
// objects in some of them.
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

func isAdmissionDenial(f failure) bool {
	return strings.Contains(f.message, "denied the request") ||
		strings.Contains(f.message, "denied request") ||
		strings.Contains(f.message, "violates PodSecurity")
}

// isUnservedKind tells the 404 of a kind that is not served from that of a missing namespace.
func isUnservedKind(f failure) bool {
	return meta.IsNoMatchError(f.error) ||
		apierrors.IsNotFound(f.error) && strings.Contains(f.Error(), "the server could not find the requested resource")
}

// isMissingNamespace tells the 404 of a namespace from that of an object.
func isMissingNamespace(f failure) bool {
	return apierrors.HasStatusCause(f.error, corev1.NamespaceTerminatingCause) ||
		apierrors.IsNotFound(f.error) && f.status.Details != nil && f.status.Details.Kind == "namespaces"
}

// isReplaced: another object has the name than the one that was read, or it has another controller.
// The API server answers the first by calling the UID immutable.
func isReplaced(f failure) bool {
	return apierrors.IsInvalid(f.error) && slices.ContainsFunc(f.causes(), func(c metav1.StatusCause) bool {
		return c.Field == "metadata.uid" || c.Field == "metadata.ownerReferences" && strings.Contains(c.Message, "Only one reference can have Controller set to true")
	})
}

func isInvalid(f failure) bool {
	return apierrors.IsInvalid(f.error) || apierrors.IsBadRequest(f.error) || isMalformed(f)
}

func isImmutable(f failure) bool {
	return isInvalid(f) && slices.ContainsFunc(f.causes(), func(c metav1.StatusCause) bool { return immutable.MatchString(c.Message) })
}

// isMalformed: the configuration does not fit the schema, such as a list that has a key twice. The
// API server answers that with code 500 and without a reason.
func isMalformed(f failure) bool {
	return strings.HasPrefix(f.message, "failed to create typed patch object ")
}

// isUnavailable is also true for what is no answer of the API server at all.
func isUnavailable(f failure) bool {
	err := f.error
	return f.status.Status == "" || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err)
}
