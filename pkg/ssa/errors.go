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
	immutable      = regexp.MustCompile(`(?i)field is immutable|is immutable|may not be (changed|unset)|cannot be changed|updates to .* are forbidden`)
)

// failure is an error of the API server, in the parts by which it is judged.
type failure struct {
	error
	status  metav1.Status
	message string
}

// classes tell failures apart; the first that fits counts.
var classes = []struct {
	is   func(failure) bool
	tell func(*Error, identity, failure)
}{
	{isUnservedKind, (*Error).kindMissing},
	// Before the status codes, because a webhook may choose any code for its refusal.
	{isAdmissionDenial, (*Error).denied},
	{func(f failure) bool { return apierrors.IsConflict(f.error) }, (*Error).conflict},
	{isMissingNamespace, (*Error).namespaceTerminating},
	// The object was there when it was read.
	{func(f failure) bool { return apierrors.IsNotFound(f.error) }, (*Error).stale},
	{func(f failure) bool { return strings.Contains(f.message, "exceeded quota") }, (*Error).quotaExceeded},
	{func(f failure) bool { return apierrors.IsForbidden(f.error) && accessDenied.MatchString(f.message) }, (*Error).forbidden},
	// By an admission plugin, such as LimitRanger.
	{func(f failure) bool { return apierrors.IsForbidden(f.error) }, (*Error).denied},
	{isSupplanted, (*Error).stale},
	{isInvalid, (*Error).invalid},
	{isUnavailable, (*Error).unavailable},
	{func(failure) bool { return true }, (*Error).failed},
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
			class.tell(typed, id, f)
			break
		}
	}
	return typed
}

func (e *Error) kindMissing(id identity, _ failure) {
	e.Reason = ReasonKindMissing
	e.Message = fmt.Sprintf("the cluster does not serve %s %s; install what provides it, or leave the option out", id.gvk.GroupVersion(), id.gvk.Kind)
}

func (e *Error) denied(_ identity, f failure) {
	e.Reason = ReasonAdmissionDenied
	e.Message = shorten(after(f.message, "is forbidden: "))
}

func (e *Error) namespaceTerminating(id identity, _ failure) {
	e.Reason, e.Transient = ReasonNamespaceTerminating, true
	e.Message = fmt.Sprintf("namespace %s is being deleted or does not exist", id.key.Namespace)
}

func (e *Error) stale(identity, failure) {
	e.Reason, e.Transient = ReasonStale, true
	e.Message = "it changed since it was read; it is read again"
}

func (e *Error) quotaExceeded(_ identity, f failure) {
	e.Reason = ReasonQuotaExceeded
	e.Message = after(quotaUsed.ReplaceAllString(f.message, ""), "is forbidden: ") + "; raise the quota or ask for less"
}

func (e *Error) forbidden(_ identity, f failure) {
	e.Reason = ReasonForbidden
	e.Message = f.message + "; grant the manager's service account this permission"
}

func (e *Error) unavailable(_ identity, f failure) {
	e.Reason, e.Transient = ReasonAPIUnavailable, true
	e.Message = "the API server did not take the request; it is tried again"
	if webhook := webhookFailure.FindString(f.message); webhook != "" {
		// What lies between names addresses and ports, which change from try to try.
		e.Message = "an admission webhook did not answer: " + webhook + f.message[strings.LastIndex(f.message, ": "):]
	}
}

func (e *Error) failed(_ identity, f failure) {
	e.Reason = ReasonFailed
	e.Message = f.Error()
}

func (e *Error) conflict(id identity, f failure) {
	if f.status.Details != nil {
		for _, cause := range f.status.Details.Causes {
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
		e.stale(id, f)
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

func (e *Error) invalid(_ identity, f failure) {
	e.Reason = ReasonInvalid
	var problems []string
	if f.status.Details != nil {
		for _, cause := range f.status.Details.Causes {
			if immutable.MatchString(cause.Message) {
				e.Reason = ReasonImmutableField
			}
			problems = append(problems, strings.TrimSpace(cause.Field+": "+shorten(cause.Message)))
		}
	}
	if len(problems) == 0 {
		problem := f.message
		if isMalformed(f) {
			problem = after(problem, "): ") // the rest names the object again
		}
		problems = []string{shorten(problem)}
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

// isMissingNamespace tells the 404 of a namespace from that of an object that is gone.
func isMissingNamespace(f failure) bool {
	return apierrors.HasStatusCause(f.error, corev1.NamespaceTerminatingCause) ||
		apierrors.IsNotFound(f.error) && f.status.Details != nil && f.status.Details.Kind == "namespaces"
}

// isSupplanted: there is another object of the name than the one that was read, or it has got
// another controller. The API server says the first by calling the UID immutable.
func isSupplanted(f failure) bool {
	if !apierrors.IsInvalid(f.error) || f.status.Details == nil {
		return false
	}
	return slices.ContainsFunc(f.status.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.uid" || c.Field == "metadata.ownerReferences" && strings.Contains(c.Message, "Only one reference can have Controller set to true")
	})
}

func isInvalid(f failure) bool {
	return apierrors.IsInvalid(f.error) || apierrors.IsBadRequest(f.error) || isMalformed(f)
}

// isMalformed: the configuration does not fit the schema, such as a list that has a key twice. The
// API server answers that with code 500 and without a reason.
func isMalformed(f failure) bool {
	return strings.HasPrefix(f.message, "failed to create typed patch object ")
}

// isUnavailable holds for what is no answer of the API server at all, too.
func isUnavailable(f failure) bool {
	err := f.error
	return f.status.Status == "" || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err)
}
