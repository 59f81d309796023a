package prober

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
)

// contractFrom is the contract of lists in one page each.
func contractFrom(t *testing.T, lists map[int]string) *Contract {
	t.Helper()
	g := NewWithT(t)
	k := kept{maxBytes: handshakeKept + listKept, maxValues: handshakeValues + listValues}
	reader := newContractReader()
	for list, items := range lists {
		reader.list = list
		r := reducer{kept: &k, contract: reader}
		g.Expect(r.write([]byte(`{"result":{"` + listNames[list] + `":[` + items + `]}}`))).To(BeNil())
	}
	g.Expect(reader.values.err).To(BeNil())
	return reader.contract()
}

func toolNamed(name string) string {
	return fmt.Sprintf(`{"name":%q,"description":"Does %s.","inputSchema":{"type":"object"}}`, name, name)
}

func namesOf(contract *Contract) []string {
	var names []string
	for _, item := range contract.Items {
		names = append(names, string(item.Kind)+"/"+item.Name)
	}
	return names
}

func TestContractNamesItems(t *testing.T) {
	g := NewWithT(t)
	contract := contractFrom(t, map[int]string{
		templateList: `{"name":"file","uriTemplate":"file:///{path}"}`,
		promptList:   `{"name":"greet","arguments":[{"name":"who"}]}`,
		toolList:     toolNamed("b") + "," + toolNamed("a"),
		resourceList: `{"name":"readme","uri":"file:///readme"}`,
	})
	g.Expect(namesOf(contract)).To(Equal([]string{"tool/a", "tool/b", "prompt/greet", "resourceTemplate/file"}), "resources are content")
	g.Expect(contract.Omitted).To(BeZero())
	g.Expect(contract.Digest).To(MatchRegexp(`^[0-9a-f]{32}$`))
	for _, item := range contract.Items {
		g.Expect(item.Digest).To(MatchRegexp(`^[0-9a-f]{8}-[0-9a-f]{8}$`))
	}
	tool, prompt := contractFrom(t, map[int]string{toolList: toolNamed("a")}), contractFrom(t, map[int]string{promptList: toolNamed("a")})
	g.Expect(prompt.Digest).NotTo(Equal(tool.Digest), "who approved a prompt did not approve a tool")
	// The values are documented, and stored in objects: they must not change from release to release.
	g.Expect(contract.Digest).To(Equal("ae52faa1d22404749cc289991b006888"))
	g.Expect(contractFrom(t, nil).Digest).To(Equal("e3b0c44298fc1c149afbf4c8996fb924"))
}

func TestContractDoesNotDependOnOrder(t *testing.T) {
	for name, n := range map[string]int{"few": 10, "as many as are named": MaxContractItems, "more": 3 * MaxContractItems, "as many as are counted": maxItems} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			items := make([]string, n)
			for i := range items {
				items[i] = toolNamed(fmt.Sprintf("tool-%05d", i))
			}
			contract := contractFrom(t, map[int]string{toolList: strings.Join(items, ",")})
			g.Expect(contract.Omitted).To(Equal(max(0, n-MaxContractItems)))
			g.Expect(contract.Items).To(HaveLen(min(n, 256)), "the schema of the status allows no more")
			g.Expect(contract.Items[0].Name).To(Equal("tool-00000"))

			last := items[n-1]
			rand.Shuffle(n, func(i, j int) { items[i], items[j] = items[j], items[i] })
			g.Expect(contractFrom(t, map[int]string{toolList: strings.Join(items, ",")})).To(Equal(contract))

			// The digest covers also what is not named.
			at := slices.Index(items, last)
			items[at] = strings.Replace(last, "Does", "Did", 1)
			g.Expect(contractFrom(t, map[int]string{toolList: strings.Join(items, ",")}).Digest).NotTo(Equal(contract.Digest))
			items = slices.Delete(items, at, at+1)
			g.Expect(contractFrom(t, map[int]string{toolList: strings.Join(items, ",")}).Digest).NotTo(Equal(contract.Digest))
		})
	}
}

func TestContractOfDuplicateNames(t *testing.T) {
	for name, other := range map[string]string{
		"another description": strings.Replace(toolNamed("a"), "Does", "Did", 1),
		"another schema":      strings.Replace(toolNamed("a"), `{"type":"object"}`, `{}`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			once := contractFrom(t, map[int]string{toolList: toolNamed("a")})
			twice := contractFrom(t, map[int]string{toolList: toolNamed("a") + "," + toolNamed("a")})
			both := contractFrom(t, map[int]string{toolList: toolNamed("a") + "," + other})
			g.Expect(namesOf(twice)).To(Equal([]string{"tool/a", "tool/a"}))
			g.Expect(once.Digest).NotTo(Equal(twice.Digest))
			g.Expect(both.Digest).NotTo(Equal(twice.Digest))
			g.Expect(contractFrom(t, map[int]string{toolList: other + "," + toolNamed("a")})).To(Equal(both))
		})
	}
}

func TestEqualItemsThatAreNotNamedDoNotCancelOut(t *testing.T) {
	g := NewWithT(t)
	named := strings.Repeat(toolNamed("a")+",", MaxContractItems)
	one := contractFrom(t, map[int]string{toolList: named + toolNamed("b") + "," + toolNamed("b")})
	other := contractFrom(t, map[int]string{toolList: named + toolNamed("c") + "," + toolNamed("c")})
	g.Expect(other.Omitted).To(Equal(2))
	g.Expect(other.Digest).NotTo(Equal(one.Digest))
}

// Names are stored in objects and printed.
func TestNamesOfItemsAreBounded(t *testing.T) {
	const longest = 128 // in the schema of the status
	long := strings.Repeat("é", longest)
	for name, test := range map[string]struct{ item, then string }{
		"a name":             {`{"name":"Suche ☺"}`, "Suche ☺"},
		"a long name":        {`{"name":"` + long + `"}`, long[:longest]},
		"an odd cut":         {`{"name":"x` + long + `"}`, "x" + long[:longest-2]},
		"control sequences":  {`{"name":"a\u001b[31m\nb\u202e"}`, "a[31mb"},
		"a replacement":      {`{"name":"a\ufffdb"}`, "a\ufffdb"},
		"not UTF-8":          {"{\"name\":\"a\xff\xc3b\"}", "ab"},
		"nothing to print":   {`{"name":"\n"}`, unnamed},
		"no name":            {`{"title":"a"}`, unnamed},
		"not a string":       {`{"name":["a",{"name":"b"}]}`, unnamed},
		"not an object":      {`"name"`, unnamed},
		"the last of two":    {`{"name":"a","name":"b"}`, "b"},
		"an escaped key":     {`{"n\u0061me":"a"}`, "a"},
		"the name of a part": {`{"inputSchema":{"name":"a"}}`, unnamed},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			contract := contractFrom(t, map[int]string{toolList: test.item})
			g.Expect(contract.Items).To(HaveExactElements(HaveField("Name", test.then)))
		})
	}
}

func TestNameIsNotThatOfTheItemBefore(t *testing.T) {
	contract := contractFrom(t, map[int]string{toolList: `{"name":"a"},{"title":"b"}`})
	NewWithT(t).Expect(namesOf(contract)).To(Equal([]string{"tool/" + unnamed, "tool/a"}))
}

// A server may send lists that it was not asked for.
func TestContractIgnoresListsThatAreNotRead(t *testing.T) {
	g := NewWithT(t)
	k := kept{maxBytes: handshakeKept + listKept, maxValues: handshakeValues + listValues}
	reader := newContractReader()
	r := reducer{kept: &k, contract: reader}
	g.Expect(r.write([]byte(`{"result":{"tools":[{"name":"a"}]}}`))).To(BeNil())
	g.Expect(reader.contract().Items).To(BeEmpty())
	reader.list = toolList
	g.Expect(r.write([]byte(`{"result":{"prompts":[{"name":"b"}],"tools":[{"name":"c"}]}}`))).To(BeNil())
	g.Expect(namesOf(reader.contract())).To(Equal([]string{"tool/c"}))
}

func TestSameContract(t *testing.T) {
	g := NewWithT(t)
	one, other := &Contract{Digest: "1"}, &Contract{Digest: "2"}
	g.Expect(sameContract(nil, nil)).To(BeTrue())
	g.Expect(sameContract(nil, one)).To(BeFalse())
	g.Expect(sameContract(one, nil)).To(BeFalse())
	g.Expect(sameContract(one, other)).To(BeFalse())
	g.Expect(sameContract(one, &Contract{Digest: "1"})).To(BeTrue())
}

func withContract(target Target) Target {
	target.Contract, target.Timeout, target.Interval = true, testTimeout, testTimeout
	return target
}

func addTool(server *mcp.Server, name, description string) {
	mcp.AddTool(server, &mcp.Tool{Name: name, Description: description}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{}, nil, nil
	})
}

func TestContractOfAServer(t *testing.T) {
	for name, options := range map[string]*mcp.StreamableHTTPOptions{
		"sessions": nil, "stateless": {Stateless: true}, "JSON": {Stateless: true, JSONResponse: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := newServer()
			server.AddResourceTemplate(&mcp.ResourceTemplate{Name: "file", URITemplate: "file:///{path}"}, nil)
			target := withContract(Target{URL: serve(t, streamable(server, options)).URL})

			found := probeOnce(t, target)
			g.Expect(found.err).To(BeNil())
			g.Expect(found.contractErr).To(BeNil())
			g.Expect(namesOf(found.contract)).To(Equal([]string{"tool/add", "tool/echo", "prompt/greet", "resourceTemplate/file"}))
			g.Expect(probeOnce(t, target).contract).To(Equal(found.contract))

			addTool(server, "add", "Adds.")
			changed := probeOnce(t, target).contract
			g.Expect(changed.Digest).NotTo(Equal(found.contract.Digest))
			before, after := found.contract.Items[0].Digest, changed.Items[0].Digest
			g.Expect(after[:8]).To(Equal(before[:8]), "the schema is the same")
			g.Expect(after).NotTo(Equal(before))
			g.Expect(changed.Items[1:]).To(Equal(found.contract.Items[1:]))
		})
	}
}

func TestContractOfAServerOverSSE(t *testing.T) {
	g := NewWithT(t)
	server := newServer()
	handler := mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return server }, nil)
	found := probeOnce(t, withContract(Target{URL: serve(t, handler).URL, Transport: SSE}))
	g.Expect(found.err).To(BeNil())
	g.Expect(namesOf(found.contract)).To(Equal([]string{"tool/add", "tool/echo", "prompt/greet"}))
}

const withResources = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"x","version":"1"}}`

func TestContractOfListsThatCannotBeRead(t *testing.T) {
	results := func(tools, templates func() string) map[string]func() string {
		return map[string]func() string{
			"initialize": constant(withResources), "tools/list": tools, "resources/list": constant(`{"resources":[]}`), "resources/templates/list": templates,
		}
	}
	one := constant(`{"tools":[` + toolNamed("a") + `]}`)
	none := constant(`{"resourceTemplates":[]}`)
	for name, test := range map[string]struct {
		results      map[string]func() string
		items        []string
		err, listErr *Error
	}{
		"all lists":             {results(one, none), []string{"tool/a"}, nil, nil},
		"no resource templates": {results(one, nil), []string{"tool/a"}, nil, nil},
		"not valid templates":   {results(one, constant(`5`)), nil, &Error{Kind: NotMCP}, nil},
		"too many tools":        {results(emptyTools, none), nil, nil, errTooManyItems},
		"not valid":             {results(constant(`{"tools":[{"a"}]}`), none), nil, errMalformed, nil},
		"too many members":      {results(constant(`{"tools":[`+members(maxOpenMembers+1)+`]}`), none), nil, errTooManyMembers, nil},
		"too many in all tools": {results(constant(`{"tools":[`+strings.Repeat(members(1000)+",", maxMembers/1000)+`{"a":1}]}`), none), nil, errTooManyMembers, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			found := probeOnce(t, withContract(Target{URL: serve(t, answers(false, test.results)).URL}))
			g.Expect(found.err).To(BeNil())
			g.Expect(found.listErr).To(Equal(test.listErr))
			g.Expect(found.contractErr).To(Equal(test.err))
			if test.items == nil {
				g.Expect(found.contract).To(BeNil())
				return
			}
			g.Expect(namesOf(found.contract)).To(Equal(test.items))
		})
	}
}

// replicas is a simulation of one server with replicas that offer contracts.
type replicas struct {
	*simulation
	// offers are the contracts by address; a replica without one cannot be listed.
	offers map[string]string
	listed map[string]int
}

func newReplicas(t *testing.T, offers map[string]string) *replicas {
	r := &replicas{simulation: newSimulation(t, 8), offers: offers, listed: map[string]int{}}
	r.setScript(func(_ context.Context, j job) answer {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !j.list {
			return answer{}
		}
		r.listed[j.address]++
		offer := r.offers[j.address]
		if offer == "" {
			return answer{listed: true, listErr: errTooManyItems}
		}
		return answer{listed: true, contract: &Contract{Digest: offer}}
	})
	r.serve()
	start(t, r.Prober)
	r.settle()
	return r
}

// serve sets the replicas to those with an offer.
func (r *replicas) serve(addresses ...string) {
	if addresses == nil {
		addresses = []string{"a", "b", "c"}
	}
	r.Set(name("web"), Target{URL: "http://web/mcp", Addresses: addresses, Interval: time.Minute, Contract: true})
}

func (r *replicas) offer(contract string, addresses ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, address := range addresses {
		r.offers[address] = contract
	}
}

func (r *replicas) contract() string {
	if contract := r.result("web").Contract; contract != nil {
		return contract.Digest
	}
	return ""
}

func (r *replicas) lists(address string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listed[address]
}

// seldom is longer than the time between two full probes.
const seldom = 32 * time.Minute

func TestContractIsKnownWithTheFirstProbes(t *testing.T) {
	g := NewWithT(t)
	r := newReplicas(t, map[string]string{"a": "1", "b": "1", "c": "1"})
	g.Expect(r.contract()).To(Equal("1"))
	g.Expect(r.count("web")).To(Equal(3), "with the probes that decide the state")

	// Then the first replica is listed with the full probes, and the others are not.
	r.advance(3*time.Hour, 5*time.Second)
	g.Expect(r.lists("a")).To(And(BeNumerically(">=", 5), BeNumerically("<=", 20)))
	g.Expect(r.lists("b") + r.lists("c")).To(Equal(2))
}

func TestContractChangesOnceAllReplicasAgree(t *testing.T) {
	g := NewWithT(t)
	r := newReplicas(t, map[string]string{"a": "1", "b": "1", "c": "1"})
	r.offer("2", "a", "b")
	r.advance(seldom, 5*time.Second)
	g.Expect(r.contract()).To(Equal("1"))
	r.mu.Lock()
	notified := r.changed[name("web")]
	r.mu.Unlock()

	r.offer("2", "c")
	r.advance(seldom, 5*time.Second)
	g.Expect(r.contract()).To(Equal("2"))
	r.mu.Lock()
	defer r.mu.Unlock()
	g.Expect(r.changed[name("web")]).To(Equal(notified + 1))
}

// A change in all replicas is known when the first one has been listed, since the others are listed then.
func TestChangedContractIsConfirmedImmediately(t *testing.T) {
	g := NewWithT(t)
	r := newReplicas(t, map[string]string{"a": "1", "b": "1", "c": "1"})
	r.advance(2*time.Minute, time.Second)
	r.offer("2", "a", "b", "c")
	r.relist("a", "b", "c")
	r.settle() // a replica that is just being probed would be listed with its next probe
	r.advance(time.Second, 250*time.Millisecond)
	g.Expect(r.contract()).To(Equal("2"))
}

func TestRolloutChangesTheContractOnce(t *testing.T) {
	g := NewWithT(t)
	r := newReplicas(t, map[string]string{"a": "1", "b": "1", "c": "1", "d": "2", "e": "2", "A": "2"})
	for _, serving := range [][]string{{"a", "b", "c", "d"}, {"a", "c", "d", "e"}, {"A", "c", "d", "e"}} {
		r.serve(serving...)
		r.advance(3*time.Minute, time.Second)
		g.Expect(r.contract()).To(Equal("1"), "%v", serving)
	}
	r.serve("A", "d", "e")
	g.Expect(r.contract()).To(Equal("2"), "the reconcile that removes the last old replica gets it")
}

func TestContractIsKeptWhileItIsNotKnown(t *testing.T) {
	g := NewWithT(t)
	r := newReplicas(t, map[string]string{"a": "1", "b": "1", "c": "1"})
	r.offer("", "a")
	r.advance(seldom, 5*time.Second)
	g.Expect(r.contract()).To(Equal("1"))
	r.setScript(fails(Refused))
	r.advance(5*time.Minute, time.Second)
	g.Expect(r.result("web").State).To(Equal(Failing))
	g.Expect(r.contract()).To(Equal("1"))

	r.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a"}, Interval: time.Minute})
	g.Expect(r.contract()).To(BeEmpty(), "it is no longer asked for")
	r.serve("a")
	g.Expect(r.contract()).To(BeEmpty(), "it may offer something else now")
}

// A replica whose lists cannot be read is listed less and less often.
func TestListsThatFailAreReadLessOften(t *testing.T) {
	g := NewWithT(t)
	r := newReplicas(t, map[string]string{"a": "1", "b": "", "c": "1"})
	g.Expect(r.contract()).To(BeEmpty())
	r.advance(30*time.Minute, 5*time.Second)
	g.Expect(r.lists("b")).To(BeNumerically("<=", 7))
}

// Replicas may differ for as long as they run.
func TestReplicasThatDifferAreListedLessOften(t *testing.T) {
	g := NewWithT(t)
	r := newReplicas(t, map[string]string{"a": "1", "b": "2", "c": "1"})
	r.advance(3*time.Hour, 5*time.Second)
	g.Expect(r.contract()).To(BeEmpty())
	g.Expect(r.lists("b")).To(And(BeNumerically(">=", 5), BeNumerically("<=", 16)))
	g.Expect(r.lists("c")).To(Equal(1))
}

// They would be listed for as long as it runs.
func TestReplicasAreNotListedAgainWhileTheFirstCannotBe(t *testing.T) {
	g := NewWithT(t)
	r := newReplicas(t, map[string]string{"a": "", "b": "1", "c": "1"})
	r.advance(30*time.Minute, 5*time.Second)
	g.Expect(r.lists("b") + r.lists("c")).To(Equal(2))
}

// The semaphore of the namespace may be taken for several probes.
func TestReplicaThatCouldNotBeListedIsListedWithTheNextProbe(t *testing.T) {
	g := NewWithT(t)
	r := newReplicas(t, map[string]string{"a": "1", "b": "1", "c": "1"})
	listed := r.script
	r.setScript(func(ctx context.Context, j job) answer {
		if j.address == "d" {
			return answer{}
		}
		return listed(ctx, j)
	})
	r.offer("1", "d")
	r.serve("a", "d")
	r.advance(20*time.Minute, 5*time.Second)
	g.Expect(r.lists("d")).To(BeZero())
	r.setScript(listed)
	r.advance(2*time.Minute, 5*time.Second)
	g.Expect(r.lists("d")).To(Equal(1))
}

// The next probe may come soon, and the semaphore may still be taken.
func TestReplicaThatCouldNotBeListedIsNotListedImmediately(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	s.random = func() float64 { return 0 }
	s.setScript(func(_ context.Context, j job) answer {
		if !j.list || j.address == "b" {
			return answer{}
		}
		return answer{listed: true, contract: &Contract{Digest: "1"}}
	})
	s.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a", "b"}, Interval: time.Minute, Contract: true})
	start(t, s.Prober)
	s.settle()
	s.advance(time.Minute, time.Second)
	var asked []bool
	for _, j := range s.jobs {
		if j.address == "b" {
			asked = append(asked, j.list)
		}
	}
	g.Expect(asked).To(Equal([]bool{true, false, true}))
}

// Replicas that agreed are not those that differed for long.
func TestReplicasThatAgreedAreListedSoonAfterAnotherIsTheFirst(t *testing.T) {
	g := NewWithT(t)
	r := newReplicas(t, map[string]string{"a": "1", "b": "2"})
	r.serve("a", "b")
	r.advance(3*time.Hour, 5*time.Second)
	r.offer("1", "b")
	r.advance(seldom, 5*time.Second)
	g.Expect(r.contract()).To(Equal("1"))
	r.offer("2", "A")
	r.serve("A", "a", "b")
	r.advance(70*time.Second, time.Second)
	r.offer("2", "a", "b")
	r.advance(4*time.Minute, time.Second)
	g.Expect(r.contract()).To(Equal("2"))
}

// relist lists the first replica immediately.
func (r *replicas) relist(addresses ...string) {
	r.Set(name("web"), Target{URL: "http://web/mcp", Addresses: addresses, Interval: time.Minute, Contract: true, Version: "2"})
}

func TestReplicaThatDifferedIsListedImmediatelyWhenTheFirstChanges(t *testing.T) {
	g := NewWithT(t)
	r := newReplicas(t, map[string]string{"a": "1", "b": "1", "c": "2"})
	r.advance(30*time.Minute, 5*time.Second)
	for before := r.lists("c"); r.lists("c") == before; {
		r.advance(5*time.Second, 5*time.Second)
	}
	r.offer("3", "a", "b", "c")
	r.relist("a", "b", "c")
	r.settle()
	r.advance(time.Second, 250*time.Millisecond)
	g.Expect(r.contract()).To(Equal("3"))
}

func TestRunningProbeIsNotRepeatedWhenTheFirstReplicaChanges(t *testing.T) {
	g := NewWithT(t)
	r := newReplicas(t, map[string]string{"a": "1", "b": "1"})
	r.serve("a", "b")
	r.settle()
	listed, probes := r.script, 0
	r.setScript(func(ctx context.Context, j job) answer {
		if j.address != "b" {
			return listed(ctx, j)
		}
		r.mu.Lock()
		probes++
		r.mu.Unlock()
		r.hang(ctx.Done())
		return answer{}
	})
	r.advance(2*time.Minute, time.Second)
	r.offer("2", "a")
	r.relist("a", "b")
	r.advance(time.Minute, time.Second)
	r.mu.Lock()
	defer r.mu.Unlock()
	g.Expect(probes).To(Equal(1))
}

func TestReplicaThatWaitsForAProbeKeepsItsPlace(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 8)
	s.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a", "b"}, Contract: true})
	s.Set(name("other"), Target{URL: "http://other/mcp", Addresses: []string{"c"}})
	s.clock.Step(time.Second)
	s.listOthers(s.entries[name("web")])
	s.queue.promote(s.clock.Now())
	for _, address := range []string{"a", "b", "c"} {
		g.Expect(s.queue.take().address).To(Equal(address))
	}
}

// The probe that runs when the target changes does not decide when replicas are listed.
func TestContractIsListedWithTheProbeAfterItIsAskedFor(t *testing.T) {
	for when, test := range map[string]struct {
		before bool
		slow   string
	}{
		"for the first time": {before: false, slow: "a"},
		"again":              {before: true, slow: "b"},
	} {
		t.Run(when, func(t *testing.T) {
			g := NewWithT(t)
			s := newSimulation(t, 4)
			s.random = func() float64 { return 0 }
			listed := func(_ context.Context, j job) answer {
				if !j.list {
					return answer{}
				}
				return answer{listed: true, contract: &Contract{Digest: "1"}}
			}
			running, ends := make(chan struct{}), make(chan struct{})
			s.setScript(func(ctx context.Context, j job) answer {
				if j.address != test.slow {
					return listed(ctx, j)
				}
				close(running)
				s.hang(ends)
				return answer{listed: true, listErr: errTooManyItems}
			})
			set := func(asked bool) {
				s.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a", "b"}, Interval: time.Minute, Contract: asked})
			}
			set(test.before)
			start(t, s.Prober)
			g.Eventually(running).WithTimeout(testTimeout).Should(BeClosed())
			s.settle()
			s.setScript(listed)
			set(!test.before)
			close(ends)
			s.settle()
			set(true)
			s.advance(10*time.Second, time.Second)
			g.Expect(s.result("web").Contract).NotTo(BeNil())
		})
	}
}

func TestErrorOfTheContractIsThatOfTheFirstReplica(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	broken := map[string]bool{"a": true, "b": true}
	s.setScript(func(_ context.Context, j job) answer {
		switch {
		case !j.list:
			return answer{}
		case broken[j.address]:
			return answer{listed: true, contractErr: errMalformed}
		default:
			return answer{listed: true, contract: &Contract{Digest: "1"}}
		}
	})
	s.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a", "b"}, Interval: time.Minute, Contract: true})
	start(t, s.Prober)
	s.settle()
	g.Expect(s.result("web").ContractErr).To(Equal(errMalformed))
	broken = map[string]bool{"b": true}
	s.advance(seldom, 5*time.Second)
	g.Expect(s.result("web").ContractErr).To(BeNil(), "that of another replica is not that of the server")
	broken = map[string]bool{"a": true}
	s.advance(seldom, 5*time.Second)
	g.Expect(s.result("web").ContractErr).To(Equal(errMalformed))
	s.setScript(func(context.Context, job) answer { return answer{} })
	s.advance(seldom, 5*time.Second)
	g.Expect(s.result("web").ContractErr).To(Equal(errMalformed), "until it is listed again")
}

// In which order the replicas are listed makes no difference.
func TestReplicasWithOneContractShareItsMemory(t *testing.T) {
	g := NewWithT(t)
	e := &entry{target: Target{Contract: true}, members: []*member{
		{contract: &Contract{Digest: "1"}}, {contract: &Contract{Digest: "1"}}, {contract: &Contract{Digest: "2"}}, {},
	}}
	e.agree()
	g.Expect(e.contract).To(BeNil(), "the last two differ")
	g.Expect(e.members[1].contract).To(BeIdenticalTo(e.members[0].contract))
	g.Expect(e.members[2].contract.Digest).To(Equal("2"))
	g.Expect(e.members[3].contract).To(BeNil())

	e.members = e.members[:2]
	e.agree()
	g.Expect(e.contract).To(BeIdenticalTo(e.members[0].contract))
}

func TestContractIsReadOnceItIsAskedFor(t *testing.T) {
	g := NewWithT(t)
	r := newReplicas(t, map[string]string{"a": "1", "b": "1", "c": "1"})
	r.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a"}, Interval: time.Minute})
	r.settle()
	g.Expect(r.contract()).To(BeEmpty())
	r.serve("a")
	r.settle()
	g.Expect(r.contract()).To(Equal("1"), "with a probe that is not scheduled")
}

// Clients undo escapes in keys, some ignore letter case, and of two keys they read one or the other: what any of them reads
// is part of the contract.
func TestContractCoversListsInAnySpelling(t *testing.T) {
	good, evil := toolNamed("a"), toolNamed("evil")
	for name, result := range map[string]string{
		"an escaped key":          `{"tools":[` + good + `],"t\u006fols":[` + evil + `]}`,
		"another letter case":     `{"TOOLS":[` + evil + `],"tools":[` + good + `]}`,
		"two lists":               `{"tools":[` + good + `],"tools":[` + evil + `]}`,
		"two results":             `{"tools":[` + good + `]},"result":{"tools":[` + evil + `]}`,
		"an escaped result":       `{"tools":[` + good + `]},"r\u0065sult":{"tools":[` + evil + `]}`,
		"a result in letter case": `{"tools":[` + evil + `]},"Result":{"tools":[` + good + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := serve(t, answers(false, map[string]func() string{"initialize": constant(withTools), "tools/list": constant(result)}))
			found := probeOnce(t, withContract(Target{URL: server.URL}))
			g.Expect(found.err).To(BeNil())
			g.Expect(found.listErr).To(BeNil())
			g.Expect(found.server.Tools).To(Equal(2))
			g.Expect(namesOf(found.contract)).To(Equal([]string{"tool/a", "tool/evil"}))
		})
	}
}

// An event that the prober and the SDK do not end at the same line.
func TestContractOfEventsThatEndDifferently(t *testing.T) {
	g := NewWithT(t)
	evil := `{"jsonrpc":"2.0","id":%s,"result":{"tools":[` + toolNamed("evil") + `]}}`
	lists := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct{ ID json.RawMessage }
		_ = json.NewDecoder(r.Body).Decode(&call)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "event: ping\ndata: [\n\r\r\ndata: "+evil+"\n\n", call.ID)
	})
	handshakes := answers(false, map[string]func() string{"initialize": constant(withTools)})
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`"tools/list"`)) {
			lists.ServeHTTP(w, r)
			return
		}
		handshakes.ServeHTTP(w, r)
	}))
	found := probeOnce(t, withContract(Target{URL: server.URL}))
	g.Expect(found.err).To(BeNil())
	g.Expect(found.listErr).To(Equal(&Error{Kind: NotMCP, Detail: "an event stream has a carriage return without a line feed"}))
	g.Expect(found.contract).To(BeNil())
}

func TestErrorOfAReplicaIsForgottenWithItsContract(t *testing.T) {
	g := NewWithT(t)
	r := verified(t, map[string]string{"a": ""}, []string{"a"}, nil)
	g.Expect(r.offered()).To(Equal(map[string]string{"a": tooManyItems}))
	r.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a"}, Interval: time.Minute})
	r.setScript(func(ctx context.Context, _ job) answer { // so that no list ends by itself
		<-ctx.Done()
		return answer{err: &Error{Kind: Refused}}
	})
	r.verify([]string{"a"}, nil)
	g.Expect(r.offered()).To(Equal(map[string]string{"a": ""}), "it has not been listed since")
}

// A container that restarts between two lists does not know the session any more. What is read of its lists by then is no
// contract.
func TestSessionThatEndsBetweenListsHasNoContract(t *testing.T) {
	results := map[string]func() string{
		"initialize": constant(withResources), "tools/list": constant(`{"tools":[` + toolNamed("a") + `]}`), "resources/list": constant(`{"resources":[]}`),
	}
	for name, body := range map[string]string{
		"without a body": "", "as the TypeScript SDK": `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, err := io.ReadAll(r.Body)
				if err != nil || bytes.Contains(text, []byte("resources/templates/list")) {
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, body)
					return
				}
				w.Header().Set(sessionHeader, "session")
				r.Body = io.NopCloser(bytes.NewReader(text))
				answers(false, results).ServeHTTP(w, r)
			}))
			found := probeOnce(t, withContract(Target{URL: server.URL}))
			g.Expect(found.err).To(BeNil())
			g.Expect(found.contract).To(BeNil())
			g.Expect(found.contractErr).To(Equal(&Error{Kind: HTTPStatus, Status: http.StatusNotFound}))
		})
	}
}
