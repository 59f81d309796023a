package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/fixpoint-dev/fixpoint/internal/lease"
)

// Kind sorts what can go wrong by what has to be done about it.
type Kind string

// The kinds of failure.
const (
	// NotFound: the resource is not there.
	NotFound Kind = "NotFound"
	// GroupMissing: the resource group, or the subscription, is not there.
	GroupMissing Kind = "GroupMissing"
	// Throttled: too many requests; RetryAfter says when the next one is welcome.
	Throttled Kind = "Throttled"
	// InProgress: another operation on the resource has to end first.
	InProgress Kind = "InProgress"
	// Propagating: a grant or an identity has not reached every part of the cloud yet.
	Propagating Kind = "Propagating"
	// NameTaken: somebody else has the globally unique name, or a deleted resource still holds it.
	NameTaken Kind = "NameTaken"
	// AlreadyGranted: the principal has the role already, under another name.
	AlreadyGranted Kind = "AlreadyGranted"
	// Locked: a management lock forbids it.
	Locked Kind = "Locked"
	// Disallowed: a policy of the subscription forbids it.
	Disallowed Kind = "Disallowed"
	// Denied: the caller lacks a permission; the message names the action and the scope.
	Denied Kind = "Denied"
	// NoAssertion: what the credential is to be had for, such as a ServiceAccount's token, is not there.
	NoAssertion Kind = "NoAssertion"
	// BadCredentials: the credential is not accepted.
	BadCredentials Kind = "BadCredentials"
	// Invalid: the cloud refuses a value, and will refuse it again.
	Invalid Kind = "Invalid"
	// Unreachable: no answer, or an answer that says nothing about the request.
	Unreachable Kind = "Unreachable"
)

// Target is what a call is about, which tells what permission it takes.
type Target string

// The targets of calls.
const (
	OnAccount Target = "account"
	OnVault   Target = "vault"
	OnRoles   Target = "roles"
)

// Error is a failed call. Match it with errors.As, or its kind with [Is].
type Error struct {
	Kind   Kind
	Target Target
	// Code is the cloud's own, such as StorageAccountAlreadyTaken.
	Code string
	// Message is the cloud's own, without request ids and times, so that it is the same from try to try.
	Message string
	// RetryAfter is when the cloud asks to come back; zero if it does not say.
	RetryAfter time.Duration
	doing      string
	cause      error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("%s: %s", e.doing, e.Message)
	}
	return fmt.Sprintf("%s: %s (%s)", e.doing, e.Message, e.Code)
}

// Unwrap returns the SDK's error.
func (e *Error) Unwrap() error { return e.cause }

// AsError finds a failed call in an error.
func AsError(err error) (*Error, bool) {
	var typed *Error
	ok := errors.As(err, &typed)
	return typed, ok
}

// Is says whether the error is of one of the kinds.
func Is(err error, kinds ...Kind) bool {
	typed, ok := AsError(err)
	return ok && slices.Contains(kinds, typed.Kind)
}

// kindOfCode sorts the cloud's error codes. Codes that are not here are sorted by the HTTP status.
var kindOfCode = map[string]Kind{
	"ResourceGroupNotFound":                          GroupMissing,
	"SubscriptionNotFound":                           GroupMissing,
	"TooManyRequests":                                Throttled,
	"SubscriptionRequestsThrottled":                  Throttled,
	"StorageAccountOperationInProgress":              InProgress,
	"StorageAccountIsNotProvisioned":                 InProgress,
	"ConflictError":                                  InProgress,
	"AnotherOperationInProgress":                     InProgress,
	"PreconditionFailed":                             InProgress,
	"KeyVaultAuthenticationFailure":                  Propagating,
	"KeyVaultAccessForbidden":                        Propagating,
	"PrincipalNotFound":                              Propagating,
	"StorageAccountAlreadyTaken":                     NameTaken,
	"StorageAccountAlreadyExists":                    NameTaken,
	"StorageAccountInAnotherResourceGroup":           NameTaken,
	"AccountAlreadyExists":                           NameTaken,
	"StorageAccountNameInRecoverableState":           NameTaken,
	"ObjectIsDeletedButRecoverable":                  NameTaken,
	"InvalidResourceLocation":                        NameTaken,
	"RoleAssignmentExists":                           AlreadyGranted,
	"ScopeLocked":                                    Locked,
	"RequestDisallowedByPolicy":                      Disallowed,
	"AuthorizationFailed":                            Denied,
	"LinkedAuthorizationFailed":                      Denied,
	"AuthenticationFailed":                           BadCredentials,
	"InvalidAuthenticationToken":                     BadCredentials,
	"InvalidAuthenticationTokenTenant":               BadCredentials,
	"ExpiredAuthenticationToken":                     BadCredentials,
	"AccountPropertyCannotBeUpdated":                 Invalid,
	"RoleAssignmentUpdateNotPermitted":               Invalid,
	"RoleAssignmentLimitExceeded":                    Invalid,
	"MaxStorageAccountsCountPerSubscriptionExceeded": Invalid,
	"StorageAccountCountExceedsLimitPerRegion":       Invalid,
	"SubscriptionNotRegistered":                      Invalid,
	"MissingSubscriptionRegistration":                Invalid,
	"ReadOnlyDisabledSubscription":                   Invalid,
}

// classify turns an error of the SDK into a typed one.
func classify(target Target, doing string, err error) error {
	if err == nil {
		return nil
	}
	if refusal, refused := lease.Refused(err); refused {
		return fmt.Errorf("%s: %w", doing, refusal) // not the cloud's doing
	}
	typed := &Error{Kind: Unreachable, Target: target, doing: doing, cause: err, Message: "the cloud did not answer"}
	var response *azcore.ResponseError
	var assertion *AssertionError
	var credential interface{ NonRetriable() }
	switch {
	case errors.As(err, &response):
		typed.fromResponse(response)
	case errors.As(err, &assertion):
		typed.Kind, typed.Message = NoAssertion, assertion.Error()
	case isDirectoryDown(err):
		typed.Message = "the cloud's directory did not answer"
	case errors.As(err, &credential):
		typed.Kind, typed.Message = BadCredentials, "the directory does not accept the credential"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		typed.Message = "the cloud did not answer in time"
	}
	return typed
}

// isDirectoryDown tells a directory that refuses from one that cannot be reached, for which the SDK
// has the same error.
func isDirectoryDown(err error) bool {
	var refused *azidentity.AuthenticationFailedError
	if !errors.As(err, &refused) {
		return false
	}
	return refused.RawResponse == nil || refused.RawResponse.StatusCode >= http.StatusInternalServerError ||
		refused.RawResponse.StatusCode == http.StatusTooManyRequests
}

func (e *Error) fromResponse(response *azcore.ResponseError) {
	e.Code = response.ErrorCode
	e.Message = cloudMessage(response)
	e.RetryAfter = retryAfter(response.RawResponse)
	if kind, ok := kindOfCode[response.ErrorCode]; ok {
		e.Kind = kind
		return
	}
	switch status := response.StatusCode; {
	case status == http.StatusNotFound:
		e.Kind = NotFound
	case status == http.StatusTooManyRequests:
		e.Kind = Throttled
	case status == http.StatusUnauthorized:
		e.Kind = BadCredentials
	case status == http.StatusForbidden:
		e.Kind = Denied
	case status == http.StatusConflict, status == http.StatusPreconditionFailed:
		e.Kind = InProgress
	case status >= http.StatusBadRequest && status < http.StatusInternalServerError:
		e.Kind = Invalid
	default:
		e.Kind, e.Message = Unreachable, "the cloud failed with HTTP status "+strconv.Itoa(status)
	}
}

// cloudMessage is the message in the error body. The SDK's own text holds the whole request and
// response, with ids and times that differ each time.
func cloudMessage(response *azcore.ResponseError) string {
	body, err := errorBody(response.RawResponse)
	if err == nil && body.Error.Message != "" {
		return strings.TrimSpace(withoutRequestIDs(body.Error.Message))
	}
	return "HTTP status " + strconv.Itoa(response.StatusCode)
}

// retryAfter is when the cloud asks to come back, in the order in which the SDK reads it: in
// milliseconds, in seconds, or as a date. What is no sensible time is none.
func retryAfter(response *http.Response) time.Duration {
	if response == nil {
		return 0
	}
	for _, header := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if wait := times(response.Header.Get(header), time.Millisecond); wait > 0 {
			return wait
		}
	}
	header := response.Header.Get("Retry-After")
	if wait := times(header, time.Second); wait > 0 {
		return wait
	}
	if date, err := http.ParseTime(header); err == nil {
		return min(max(0, time.Until(date)), longestRetryAfter)
	}
	return 0
}

// longestRetryAfter bounds what a broken answer could ask for.
const longestRetryAfter = time.Hour

func times(count string, unit time.Duration) time.Duration {
	n, err := strconv.Atoi(count)
	if err != nil || n <= 0 {
		return 0
	}
	return min(time.Duration(min(n, int(longestRetryAfter/unit)))*unit, longestRetryAfter)
}
