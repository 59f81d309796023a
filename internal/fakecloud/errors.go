package fakecloud

import (
	"fmt"
	"net/http"
	"time"
)

// Error is an error response of Azure Resource Manager.
type Error struct {
	Status  int
	Code    string
	Message string
	// RetryAfter is the Retry-After of the response; zero for none.
	RetryAfter time.Duration
	// inner is the code of the inner error, which only the data plane of key vaults has; empty for none.
	inner string
	// challenge is the WWW-Authenticate header.
	challenge string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Message)
}

func (e *Error) body() any {
	body := map[string]any{"code": e.Code, "message": e.Message}
	if e.inner != "" {
		body["innererror"] = map[string]any{"code": e.inner}
	}
	return map[string]any{"error": body}
}

func refuse(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

func badRequest(code, format string, args ...any) *Error {
	return refuse(http.StatusBadRequest, code, format, args...)
}

func conflict(code, format string, args ...any) *Error {
	return refuse(http.StatusConflict, code, format, args...)
}

func notFound(code, format string, args ...any) *Error {
	return refuse(http.StatusNotFound, code, format, args...)
}

func invalidContent(err error) *Error {
	return badRequest("InvalidRequestContent", "The request content was invalid and could not be deserialized: '%v'.", err)
}

func resourceNotFound(kind, name, group string) *Error {
	return notFound("ResourceNotFound", "The Resource '%s/%s' under resource group '%s' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix", kind, name, group)
}

func operationInProgress() *Error {
	return conflict("StorageAccountOperationInProgress", "An operation is currently performing on this storage account that requires exclusive access.")
}

func notProvisioned() *Error {
	return conflict("StorageAccountIsNotProvisioned", "The storage account provisioning state must be 'Succeeded' before executing the operation.")
}

func keyVaultAuthentication() *Error {
	return refuse(http.StatusForbidden, "KeyVaultAuthenticationFailure", "The operation failed because of authentication issue on the keyvault. For more information, see - https://aka.ms/storagekeyvaultaccesspolicy")
}

func preconditionFailed(etag string) *Error {
	return refuse(http.StatusPreconditionFailed, "PreconditionFailed", "The condition '%s' that was given for the resource does not hold.", etag)
}
