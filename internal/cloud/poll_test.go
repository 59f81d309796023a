package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

func TestDecidesHowToLookUpResource(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	poll := Poll{Interval: 5 * time.Minute, Began: noon}
	accounts, grants, account := list{kind: accountsOfGroup}, list{kind: grantsOnVault}, list{kind: singleAccount}
	asked := func(n int) sets.Set[fingerprint] {
		all := sets.New[fingerprint]()
		for i := range n {
			all.Insert(fingerprintOf(singleAccount, i))
		}
		return all
	}
	for name, c := range map[string]struct {
		list  list
		state listState
		want  decision
	}{
		"requested when the poll began":                {accounts, listState{last: &snapshot{began: noon, pages: 1}}, useLast},
		"requested in the next poll":                   {accounts, listState{last: &snapshot{began: noon.Add(10*time.Minute - 1), pages: 1}}, useLast},
		"requested before the clock was set back":      {grants, listState{last: &snapshot{began: noon.Add(10 * time.Minute), pages: 1}, asked: asked(1)}, requestList},
		"requested before the poll began":              {grants, listState{last: &snapshot{began: noon.Add(-1), pages: 1}, asked: asked(1)}, requestList},
		"recent, although it is avoided":               {grants, listState{last: &snapshot{began: noon, pages: 1}, avoidUntil: noon.Add(time.Hour)}, useLast},
		"a list of accounts for few accounts":          {accounts, listState{asked: asked(4)}, avoidList},
		"a list of accounts for enough accounts":       {accounts, listState{asked: asked(5)}, requestList},
		"enough accounts in the previous poll":         {accounts, listState{askedBefore: 5}, requestList},
		"too few accounts for its pages":               {accounts, listState{last: &snapshot{pages: 3}, askedBefore: 14}, avoidList},
		"enough accounts for its pages":                {accounts, listState{last: &snapshot{pages: 3}, askedBefore: 15}, requestList},
		"a list of role assignments for one principal": {grants, listState{asked: asked(1)}, requestList},
		"two pages for one principal":                  {grants, listState{last: &snapshot{pages: 2}, asked: asked(1)}, avoidList},
		"avoided":                                      {grants, listState{asked: asked(9), avoidUntil: noon.Add(1)}, avoidList},
		"not avoided any more":                         {grants, listState{asked: asked(9), avoidUntil: noon}, requestList},
		"a single resource, always":                    {account, listState{avoidUntil: noon.Add(time.Hour)}, requestList},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(c.state.decide(c.list, poll, noon)).To(Equal(c.want))
		})
	}
}

func TestDecidesHowLongToAvoidList(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	poll, now := Poll{Interval: 5 * time.Minute, Began: began}, began.Add(time.Second)
	for name, c := range map[string]struct {
		err  error
		want time.Time
	}{
		"not permitted":         {&Error{Kind: Denied}, now.Add(time.Hour)},
		"rejected":              {&Error{Kind: Invalid}, now.Add(time.Hour)},
		"throttled by Azure":    {&Error{Kind: Throttled, cause: errors.New("429")}, now.Add(time.Hour)},
		"no response":           {&Error{Kind: Unreachable}, began.Add(poll.Interval)},
		"too long":              {errors.New("the list does not end"), began.Add(poll.Interval)},
		"held back by a budget": {throttled("listing", time.Second), time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			state := listState{}
			state.failed(c.err, poll, now)
			NewWithT(t).Expect(state.avoidUntil).To(Equal(c.want))
		})
	}
}

// pollFixture is a fake cloud with encrypted accounts, each of which an object manages, and a process that polls them.
type pollFixture struct {
	Gomega
	t      *testing.T
	server *fakecloud.Server
	clock  *clocktesting.FakeClock
	demo   fakecloud.Demo
	cloud  *Cloud
	began  time.Time
	// pinned is a version of the key that is not the latest one.
	pinned string
}

const pollInterval = 5 * time.Minute

func newPollFixture(t *testing.T, knobs fakecloud.Knobs, accounts int) *pollFixture {
	t.Helper()
	c := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	f := &pollFixture{Gomega: NewWithT(t), t: t, server: fakecloud.New(fakecloud.Options{Knobs: knobs, Clock: c}), clock: c, began: c.Now()}
	f.demo = f.server.SeedDemo()
	f.cloud = New(Config{Cloud: fakecloud.CloudAt("https://fake.test"), Transport: f.server, Clock: c})
	client := f.client(manager)
	for i := range accounts {
		_, err := client.CreateAccount(t.Context(), NewAccount{Group: f.demo.Group, Name: accountNumber(i), Location: f.demo.Location, SKU: "Standard_LRS", Tags: map[string]string{"team": "billing"}}, nil)
		f.Expect(err).NotTo(HaveOccurred())
		_, err = client.CreateGrant(t.Context(), accountNumber(i), f.demo.VaultID, f.server.Principal(accountNumber(i)))
		f.Expect(err).NotTo(HaveOccurred())
	}
	c.Step(pollInterval)
	return f
}

func accountNumber(i int) string { return fmt.Sprintf("account%d", i) }

// manager is a credential without limits.
var manager = credentialOf("manager", Anywhere)

func credentialOf(name string, scopes ...Scope) Credential {
	return Credential{Name: name, Token: bearer(fakecloud.Token(name)), Scopes: scopes}
}

func (f *pollFixture) client(credential Credential) *Client {
	client, err := f.cloud.Client(f.demo.Subscription, credential)
	f.Expect(err).NotTo(HaveOccurred())
	return client
}

// see reads what a reconcile reads.
func (f *pollFixture) see(i int, credential Credential) *Seen {
	f.t.Helper()
	seen, name := &Seen{}, accountNumber(i)
	client := f.client(credential).Observing(seen)
	account, err := client.Account(f.t.Context(), f.demo.Group, name)
	f.Expect(err).NotTo(HaveOccurred())
	_, err = client.Grant(f.t.Context(), name, f.demo.VaultID, account.PrincipalID)
	f.Expect(err).NotTo(HaveOccurred())
	_, err = client.Key(f.t.Context(), name, f.demo.Group, f.demo.Vault, f.demo.Key, "")
	f.Expect(err).NotTo(HaveOccurred())
	return seen
}

func (f *pollFixture) remember(i int, credential Credential) {
	f.t.Helper()
	f.cloud.Remember(accountNumber(i), "1", credential, f.see(i, credential))
}

// nextPoll begins a poll.
func (f *pollFixture) nextPoll() Poll {
	f.clock.Step(pollInterval)
	return Poll{Interval: pollInterval, Began: f.clock.Now()}
}

func (f *pollFixture) isUnchanged(i int, credential Credential, poll Poll) bool {
	f.t.Helper()
	return f.cloud.Unchanged(f.t.Context(), accountNumber(i), "1", credential, poll)
}

// requests returns the number of requests to resources whose ID has a suffix, and resets the counts.
func (f *pollFixture) requests() int {
	defer f.server.ResetCounts()
	return f.server.Total("").Calls()
}

func TestPollSharesLists(t *testing.T) {
	// given 20 objects that one process has read
	const size = 20
	f := newPollFixture(t, fakecloud.Knobs{}, size)
	for i := range size {
		f.remember(i, manager)
	}
	f.requests()
	pollAll := func() {
		t.Helper()
		poll := f.nextPoll()
		var wait sync.WaitGroup
		for i := range size {
			wait.Go(func() {
				if !f.cloud.Unchanged(context.Background(), accountNumber(i), "1", manager, poll) {
					t.Errorf("account %d changed", i)
				}
			})
		}
		wait.Wait()
	}
	// when they are polled the first time
	pollAll()
	// then the accounts are read until enough objects have asked for the list, and then listed
	f.Expect(f.requests()).To(BeNumerically("<=", accountPageCost-1+3))
	// and from then on, each list is requested once for all
	for range 3 {
		pollAll()
		f.Expect(f.server.Total("/storageaccounts").Calls()).To(Equal(1))
		f.Expect(f.server.Total("/roleassignments").Calls()).To(Equal(1))
		f.Expect(f.server.Total("/keys").Calls()).To(Equal(1))
		f.Expect(f.requests()).To(Equal(3))
	}
	f.Expect(f.cloud.connections).To(HaveLen(1), "the requests are counted with the others of the subscription")
	// and not again in the same poll
	f.Expect(f.isUnchanged(0, manager, Poll{Interval: pollInterval, Began: f.clock.Now().Add(-time.Second)})).To(BeTrue())
	f.Expect(f.requests()).To(BeZero())
}

func TestPollOfAnotherIntervalDoesNotDecideAboutLists(t *testing.T) {
	// given objects that are found in the list of the accounts
	const size = 2 * accountPageCost
	f := newPollFixture(t, fakecloud.Knobs{}, size)
	for i := range size {
		f.remember(i, manager)
	}
	pollAll := func() {
		t.Helper()
		f.requests()
		poll := f.nextPoll()
		for i := range size {
			f.Expect(f.isUnchanged(i, manager, poll)).To(BeTrue())
		}
	}
	pollAll()
	pollAll()
	f.Expect(f.server.Total("/storageaccounts").Calls()).To(Equal(1))
	f.requests()
	// when one of them is polled more often, then its account is read, and not listed
	f.clock.Step(time.Minute)
	f.Expect(f.isUnchanged(0, manager, Poll{Interval: time.Minute, Began: f.clock.Now()})).To(BeTrue())
	f.Expect(f.server.Total("/storageaccounts/" + accountNumber(0)).Calls()).To(Equal(1))
	// and the next poll of the others lists the accounts at once
	pollAll()
	f.Expect(f.requests()).To(Equal(3))
}

// slowly steps the clock with each response.
type slowly struct{ *pollFixture }

func (s slowly) Do(request *http.Request) (*http.Response, error) {
	response, err := s.server.Do(request)
	s.clock.Step(pollInterval)
	return response, err
}

// A list that is answered slowly may not show what has changed since.
func TestListIsAsOldAsItsRequest(t *testing.T) {
	f := newPollFixture(t, fakecloud.Knobs{}, 1)
	f.cloud = New(Config{Cloud: fakecloud.CloudAt("https://fake.test"), Transport: slowly{f}, Clock: f.clock})
	state, poll := &listState{}, Poll{Interval: pollInterval, Began: f.clock.Now()}
	f.client(manager).refresh(t.Context(), list{kind: accountsOfGroup, group: f.demo.Group}, state, poll)
	f.Expect(state.last.began).To(Equal(poll.Began))
}

func TestPollNoticesChanges(t *testing.T) {
	const size = 10
	for name, change := range map[string]func(f *pollFixture, account string) error{
		"tags":     func(f *pollFixture, account string) error { return f.server.SetTags(account, nil) },
		"identity": func(f *pollFixture, account string) error { return f.server.DropIdentity(account) },
		"account":  func(f *pollFixture, account string) error { return f.server.DeleteAccount(account) },
		"encryption": func(f *pollFixture, account string) error {
			return f.server.UseKey(account, f.demo.Vault, f.demo.Key, "")
		},
		"grant":        func(f *pollFixture, account string) error { return f.server.RemoveGrants(f.server.Principal(account)) },
		"disabled key": func(f *pollFixture, _ string) error { return f.server.EnableKey(f.demo.Vault, f.demo.Key, "", false) },
		"deleted key":  func(f *pollFixture, _ string) error { return f.server.DeleteKey(f.demo.Vault, f.demo.Key) },
		"new version": func(f *pollFixture, _ string) error {
			_, err := f.server.RotateKey(f.demo.Vault, f.demo.Key)
			return err
		},
	} {
		isOfAll := strings.Contains(name, "key") || strings.Contains(name, "version")
		for _, changed := range []int{0, size - 1} { // one that is read itself, and one that is found in the list
			t.Run(fmt.Sprintf("%s of account %d", name, changed), func(t *testing.T) {
				// given
				f := newPollFixture(t, fakecloud.Knobs{}, size)
				for i := range size {
					f.remember(i, manager)
				}
				poll := f.nextPoll()
				for i := range size {
					f.Expect(f.isUnchanged(i, manager, poll)).To(BeTrue())
				}
				// when
				f.Expect(change(f, accountNumber(changed))).To(Succeed())
				// then
				poll = f.nextPoll()
				for i := range size {
					f.Expect(f.isUnchanged(i, manager, poll)).To(Equal(i != changed && !isOfAll), "account %d", i)
				}
				// and what was recorded is not used again
				f.Expect(f.isUnchanged(changed, manager, f.nextPoll())).To(BeFalse())
				f.Expect(f.cloud.records.Keys()).NotTo(ContainElement(accountNumber(changed)))
			})
		}
	}
}

func TestPollNoticesChangesThatOnlySingleReadsShow(t *testing.T) {
	for name, c := range map[string]struct {
		read   func(f *pollFixture, client *Client) error
		change func(f *pollFixture) error
	}{
		"pinned version": {
			func(f *pollFixture, client *Client) error {
				key, err := client.Key(t.Context(), "", f.demo.Group, f.demo.Vault, f.demo.Key, "")
				if err != nil {
					return err
				}
				if _, err := f.server.RotateKey(f.demo.Vault, f.demo.Key); err != nil {
					return err
				}
				f.pinned = cmp.Or(f.pinned, key.Version)
				*client.seen = Seen{}
				_, err = client.Key(t.Context(), "", f.demo.Group, f.demo.Vault, f.demo.Key, f.pinned)
				return err
			},
			func(f *pollFixture) error { return f.server.EnableKey(f.demo.Vault, f.demo.Key, f.pinned, false) },
		},
		"key vault": {
			func(f *pollFixture, client *Client) error {
				_, err := client.Vault(t.Context(), "", f.demo.Group, f.demo.Vault)
				return err
			},
			func(f *pollFixture) error { return f.server.SetPurgeProtection(f.demo.Vault, false) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			// given two objects that saw the same
			f := newPollFixture(t, fakecloud.Knobs{}, 0)
			for i := range 2 {
				seen := &Seen{}
				f.Expect(c.read(f, f.client(manager).Observing(seen))).To(Succeed())
				f.cloud.Remember(accountNumber(i), "1", manager, seen)
			}
			f.requests()
			// then they share a request
			poll := f.nextPoll()
			f.Expect(f.isUnchanged(0, manager, poll)).To(BeTrue())
			f.Expect(f.isUnchanged(1, manager, poll)).To(BeTrue())
			f.Expect(f.requests()).To(Equal(1))
			// and notice the change
			f.Expect(c.change(f)).To(Succeed())
			poll = f.nextPoll()
			f.Expect(f.isUnchanged(0, manager, poll)).To(BeFalse())
			f.Expect(f.isUnchanged(1, manager, poll)).To(BeFalse())
		})
	}
}

func TestPollReadsAllPages(t *testing.T) {
	const size = 20
	for name, c := range map[string]struct {
		pageSize int
		want     int
	}{
		"a list that is worth its pages":     {10, 2 + 2 + 1},   // two pages of accounts and of role assignments, one of keys
		"a list that is not worth its pages": {3, size + 7 + 1}, // 7 pages cost as much as 35 reads
	} {
		t.Run(name, func(t *testing.T) {
			f := newPollFixture(t, fakecloud.Knobs{PageSize: c.pageSize}, size)
			for i := range size {
				f.remember(i, manager)
			}
			var requests int
			for range 3 {
				f.requests()
				poll := f.nextPoll()
				for i := range size {
					f.Expect(f.isUnchanged(i, manager, poll)).To(BeTrue())
				}
				requests = f.requests()
			}
			f.Expect(requests).To(Equal(c.want))
		})
	}
}

// A namespace learns nothing from the list of another one.
func TestPollDoesNotShareListsBetweenCredentials(t *testing.T) {
	// given objects of two credentials in one resource group
	const size = 10
	f := newPollFixture(t, fakecloud.Knobs{}, 2*size)
	first, second := credentialOf("first", Anywhere), credentialOf("second", Anywhere)
	pollBoth := func() (unchanged int) {
		poll := f.nextPoll()
		for i := range size {
			f.Expect(f.isUnchanged(i, first, poll)).To(BeTrue())
			if f.isUnchanged(size+i, second, poll) {
				unchanged++
			}
		}
		return unchanged
	}
	for i := range size {
		f.remember(i, first)
		f.remember(size+i, second)
	}
	f.Expect(pollBoth()).To(Equal(size))
	f.requests()
	// when
	f.Expect(pollBoth()).To(Equal(size))
	// then each requests its own lists
	f.Expect(f.server.Counts("")).To(Equal(map[string]fakecloud.Count{"first": {Reads: 3}, "second": {Reads: 3}}))
	// and what was seen with a credential is not used with another one
	f.Expect(f.isUnchanged(0, second, f.nextPoll())).To(BeFalse())
	// and one that loses its permissions learns nothing more
	f.server.Deny(fakecloud.Denial{Who: "second"})
	f.Expect(pollBoth()).To(BeZero())
}

// The credential of the manager is lent with different scopes. A list answers only whoever may request it.
func TestPollKeepsToScopes(t *testing.T) {
	const size = 10
	f := newPollFixture(t, fakecloud.Knobs{}, size)
	group := Scope(strings.ToLower(f.demo.GroupID()))
	wide := credentialOf("manager", group)
	narrow := credentialOf("manager", Scope(strings.ToLower(AccountID(f.demo.Subscription, f.demo.Group, accountNumber(0)))), Scope(strings.ToLower(f.demo.VaultID)))
	for i := range size {
		f.remember(i, wide)
	}
	for range 2 {
		poll := f.nextPoll()
		for i := range size {
			f.Expect(f.isUnchanged(i, wide, poll)).To(BeTrue())
		}
	}
	// given a list of the accounts
	f.requests()
	poll := Poll{Interval: pollInterval, Began: f.clock.Now()}
	// then a client that may only use one account reads it
	f.Expect(f.isUnchanged(0, narrow, poll)).To(BeTrue())
	f.Expect(f.server.Total("/storageaccounts/" + accountNumber(0)).Reads).To(Equal(1))
	f.Expect(f.requests()).To(Equal(1))
	// and learns nothing of the others
	f.Expect(f.isUnchanged(1, narrow, poll)).To(BeFalse())
	f.Expect(f.requests()).To(BeZero())
}

func TestPollFallsBackToSingleReads(t *testing.T) {
	const size = 10
	for name, c := range map[string]struct {
		knobs fakecloud.Knobs
		// first and next are the number of requests of the first poll and of the next ones.
		first, next int
	}{
		"lists are not permitted": {fakecloud.Knobs{Denied: []fakecloud.Denial{
			{Action: "Microsoft.Storage/storageAccounts/read", Lists: true}, {Action: "Microsoft.KeyVault/vaults/keys/read", Lists: true},
		}}, size + 2 + 2, size + 2},
		"lists of accounts are throttled": {fakecloud.Knobs{AccountLists: fakecloud.Bucket{Capacity: 0.5, PerSecond: 1. / 120}}, size + 2 + 1, size + 2},
	} {
		t.Run(name, func(t *testing.T) {
			// given
			f := newPollFixture(t, c.knobs, size)
			for i := range size {
				f.remember(i, manager)
			}
			pollAll := func() fakecloud.Count {
				t.Helper()
				f.server.ResetCounts()
				poll := f.nextPoll()
				for i := range size {
					for !f.isUnchanged(i, manager, poll) {
						wait := f.client(manager).budget.throttledFor(f.clock.Now())
						f.Expect(wait).To(BeNumerically(">", 0), "account %d", i)
						f.clock.Step(wait)
					}
				}
				return f.server.Total("")
			}
			// then every account is read
			first := pollAll()
			f.Expect(first.Reads).To(Equal(c.first))
			f.Expect(first.EarlyRetries).To(BeZero())
			for range 3 {
				total := pollAll()
				f.Expect(total.Reads).To(Equal(c.next))
				f.Expect(total.Throttled + total.Errors).To(BeZero())
			}
			// and the lists are used again once Azure permits them
			f.server.SetKnobs(fakecloud.Knobs{})
			f.clock.Step(avoidTimeout)
			pollAll()
			f.Expect(pollAll().Reads).To(Equal(3))
		})
	}
}

func TestPollRemembersOnlyReconcilesThatChangedNothing(t *testing.T) {
	for name, spoil := range map[string]func(f *pollFixture, client *Client){
		"nothing was read": func(_ *pollFixture, client *Client) { *client.seen = Seen{} },
		"a write": func(f *pollFixture, client *Client) {
			_, err := client.DeleteGrant(t.Context(), "", f.demo.VaultID, "11111111-2222-4333-8444-555555555555")
			f.Expect(err).NotTo(HaveOccurred())
		},
		"keys that could not be listed": func(f *pollFixture, client *Client) {
			_, err := client.AccountKeys(t.Context(), f.demo.Group, "missing")
			f.Expect(Is(err, NotFound)).To(BeTrue())
		},
		"a failed read": func(f *pollFixture, client *Client) {
			_, err := client.Vault(t.Context(), "", f.demo.Group, "missing")
			f.Expect(Is(err, NotFound)).To(BeTrue())
		},
		"a missing grant": func(f *pollFixture, client *Client) {
			found, err := client.Grant(t.Context(), "", f.demo.VaultID, "11111111-2222-4333-8444-555555555555")
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(found).To(BeNil())
		},
	} {
		t.Run(name, func(t *testing.T) {
			// given an earlier reconcile that changed nothing
			f := newPollFixture(t, fakecloud.Knobs{}, 1)
			f.remember(0, manager)
			seen := f.see(0, manager)
			spoil(f, f.client(manager).Observing(seen))
			f.cloud.Remember(accountNumber(0), "1", manager, seen)
			f.Expect(f.isUnchanged(0, manager, f.nextPoll())).To(BeFalse())
		})
	}
}

// The list of a key vault for many principals costs more than the role assignments of one.
func TestPollReadsTheGrantOfOnePrincipalIfTheListIsLong(t *testing.T) {
	const size = 10
	f := newPollFixture(t, fakecloud.Knobs{PageSize: 3}, size)
	f.remember(0, manager)
	f.Expect(f.isUnchanged(0, manager, f.nextPoll())).To(BeTrue()) // reads the list, the length of which is not known yet
	f.requests()
	f.Expect(f.isUnchanged(0, manager, f.nextPoll())).To(BeTrue())
	f.Expect(f.server.Total("/roleassignments").Calls()).To(Equal(1))
	f.Expect(f.requests()).To(Equal(3))
	f.Expect(f.server.RemoveGrants(f.server.Principal(accountNumber(0)))).To(Succeed())
	f.Expect(f.isUnchanged(0, manager, f.nextPoll())).To(BeFalse())
	f.Expect(f.cloud.records.Keys()).To(BeEmpty())
}

// That a resource does not exist is no error of the poll: it is a change.
func TestPollNoticesThatTheOnlyAccountWasDeleted(t *testing.T) {
	f := newPollFixture(t, fakecloud.Knobs{}, 1)
	f.remember(0, manager)
	f.Expect(f.server.DeleteAccount(accountNumber(0))).To(Succeed())
	f.Expect(f.isUnchanged(0, manager, f.nextPoll())).To(BeFalse())
	f.Expect(f.cloud.records.Keys()).To(BeEmpty())
}

// What a list showed before the clock was set back is not taken for what it shows now.
func TestPollNoticesChangesAfterTheClockWasSetBack(t *testing.T) {
	f := newPollFixture(t, fakecloud.Knobs{}, 1)
	f.remember(0, manager)
	f.Expect(f.isUnchanged(0, manager, f.nextPoll())).To(BeTrue())
	f.Expect(f.server.DeleteAccount(accountNumber(0))).To(Succeed())
	f.clock.Step(-time.Hour)
	f.Expect(f.isUnchanged(0, manager, f.nextPoll())).To(BeFalse())
}

// A list that was requested while another poll waited for it is not requested again.
func TestPollDoesNotRequestListThatAnotherHasJustRequested(t *testing.T) {
	f := newPollFixture(t, fakecloud.Knobs{}, 1)
	f.requests()
	state, poll := &listState{}, f.nextPoll()
	for range 2 {
		f.client(manager).refresh(t.Context(), list{kind: keysOfVault, group: f.demo.Group, name: f.demo.Vault}, state, poll)
		f.Expect(f.requests()).To(BeNumerically("<=", 1))
		f.Expect(state.snapshotFor(poll)).NotTo(BeNil())
	}
	f.clock.Step(time.Second)
	f.client(manager).refresh(t.Context(), list{kind: keysOfVault, group: f.demo.Group, name: f.demo.Vault}, state, poll)
	f.Expect(f.requests()).To(BeZero())
}

// What is kept is limited in number, and in time.
func TestPollForgetsWhatWasNotUsedForLongest(t *testing.T) {
	f := newPollFixture(t, fakecloud.Knobs{}, 0)
	seen := &Seen{readings: []reading{{}}}
	for i := range 20001 {
		f.cloud.Remember(accountNumber(i), "1", manager, seen)
	}
	f.Expect(f.cloud.records.Keys()).To(HaveLen(20000))
	_, ok := f.cloud.records.Get(accountNumber(0))
	f.Expect(ok).To(BeFalse())

	client := f.client(manager)
	for i := range 10001 {
		client.decide(listKey{list: list{name: accountNumber(i)}}, Poll{Began: f.clock.Now()}, fingerprint{})
	}
	f.Expect(client.lists.Keys()).To(HaveLen(10000))
	last := listKey{list: list{name: accountNumber(10000)}}
	f.clock.Step(48*time.Hour - 1)
	_, ok = client.lists.Get(last)
	f.Expect(ok).To(BeTrue())
	f.clock.Step(2)
	_, ok = client.lists.Get(last)
	f.Expect(ok).To(BeFalse())
}

// Azure writes IDs in other letter cases in lists, and leaves out fields.
func TestListedResourcesAreComparedByContent(t *testing.T) {
	g := NewWithT(t)
	g.Expect(fingerprintOfAccount(&Account{ID: "/A"})).To(Equal(fingerprintOfAccount(&Account{ID: "/a"})))
	g.Expect(fingerprintOfAccount(&Account{ID: "/a", Name: "A"})).NotTo(Equal(fingerprintOfAccount(&Account{ID: "/a", Name: "a"})))
	client, _ := clientOn(t, answersWith(http.StatusOK, `{"value": [null, {}, {"id": "/A", "properties": {"principalId": "P", "createdOn": "`+wireTime+`"}}]}`))
	shown, err := client.fetch(t.Context(), list{kind: grantsOnVault, name: vaultPath})
	g.Expect(err).NotTo(HaveOccurred())
	created := client.budget.clock.Now().UTC()
	g.Expect(shown.fingerprints).To(Equal(sets.New(fingerprintOfGrant(&Grant{}, ""), fingerprintOfGrant(&Grant{ID: "/a", CreatedOn: created}, "p"))))
}

func TestPollKnowsOnlyTheRecordedVersion(t *testing.T) {
	f := newPollFixture(t, fakecloud.Knobs{}, 1)
	f.Expect(f.cloud.Unchanged(t.Context(), "another", "", Credential{}, f.nextPoll())).To(BeFalse())
	f.remember(0, manager)
	f.requests()
	f.Expect(f.cloud.Unchanged(t.Context(), accountNumber(0), "2", manager, f.nextPoll())).To(BeFalse())
	f.Expect(f.cloud.Unchanged(t.Context(), "another", "1", manager, f.nextPoll())).To(BeFalse())
	f.Expect(f.requests()).To(BeZero())
	f.Expect(f.isUnchanged(0, manager, f.nextPoll())).To(BeTrue())
	// Every object is read itself once a day.
	f.clock.Step(recordTimeout)
	f.Expect(f.isUnchanged(0, manager, f.nextPoll())).To(BeFalse())
}

// A request limit says nothing about the object.
func TestPollKeepsRecordWhileThrottled(t *testing.T) {
	f := newPollFixture(t, fakecloud.Knobs{}, 1)
	f.remember(0, manager)
	poll := f.nextPoll()
	f.client(manager).budget.refused(time.Minute)
	f.requests()
	f.Expect(f.isUnchanged(0, manager, poll)).To(BeFalse())
	f.Expect(f.requests()).To(BeZero())
	f.clock.Step(time.Minute)
	f.Expect(f.isUnchanged(0, manager, poll)).To(BeTrue())
}
