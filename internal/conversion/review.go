package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
)

// answer responds to a ConversionReview of the API server, and returns its result for metrics. A conversion that fails is
// part of the response; the error is that of a request that is not a ConversionReview.
func answer(body []byte) ([]byte, string, error) {
	r := review{in: scanner{data: body}}
	err := r.in.object(r.member)
	if err == nil && r.response == nil && r.uid != "" && r.to != "" && r.objects > 0 {
		// The objects come first, and not last as in what the API server sends.
		r.in.pos = r.objects
		err = r.convert()
	}
	var failed *FieldError
	switch {
	case errors.As(err, &failed):
		response, err := failure(r.uid, failed)
		return response, resultFailed, err
	case err != nil:
		return nil, resultRefused, fmt.Errorf("parsing the ConversionReview: %w", err)
	case r.response == nil:
		return nil, resultRefused, errors.New("parsing the ConversionReview: request.uid, request.desiredAPIVersion or request.objects is missing")
	}
	return append(r.response, `}}`...), resultConverted, nil
}

// review is what a ConversionReview requests.
type review struct {
	in      scanner
	uid, to string
	// objects is the position of the objects to convert.
	objects int
	// response has all but its end, once the objects are converted.
	response []byte
}

func (r *review) member(key []byte, _ int) error {
	if string(key) != "request" {
		return r.in.skip()
	}
	return r.in.object(func(key []byte, _ int) error {
		switch string(key) {
		case "uid":
			return r.text(&r.uid)
		case "desiredAPIVersion":
			return r.text(&r.to)
		case "objects":
			if r.uid != "" && r.to != "" {
				return r.convert()
			}
			r.objects = r.in.pos
		}
		return r.in.skip()
	})
}

// convert converts the array of objects at the position of the input.
func (r *review) convert() error {
	w := &writer{in: r.in, to: r.to, out: append(success(r.uid, len(r.in.data)), '[')}
	err := w.in.array(func(i int) error {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.copied = w.in.pos
		if err := w.object(); err != nil {
			return err
		}
		w.out = append(w.out, w.in.data[w.copied:w.in.pos]...)
		return nil
	})
	r.in, r.response = w.in, append(w.out, ']')
	return err
}

func (r *review) text(into *string) error {
	value, err := r.in.value()
	if err != nil {
		return err
	}
	return json.Unmarshal(value, into)
}

// success is a response up to the converted objects, with room for them.
func success(uid string, size int) []byte {
	quoted, _ := json.Marshal(uid) // a string always encodes
	response := make([]byte, 0, size+size/16+256)
	response = append(response, `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":`...)
	response = append(response, quoted...)
	return append(response, `,"result":{"metadata":{},"status":"Success"},"convertedObjects":`...)
}

// failure is the response to a conversion that fails. The API server puts the message in its error.
func failure(uid string, err error) ([]byte, error) {
	type status struct {
		Metadata struct{} `json:"metadata"`
		Status   string   `json:"status"`
		Reason   string   `json:"reason"`
		Message  string   `json:"message"`
	}
	var response struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Response   struct {
			UID     string   `json:"uid"`
			Result  status   `json:"result"`
			Objects []string `json:"convertedObjects"`
		} `json:"response"`
	}
	response.Kind, response.APIVersion = "ConversionReview", "apiextensions.k8s.io/v1"
	response.Response.UID, response.Response.Objects = uid, []string{}
	response.Response.Result = status{Status: "Failure", Reason: "Invalid", Message: err.Error()}
	return json.Marshal(response)
}
