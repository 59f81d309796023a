package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refuse is an error with the status that the API server uses for it.
func refuse(code int, reason metav1.StatusReason, format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: fmt.Sprintf(format, args...),
	}}
}

func badRequest(format string, args ...any) error {
	return refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, format, args...)
}

func unauthorized(format string, args ...any) error {
	return refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, format, args...)
}

func forbidden(format string, args ...any) error {
	return refuse(http.StatusForbidden, metav1.StatusReasonForbidden, format, args...)
}

func notFound(format string, args ...any) error {
	return refuse(http.StatusNotFound, metav1.StatusReasonNotFound, format, args...)
}

// statusOf is the answer to an error. Errors of the API server keep their status.
func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		status := known.Status()
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		if status.Code == 0 {
			status.Code = http.StatusInternalServerError
		}
		return status
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return statusOf(refuse(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "the body is larger than %d bytes", tooLarge.Limit))
	}
	return statusOf(refuse(http.StatusBadGateway, metav1.StatusReasonInternalError, "%s", err))
}

func writeError(w http.ResponseWriter, err error) {
	status := statusOf(err)
	writeJSON(w, int(status.Code), status)
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	raw, err := json.Marshal(value)
	if err != nil {
		code, raw = http.StatusInternalServerError, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"the answer could not be serialized"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// An error means that the client closed the connection.
	_, _ = w.Write(append(raw, '\n'))
}
