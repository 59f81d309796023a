package fakecloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// serveAdmin serves the admin API and the data plane.
func (s *Server) serveAdmin(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // The client closed the connection.
	}
	answer, err := s.admin(r, body)
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	if err != nil {
		w.WriteHeader(adminStatus(err))
		writeJSON(w, map[string]any{"error": err.Error()})
		return
	}
	writeJSON(w, answer)
}

var errNoSuchPage = errors.New("unknown admin request; see docs/fakecloud.md")

func adminStatus(err error) int {
	var refusal *Error
	switch {
	case errors.Is(err, errNoSuchPage):
		return http.StatusNotFound
	case errors.As(err, &refusal):
		return refusal.Status
	default:
		return http.StatusBadRequest
	}
}

func (s *Server) admin(r *http.Request, body []byte) (any, error) {
	query := r.URL.Query()
	if account, data := strings.CutPrefix(r.URL.Path, "/_data/"); data {
		return map[string]any{"account": account, "data": "readable"}, s.ReadData(account)
	}
	switch r.Method + " " + strings.TrimPrefix(r.URL.Path, "/_admin/") {
	case "GET state":
		return s.State(), nil
	case "GET ledger":
		return s.ledgerSince(query.Get("since"), query.Get("resource"))
	case "GET counts":
		return s.Counts(query.Get("resource")), nil
	case "GET orphans":
		return s.Orphans(), nil
	case "GET knobs":
		return s.Knobs(), nil
	case "PUT knobs":
		return s.putKnobs(query.Get("preset"), body)
	case "POST faults":
		var fault Fault
		if err := json.Unmarshal(body, &fault); err != nil {
			return nil, fmt.Errorf("reading the fault: %w", err)
		}
		s.Inject(fault)
		return done()
	case "POST advance":
		return s.advance(query.Get("by"))
	case "POST seed":
		return s.seed(body)
	case "POST meddle":
		return s.meddleBy(body)
	}
	return nil, errNoSuchPage
}

func done() (any, error) { return map[string]any{"done": true}, nil }

func (s *Server) ledgerSince(since, resource string) (any, error) {
	first := 0
	if since != "" {
		var err error
		if first, err = strconv.Atoi(since); err != nil {
			return nil, fmt.Errorf("since: %w", err)
		}
	}
	return slices.DeleteFunc(s.Ledger(), func(e Entry) bool {
		return e.Sequence <= first || !strings.Contains(strings.ToLower(e.Resource), strings.ToLower(resource))
	}), nil
}

func (s *Server) putKnobs(preset string, body []byte) (any, error) {
	knobs := s.Knobs()
	if preset != "" {
		var err error
		if knobs, err = Preset(preset); err != nil {
			return nil, err
		}
	}
	if len(body) > 0 {
		var err error
		if knobs, err = knobs.merge(body); err != nil {
			return nil, err
		}
	}
	s.SetKnobs(knobs)
	return s.Knobs(), nil
}

// stepper is a clock that can be advanced, such as a fake clock.
type stepper interface{ Step(time.Duration) }

func (s *Server) advance(by string) (any, error) {
	d, err := time.ParseDuration(by)
	if err != nil {
		return nil, fmt.Errorf("by: %w", err)
	}
	clock, fake := s.clock.(stepper)
	if !fake {
		return nil, errors.New("this server uses the real clock, which cannot be advanced")
	}
	clock.Step(d)
	return map[string]any{"time": s.clock.Now()}, nil
}

func (s *Server) seed(body []byte) (any, error) {
	var request struct {
		Demo         bool   `json:"demo"`
		Subscription string `json:"subscription"`
		Group        string `json:"group"`
		Location     string `json:"location"`
		Vault        string `json:"vault"`
		VaultSpec    `json:",inline"`
		Key          string            `json:"key"`
		KeySpec      KeySpec           `json:"keySpec"`
		Account      string            `json:"account"`
		Tags         map[string]string `json:"tags"`
		Client       string            `json:"client"`
		Secret       string            `json:"secret"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, fmt.Errorf("reading the seed request: %w", err)
	}
	if request.Demo {
		return s.SeedDemo(), nil
	}
	if request.Location == "" {
		request.Location = "westeurope"
	}
	request.VaultSpec.Location = request.Location
	if request.Subscription != "" {
		s.SeedSubscription(request.Subscription, request.Subscription)
	}
	if request.Group != "" {
		s.SeedGroup(request.Subscription, request.Group, request.Location)
	}
	if request.Vault != "" {
		s.SeedVault(request.Subscription, request.Group, request.Vault, request.VaultSpec)
	}
	if request.Client != "" {
		s.RegisterClient(request.Client, request.Secret)
	}
	if request.Account != "" {
		if err := s.SeedAccount(request.Subscription, request.Group, request.Account, request.Tags); err != nil {
			return nil, err
		}
	}
	if request.Key != "" {
		version, err := s.SeedKey(request.Vault, request.Key, request.KeySpec)
		return map[string]any{"version": version}, err
	}
	return done()
}

// meddling is the body of a meddle request; each action uses some of the fields.
type meddling struct {
	Action    string            `json:"action"`
	Account   string            `json:"account"`
	Principal string            `json:"principal"`
	Identity  string            `json:"identity"`
	Vault     string            `json:"vault"`
	Key       string            `json:"key"`
	Version   string            `json:"version"`
	Scope     string            `json:"scope"`
	Name      string            `json:"name"`
	Level     string            `json:"level"`
	Tags      map[string]string `json:"tags"`
}

// actions are the meddle actions by name.
var actions = map[string]func(*Server, meddling) error{
	"usePlatformKeys": func(s *Server, m meddling) error { return s.UsePlatformKeys(m.Account) },
	"useKey":          func(s *Server, m meddling) error { return s.UseKey(m.Account, m.Vault, m.Key, m.Version) },
	"useIdentity":     func(s *Server, m meddling) error { return s.UseIdentity(m.Account, m.Identity) },
	"regenerateKey":   func(s *Server, m meddling) error { return s.RegenerateKey(m.Account, m.Key) },
	"setTags":         func(s *Server, m meddling) error { return s.SetTags(m.Account, m.Tags) },
	"dropIdentity":    func(s *Server, m meddling) error { return s.DropIdentity(m.Account) },
	"deleteAccount":   func(s *Server, m meddling) error { return s.DeleteAccount(m.Account) },
	"removeGrants": func(s *Server, m meddling) error {
		if m.Principal == "" {
			m.Principal = s.Principal(m.Account)
		}
		return s.RemoveGrants(m.Principal)
	},
	"lock":   func(s *Server, m meddling) error { return s.Lock(m.Scope, m.Name, m.Level) },
	"unlock": func(s *Server, m meddling) error { return s.Unlock(m.Scope) },
	"rotateKey": func(s *Server, m meddling) error {
		_, err := s.RotateKey(m.Vault, m.Key)
		return err
	},
	"enableKey":        func(s *Server, m meddling) error { return s.EnableKey(m.Vault, m.Key, m.Version, true) },
	"disableKey":       func(s *Server, m meddling) error { return s.EnableKey(m.Vault, m.Key, m.Version, false) },
	"deleteKey":        func(s *Server, m meddling) error { return s.DeleteKey(m.Vault, m.Key) },
	"deleteKeyVersion": func(s *Server, m meddling) error { return s.DeleteKeyVersion(m.Vault, m.Key, m.Version) },
	"recoverKey":       func(s *Server, m meddling) error { return s.RecoverKey(m.Vault, m.Key) },
	"enableVault":      func(s *Server, m meddling) error { return s.EnableVault(m.Vault, true) },
	"disableVault":     func(s *Server, m meddling) error { return s.EnableVault(m.Vault, false) },
	"deleteVault":      func(s *Server, m meddling) error { return s.DeleteVault(m.Vault) },
	"recoverVault":     func(s *Server, m meddling) error { return s.RecoverVault(m.Vault) },
	"unprotectVault":   func(s *Server, m meddling) error { return s.SetPurgeProtection(m.Vault, false) },
	"protectVault":     func(s *Server, m meddling) error { return s.SetPurgeProtection(m.Vault, true) },
}

func (s *Server) meddleBy(body []byte) (any, error) {
	var m meddling
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, fmt.Errorf("reading the meddle request: %w", err)
	}
	action, known := actions[m.Action]
	if !known {
		return nil, fmt.Errorf("unknown action %q; use one of %s", m.Action, strings.Join(sortedKeys(actions), ", "))
	}
	if err := action(s, m); err != nil {
		return nil, err
	}
	return done()
}
