package fakecloud

import (
	_ "embed"
	"net/http"
)

//go:embed page.html
var page []byte

func servePage(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	// An error means that the client closed the connection.
	_, _ = w.Write(page)
}
