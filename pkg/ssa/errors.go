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
	// ReasonConflict: another manager holds a field that we share, and we do not force.
	ReasonConflict Reason = "Conflict"
	// ReasonNotOwned: an object of the name exists, no controller owns it, and the adoption policy is Never.
	ReasonNotOwned Reason = "NotOwned"
	// ReasonOwnedByAnother: an object of the name exists and another controller owns it.
	ReasonOwnedByAnother Reason = "OwnedByAnother"
	// ReasonImmutableField: the change is one that the kind does not allow on an existing object.
	ReasonImmutableField Reason = "ImmutableField"
	// ReasonQuotaExceeded: a ResourceQuota refuses.
	ReasonQuotaExceeded Reason = "QuotaExceeded"
	// ReasonAdmissionDenied: an admission webhook, policy or plugin refuses.
	ReasonAdmissionDenied Reason = "AdmissionDenied"
	// ReasonInvalid: the API server finds a value invalid.
	ReasonInvalid Reason = "Invalid"
	// ReasonForbidden: the manager's service account lacks a permission.
	ReasonForbidden Reason = "Forbidden"
	// ReasonKindMissing: the API server does not serve the kind.
	ReasonKindMissing Reason = "KindMissing"
	// ReasonNamespaceTerminating: the namespace is gone or on its way.
	ReasonNamespaceTerminating Reason = "NamespaceTerminating"
	// ReasonAPIUnavailable: the API server or a webhook did not answer, or asked to come back later.
	ReasonAPIUnavailable Reason = "APIUnavailable"
	// ReasonStale: the object changed between the read and the write; a fresh read helps.
	ReasonStale Reason = "Stale"
	// ReasonTerminating: the object is being deleted; once it is gone it can be made anew.
	ReasonTerminating Reason = "Terminating"
	// ReasonFailed: none of the others.
	ReasonFailed Reason = "Failed"
)

// FieldConflict is a field that another manager holds.
type FieldConflict struct {
	// Path is the field, such as .spec.replicas.
	Path string
	// Manager holds it.
	Manager string
}

// Error is why an object could not be applied, in the words of the person who has to do something
// about it. Match it with errors.As; the API server's own error is wrapped.
type Error struct {
	Reason Reason
	// Object is the kind and name of what was applied.
	Object string
	// Message says what is wrong and what to do. It holds no counter, time or generated name, so
	// that it is the same from try to try.
	Message string
	// Conflicts lists the fields of a ReasonConflict.
	Conflicts []FieldConflict
	// Transient is true if waiting helps, without any change by a person.
	Transient bool
	cause     error
}

// Error implements error.
func (e *Error) Error() string { return e.Object + ": " + e.Message }

// Unwrap returns the API server's error, if there was one.
func (e *Error) Unwrap() error { return e.cause }

// ConditionReason is the reason for a condition that reports this error.
func (e *Error) ConditionReason() string { return string(e.Reason) }

// Permanent is true if trying again does not help until a person changes something.
func (e *Error) Permanent() bool {
	switch e.Reason {
	case ReasonInvalid, ReasonImmutableField, ReasonNotOwned, ReasonOwnedByAnother:
		return !e.Transient
	default:
		return false
	}
}

// IsStale says whether the write failed because the object had changed since it was read: read
// again, and nothing is wrong.
func IsStale(err error) bool {
	var typed *Error
	return errors.As(err, &typed) && typed.Reason == ReasonStale
}

func terminating(id identity) *Error {
	return &Error{
		Reason:    ReasonTerminating,
		Object:    id.String(),
		Message:   "it is being deleted; it is created anew once it is gone",
		Transient: true,
	}
}

var (
	conflictManager = regexp.MustCompile(`^conflict with "([^"]*)"`)
	quotaUsed       = regexp.MustCompile(`, used: [^,]*(,[^,:]*=[^,]*)*`)
	// accessDenied tells a permission that is missing from an admission plugin that refuses: the
	// API server answers both with Forbidden.
	accessDenied   = regexp.MustCompile(`(?i)\buser "[^"]*" (cannot |\(groups=)|cannot set blockOwnerDeletion`)
	webhookFailure = regexp.MustCompile(`failed calling webhook "[^"]*"`)
	twoControllers = regexp.MustCompile(`Only one reference can have Controller set to true`)
	immutable      = regexp.MustCompile(`(?i)field is immutable|is immutable|may not be (changed|unset)|cannot be changed|updates to .* are forbidden`)
)

// classify turns an error of the API server into a typed one.
func classify(id identity, err error) error {
	if err == nil {
		return nil
	}
	typed := &Error{Object: id.String(), cause: err}
	status := metav1.Status{}
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		status = api.Status()
	}
	message := strings.TrimSpace(status.Message)

	switch {
	case meta.IsNoMatchError(err), isUnservedKind(err):
		typed.Reason = ReasonKindMissing
		typed.Message = fmt.Sprintf("the cluster does not serve %s %s; install what provides it, or leave the option out", id.gvk.GroupVersion(), id.gvk.Kind)
	case isAdmissionDenial(message):
		// First, because a webhook may choose any status code for its refusal.
		typed.Reason = ReasonAdmissionDenied
		typed.Message = shorten(after(message, "is forbidden: "))
	case apierrors.IsConflict(err):
		typed.conflict(status)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), isMissingNamespace(err, status):
		typed.Reason, typed.Transient = ReasonNamespaceTerminating, true
		typed.Message = fmt.Sprintf("namespace %s is being deleted or does not exist", id.key.Namespace)
	case apierrors.IsNotFound(err):
		typed.stale()
	case strings.Contains(message, "exceeded quota"):
		typed.Reason = ReasonQuotaExceeded
		typed.Message = after(quotaUsed.ReplaceAllString(message, ""), "is forbidden: ") + "; raise the quota or ask for less"
	case apierrors.IsForbidden(err) && accessDenied.MatchString(message):
		typed.Reason = ReasonForbidden
		typed.Message = message + "; grant the manager's service account this permission"
	case apierrors.IsForbidden(err):
		typed.Reason = ReasonAdmissionDenied
		typed.Message = shorten(after(message, "is forbidden: "))
	case apierrors.IsInvalid(err) && twoControllers.MatchString(message):
		// Somebody else has become its controller since it was read.
		typed.stale()
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), isMalformed(message):
		typed.invalid(status, message)
	case api == nil, isUnavailable(err):
		typed.Reason, typed.Transient = ReasonAPIUnavailable, true
		typed.Message = "the API server did not take the request; it is tried again"
		if failure := webhookFailure.FindString(message); failure != "" {
			typed.Message = "an admission webhook did not answer: " + failure + message[strings.LastIndex(message, ": "):]
		}
	default:
		typed.Reason = ReasonFailed
		typed.Message = err.Error()
	}
	return typed
}

func (e *Error) stale() {
	e.Reason, e.Transient = ReasonStale, true
	e.Message = "it changed since it was read; it is read again"
}

func (e *Error) conflict(status metav1.Status) {
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Type != metav1.CauseTypeFieldManagerConflict {
				continue
			}
			holder := ""
			if match := conflictManager.FindStringSubmatch(cause.Message); match != nil {
				holder = match[1]
			}
			e.Conflicts = append(e.Conflicts, FieldConflict{Path: cause.Field, Manager: holder})
		}
	}
	if len(e.Conflicts) == 0 {
		e.stale()
		return
	}
	e.Reason = ReasonConflict
	held := make([]string, 0, len(e.Conflicts))
	for _, c := range e.Conflicts {
		held = append(held, fmt.Sprintf("%s is held by %q", c.Path, c.Manager))
	}
	slices.Sort(held)
	e.Message = strings.Join(held, ", ") + "; let that manager give the field up, or agree on its value"
}

func (e *Error) invalid(status metav1.Status, message string) {
	e.Reason = ReasonInvalid
	var problems []string
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if immutable.MatchString(cause.Message) {
				e.Reason = ReasonImmutableField
			}
			problems = append(problems, strings.TrimSpace(cause.Field+": "+shorten(cause.Message)))
		}
	}
	if len(problems) == 0 {
		if isMalformed(message) {
			message = after(message, "): ") // the rest names the object again
		}
		problems = []string{shorten(message)}
	}
	e.Message = strings.Join(problems, "; ")
	if e.Reason == ReasonImmutableField {
		e.Message += "; put the old value back, or delete the object so that it is made anew"
	}
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

func isAdmissionDenial(message string) bool {
	return strings.Contains(message, "denied the request") ||
		strings.Contains(message, "denied request") ||
		strings.Contains(message, "violates PodSecurity")
}

// isUnservedKind tells the 404 of a kind that is not served from that of a missing namespace.
func isUnservedKind(err error) bool {
	return apierrors.IsNotFound(err) && strings.Contains(err.Error(), "the server could not find the requested resource")
}

// isMissingNamespace tells the 404 of a namespace from that of an object that is gone.
func isMissingNamespace(err error, status metav1.Status) bool {
	return apierrors.IsNotFound(err) && status.Details != nil && status.Details.Kind == "namespaces"
}

// malformed is how the API server begins to say that a configuration does not fit the schema,
// such as a list that has a key twice. It answers 500 and gives no reason.
const malformed = "failed to create typed patch object "

func isMalformed(message string) bool { return strings.HasPrefix(message, malformed) }

func isUnavailable(err error) bool {
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err)
}
