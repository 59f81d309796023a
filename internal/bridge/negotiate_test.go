package bridge

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
)

func TestContentOfRequests(t *testing.T) {
	for name, c := range map[string]struct {
		contentType string
		accept      []string
		status      int // 0 if it is served
	}{
		"both types":                   {jsonType, []string{"application/json, text/event-stream"}, 0},
		"both types, with parameters":  {"application/json; charset=utf-8", []string{"text/event-stream;q=0.5 , Application/JSON;q=0.1"}, 0},
		"both types, in two headers":   {jsonType, []string{"application/json", "text/event-stream"}, 0},
		"all types":                    {jsonType, []string{"text/html, */*"}, 0},
		"all types of each":            {jsonType, []string{"application/*, text/*"}, 0},
		"no events":                    {jsonType, []string{"application/json"}, 406},
		"no JSON":                      {jsonType, []string{"text/event-stream, text/*"}, 406},
		"others of each":               {jsonType, []string{"application/xml, text/html"}, 406},
		"no Accept":                    {jsonType, nil, 406},
		"no type that can be read":     {jsonType, []string{"/, ;"}, 406},
		"another content":              {"text/plain", []string{"*/*"}, 415},
		"no content type":              {"", []string{"*/*"}, 415},
		"a content type that is wrong": {"application/json; =", []string{"*/*"}, 415},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := acceptable(requestWith(t, http.Header{"Content-Type": {c.contentType}, "Accept": c.accept}))
			switch c.status {
			case 0:
				g.Expect(f).To(BeNil())
				return
			case http.StatusNotAcceptable:
				g.Expect(f).To(MatchError("Accept must contain both application/json and text/event-stream"))
			default:
				g.Expect(f).To(MatchError("Content-Type must be application/json"))
			}
			g.Expect([]int{f.Status, f.Code}).To(Equal([]int{c.status, codeInvalidRequest}))
		})
	}
}
