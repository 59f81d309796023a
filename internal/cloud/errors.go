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

// Kind classifies errors by what has to happen next.
type Kind string

// The kinds of errors.
const (
	// NotFound: the resource does not exist.
	NotFound Kind = "NotFound"
	// GroupMissing: the resource group or the subscription does not exist, or is not visible.
	GroupMissing Kind = "GroupMissing"
	// Throttled: too many requests; RetryAfter says when to retry.
	Throttled Kind = "Throttled"
	// InProgress: another operation on the resource is in progress, or has changed it.
	InProgress Kind = "InProgress"
	// Propagating: a role assignment or an identity has not propagated yet.
	Propagating Kind = "Propagating"
	// NameTaken: another account has the globally unique name, or a deleted account reserves it.
	NameTaken Kind = "NameTaken"
	// AlreadyGranted: the principal has the role already, by another role assignment.
	AlreadyGranted Kind = "AlreadyGranted"
	// Locked: a management lock, a deny assignment, or a hold on the data of the account, forbids the request.
	Locked Kind = "Locked"
	// Disallowed: an Azure policy forbids the request.
	Disallowed Kind = "Disallowed"
	// OutOfScope: the credential may not be used for the resource; no request was sent.
	OutOfScope Kind = "OutOfScope"
	// Denied: the credential lacks a permission; the message names the action and the scope.
	Denied Kind = "Denied"
	// NoAssertion: the source of the credential, such as a ServiceAccount's token, does not exist.
	NoAssertion Kind = "NoAssertion"
	// BadCredentials: the credential was rejected.
	BadCredentials Kind = "BadCredentials"
	// Invalid: a value was rejected; a retry does not help.
	Invalid Kind = "Invalid"
	// Unreachable: no response, or a server error.
	Unreachable Kind = "Unreachable"
)

// Target is the resource of a call, from which the required role follows.
type Target string

// The targets of calls.
const (
	OnAccount Target = "account"
	OnVault   Target = "vault"
	OnRoles   Target = "roles"
)

// Error is a failed call. Match it with errors.As, or match its kind with [Is].
type Error struct {
	Kind   Kind
	Target Target
	// Resource is the ID of the resource that the call reads or changes. The one of a role is the scope of its assignment.
	Resource string
	// Code is the error code of Azure, such as StorageAccountAlreadyTaken.
	Code string
	// Message is the message of Azure without request IDs and times, so that it does not change between retries.
	Message string
	// RetryAfter is the Retry-After of the response; zero if it has none.
	RetryAfter time.Duration
	doing      string
	cause      error
}

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

// Is says whether the error has one of the kinds.
func Is(err error, kinds ...Kind) bool {
	typed, ok := AsError(err)
	return ok && slices.Contains(kinds, typed.Kind)
}

// kindOfCode maps Azure's error codes. Other codes are classified by the HTTP status.
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
	"AccountProtectedFromDeletion":                   Locked, // by a legal hold or an immutability policy
	"DenyAssignmentAuthorizationFailed":              Locked, // no role helps
	"RequestDisallowedByPolicy":                      Disallowed,
	"AuthorizationFailed":                            Denied,
	"LinkedAuthorizationFailed":                      Denied,
	"ForbiddenByRbac":                                Denied, // with status 400, for keys
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

// classify converts an error of the SDK into an [Error].
func classify(target Target, doing string, err error) error {
	if err == nil {
		return nil
	}
	if refusal, refused := lease.Refused(err); refused {
		return fmt.Errorf("%s: %w", doing, refusal) // not an error of the cloud
	}
	typed := &Error{Kind: Unreachable, Target: target, doing: doing, cause: err, Message: "Azure did not respond"}
	var response *azcore.ResponseError
	var assertion *AssertionError
	switch {
	case errors.As(err, &response):
		typed.fromResponse(response)
	case errors.As(err, &assertion):
		typed.Kind, typed.Message = assertion.kind(), assertion.Error()
	case isDirectoryDown(err):
		typed.Message = "Microsoft Entra ID did not respond"
	case isRejection(err):
		typed.Kind, typed.Message = BadCredentials, "Microsoft Entra ID rejected the credential"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		typed.Message = "Azure did not respond in time"
	}
	return typed
}

// isDirectoryDown distinguishes an unavailable Microsoft Entra ID from one that rejects the credential;
// the SDK returns the same error type for both.
func isDirectoryDown(err error) bool {
	var refused *azidentity.AuthenticationFailedError
	if !errors.As(err, &refused) {
		return false
	}
	return refused.RawResponse == nil || refused.RawResponse.StatusCode >= http.StatusInternalServerError ||
		refused.RawResponse.StatusCode == http.StatusTooManyRequests
}

// isRejection says whether no token was issued for the credential, which a retry does not change. The SDK marks such errors
// as NonRetriable, but wraps other errors in this mark as well, such as a response that was cut: the innermost error counts.
func isRejection(err error) bool {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	_, isMarked := err.(interface{ NonRetriable() })
	return isMarked
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
	case status >= http.StatusBadRequest && status < http.StatusInternalServerError && status != http.StatusRequestTimeout:
		e.Kind = Invalid
	default:
		e.Kind, e.Message = Unreachable, "Azure responded with HTTP status "+strconv.Itoa(status)
	}
}

// cloudMessage returns the message in the error body. The SDK's own text contains the whole request and
// response, with IDs and times that change each time.
func cloudMessage(response *azcore.ResponseError) string {
	if message := strings.TrimSpace(withoutRequestIDs(errorMessage(response.RawResponse))); message != "" {
		return message
	}
	return "HTTP status " + strconv.Itoa(response.StatusCode)
}

// retryAfter reads Retry-After in the order in which the SDK does: milliseconds, seconds, date. Invalid
// values are ignored.
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
	date, _ := http.ParseTime(header) // long ago if it is invalid
	return min(max(0, time.Until(date)), maxRetryAfter)
}

// maxRetryAfter limits Retry-After.
const maxRetryAfter = time.Hour

func times(count string, unit time.Duration) time.Duration {
	n, _ := strconv.Atoi(count) // 0 if it is no number, and the largest number if it is larger
	return time.Duration(min(max(0, n), int(maxRetryAfter/unit))) * unit
}
