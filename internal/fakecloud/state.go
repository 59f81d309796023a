package fakecloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// State is the current state, for tests and the web page.
type State struct {
	Time          time.Time         `json:"time"`
	Subscriptions []Subscription    `json:"subscriptions"`
	Groups        []Group           `json:"groups"`
	Accounts      []AccountState    `json:"accounts"`
	Vaults        []Vault           `json:"vaults"`
	Assignments   []AssignmentState `json:"assignments"`
	Locks         []Lock            `json:"locks"`
	Operations    []OperationState  `json:"operations"`
}

// AccountState is an account with its state at the time.
type AccountState struct {
	Account
	ResourceID        string `json:"id"`
	ProvisioningState string `json:"provisioningState"`
	// Key is the key source, or the key in use.
	Key string `json:"key"`
	// Data is "available", "not yet", or the error code of the data plane.
	Data string `json:"data"`
}

// AssignmentState is a role assignment with its state at the time.
type AssignmentState struct {
	Assignment
	ResourceID string `json:"id"`
	Role       string `json:"role"`
	// Account is the resource with the principal's identity.
	Account string `json:"account,omitempty"`
	// Effective is true if the key vault honors the assignment.
	Effective bool `json:"effective"`
	// Orphan is true if the principal does not exist.
	Orphan bool `json:"orphan"`
}

// OperationState is an operation with its state at the time.
type OperationState struct {
	Operation
	Status string `json:"status"`
}

// State returns the current state.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	s.settle(now)
	return State{
		Time:          now,
		Subscriptions: values(s.state.Subscriptions, func(v *Subscription) Subscription { return *v }),
		Groups:        values(s.state.Groups, func(v *Group) Group { return *v }),
		Accounts:      values(s.state.Accounts, func(a *Account) AccountState { return s.accountState(a, now) }),
		Vaults:        values(s.state.Vaults, (*Vault).clone),
		Assignments:   slices.DeleteFunc(values(s.state.Assignments, func(a *Assignment) AssignmentState { return s.assignmentState(a, now) }), func(a AssignmentState) bool { return a.DeletedAt != nil }),
		Locks:         values(s.state.Locks, func(v *Lock) Lock { return *v }),
		Operations:    values(s.state.Operations, func(o *Operation) OperationState { return OperationState{Operation: *o, Status: o.Status(now)} }),
	}
}

func values[V, R any](m map[string]V, convert func(V) R) []R {
	list := []R{}
	for _, key := range sortedKeys(m) {
		list = append(list, convert(m[key]))
	}
	return list
}

func (s *Server) accountState(a *Account, now time.Time) AccountState {
	state := AccountState{Account: *a.clone(), ResourceID: a.ID(), ProvisioningState: a.State(now), Key: a.Encryption.inWords(), Data: "available"}
	switch err := s.readable(a, now); {
	case now.Before(a.ReadyAt):
		state.Data = "not yet"
	case err != nil:
		state.Data = err.Code
	}
	return state
}

func (s *Server) assignmentState(a *Assignment, now time.Time) AssignmentState {
	state := AssignmentState{Assignment: *a, ResourceID: a.ID(), Role: builtInRoles[roleOf(a.RoleDefinitionID)].name, Effective: a.effective(now)}
	if p := s.state.Principals[a.PrincipalID]; p != nil {
		state.Account, state.Orphan = p.Resource, p.gone(now)
	}
	return state
}

// clone copies the fields that can change.
func (v *Vault) clone() Vault {
	copied := *v
	copied.Tags, copied.Keys, copied.Policies = cloneMap(v.Tags), map[string]*Key{}, slices.Clone(v.Policies)
	for name, key := range v.Keys {
		k := *key
		k.Versions = nil
		for _, version := range key.Versions {
			one := *version
			k.Versions = append(k.Versions, &one)
		}
		copied.Keys[name] = &k
	}
	for i, policy := range copied.Policies {
		p := *policy
		p.Permissions = cloneMap(policy.Permissions)
		copied.Policies[i] = &p
	}
	return copied
}

// Account returns an account; false if it does not exist.
func (s *Server) Account(name string) (AccountState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	a := s.accountNamed(name, now)
	if a == nil {
		return AccountState{}, false
	}
	return s.accountState(a, now), true
}

// Orphans returns the role assignments whose principal does not exist, and such access policies as
// assignments on their key vault.
func (s *Server) Orphans() []AssignmentState {
	state := s.State()
	orphans := slices.DeleteFunc(state.Assignments, func(a AssignmentState) bool { return !a.Orphan })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.state.Vaults {
		for _, policy := range v.Policies {
			if p := s.state.Principals[policy.ObjectID]; p != nil && p.gone(state.Time) {
				orphans = append(orphans, AssignmentState{Assignment: Assignment{Scope: v.ID(), PrincipalID: p.ID}, Role: "access policy", Account: p.Resource, Orphan: true})
			}
		}
	}
	return orphans
}

// ReadData reads from an account's data plane: nil if it can be read.
func (s *Server) ReadData(account string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	a := s.accountNamed(account, now)
	if a == nil {
		return notFound("ResourceNotFound", "The specified resource does not exist.")
	}
	if err := s.readable(a, now); err != nil {
		return err
	}
	return nil
}

// settle applies the state changes that are due to all accounts.
func (s *Server) settle(now time.Time) {
	for _, name := range sortedKeys(s.state.Accounts) {
		s.accountNamed(name, now)
	}
}

// stateFile keeps the state on disk. Writes are batched to use at most a tenth of the time; a crash can lose
// the last changes, Close loses none.
type stateFile struct {
	path  string
	dirty chan struct{}
	stop  chan struct{}
	done  sync.WaitGroup
	once  sync.Once

	mu  sync.Mutex
	err error
}

func newStateFile(path string) *stateFile {
	f := &stateFile{path: path, dirty: make(chan struct{}, 1), stop: make(chan struct{})}
	f.done.Add(1)
	return f
}

func (f *stateFile) load(into *state) error {
	data, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the state: %w", err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading the state from %s: %w", f.path, err)
	}
	return nil
}

func (f *stateFile) touch() {
	select {
	case f.dirty <- struct{}{}:
	default: // A write is already scheduled.
	}
}

func (f *stateFile) keep(snapshot func() ([]byte, error)) {
	defer f.done.Done()
	for {
		select {
		case <-f.stop:
			return
		case <-f.dirty:
		}
		started := time.Now()
		f.remember(f.write(snapshot))
		select {
		case <-f.stop:
			return
		case <-time.After(9 * time.Since(started)):
		}
	}
}

func (f *stateFile) remember(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *stateFile) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *stateFile) close(snapshot func() ([]byte, error)) error {
	f.once.Do(func() { close(f.stop) })
	f.done.Wait()
	if err := f.write(snapshot); err != nil {
		return errors.Join(err, f.failure())
	}
	return nil
}

// write replaces the file atomically.
func (f *stateFile) write(snapshot func() ([]byte, error)) error {
	data, err := snapshot()
	if err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(f.path), filepath.Base(f.path)+".*")
	if err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	defer os.Remove(temporary.Name())
	if _, err := temporary.Write(data); err != nil {
		return fmt.Errorf("writing the state: %w", errors.Join(err, temporary.Close()))
	}
	if err := errors.Join(temporary.Sync(), temporary.Close()); err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	if err := os.Rename(temporary.Name(), f.path); err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	return nil
}
