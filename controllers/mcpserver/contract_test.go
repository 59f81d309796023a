package mcpserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// foundContract is what the prober finds. Items read like "tool/add=schema-description".
func foundContract(items ...string) *prober.Contract {
	found := &prober.Contract{Digest: fmt.Sprintf("digest of %v", items)}
	for _, item := range items {
		key, digest, _ := strings.Cut(item, "=")
		kind, name, _ := strings.Cut(key, "/")
		found.Items = append(found.Items, prober.Item{Kind: prober.Kind(kind), Name: name, Digest: digest})
	}
	return found
}

// withOmitted omits items. Its digest is that of all items.
func withOmitted(found *prober.Contract, omitted int) *prober.Contract {
	found.Omitted = omitted
	found.Digest += fmt.Sprint(" and ", omitted)
	return found
}

// recorded is the contract of a status; nil if nothing was found.
func recorded(found *prober.Contract) *v1beta1.MCPServerContractStatus {
	contract, _ := nextContract(nil, found, metav1.Time{})
	return contract
}

var (
	earlier = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	later   = metav1.NewTime(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
)

func TestContractOfTheStatus(t *testing.T) {
	one := recorded(foundContract("tool/add=1-1"))
	one.LastChange = &v1beta1.MCPServerContractChange{Time: earlier, Removed: []string{"tool/echo"}}
	disabled := func(m *v1beta1.MCPServer) {
		m.Spec.Contract = &v1beta1.MCPServerContract{Policy: v1beta1.ContractDisabled}
	}
	cases := map[string]struct {
		before  *v1beta1.MCPServerContractStatus
		change  func(*v1beta1.MCPServer)
		probed  *prober.Result
		want    *v1beta1.MCPServerContractStatus
		changed bool
	}{
		"not known yet": {nil, nil, &prober.Result{}, nil, false},
		"the first one": {nil, nil, &prober.Result{Contract: foundContract("tool/add=1-1", "prompt/greet=2-2")},
			&v1beta1.MCPServerContractStatus{Digest: "digest of [tool/add=1-1 prompt/greet=2-2]", Items: []v1beta1.MCPServerContractItem{
				{Kind: "tool", Name: "add", Digest: "1-1"}, {Kind: "prompt", Name: "greet", Digest: "2-2"}}}, false},
		"an empty one":                          {nil, nil, &prober.Result{Contract: foundContract()}, &v1beta1.MCPServerContractStatus{Digest: "digest of []"}, false},
		"too many items":                        {nil, nil, &prober.Result{Contract: withOmitted(foundContract(), 44)}, &v1beta1.MCPServerContractStatus{Digest: "digest of [] and 44", Omitted: 44}, false},
		"the same":                              {one, nil, &prober.Result{Contract: foundContract("tool/add=1-1")}, one, false},
		"no probe":                              {one, nil, nil, one, false},
		"a failed probe":                        {one, nil, &prober.Result{State: prober.Failing}, one, false},
		"pods that differ":                      {one, nil, &prober.Result{State: prober.Answering}, one, false},
		"the policy is empty":                   {one, func(m *v1beta1.MCPServer) { m.Spec.Contract = &v1beta1.MCPServerContract{} }, nil, one, false},
		"disabled":                              {one, disabled, nil, nil, false},
		"disabled, before the prober knows":     {one, disabled, &prober.Result{Contract: foundContract("tool/new=1-1")}, nil, false},
		"not probed":                            {one, func(m *v1beta1.MCPServer) { m.Spec.Protocol.Probe = v1beta1.ProbeDisabled }, nil, nil, false},
		"a change replaces the last change":     {one, nil, &prober.Result{Contract: foundContract("tool/add=1-2")}, changedTo(foundContract("tool/add=1-2"), v1beta1.MCPServerContractChange{DescriptionChanged: []string{"tool/add"}}), true},
		"a change that the items do not show":   {one, nil, &prober.Result{Contract: &prober.Contract{Digest: "x", Items: foundContract("tool/add=1-1").Items}}, changedTo(&prober.Contract{Digest: "x", Items: foundContract("tool/add=1-1").Items}, v1beta1.MCPServerContractChange{}), true},
		"a server that no longer offers a tool": {one, nil, &prober.Result{Contract: foundContract()}, changedTo(foundContract(), v1beta1.MCPServerContractChange{Removed: []string{"tool/add"}}), true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{server: tools(), probed: c.probed}
			s.server.Status.Contract = c.before.DeepCopy()
			if c.change != nil {
				c.change(s.server)
			}
			next, changed := s.contract(later)
			g.Expect(next).To(Equal(c.want))
			g.Expect(changed).To(Equal(c.changed))
			g.Expect(s.server.Status.Contract).To(Equal(c.before), "it is not modified")

			// Once it is in the status, nothing has changed.
			s.server.Status.Contract = next
			again, changed := s.contract(metav1.Now())
			g.Expect(again).To(Equal(c.want))
			g.Expect(changed).To(BeFalse())
		})
	}
}

func changedTo(found *prober.Contract, change v1beta1.MCPServerContractChange) *v1beta1.MCPServerContractStatus {
	contract := recorded(found)
	change.Time = later
	contract.LastChange = &change
	return contract
}

// numbered is n items with names in order.
func numbered(n int, format string) []string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(format, i)
	}
	return items
}

func TestCompareContracts(t *testing.T) {
	type change = v1beta1.MCPServerContractChange
	many := numbered(40, "tool/%02d=1-1")
	cases := map[string]struct {
		before, after *prober.Contract
		want          change
	}{
		"added":       {foundContract("tool/a=1-1"), foundContract("tool/a=1-1", "tool/b=1-1", "prompt/a=1-1"), change{Added: []string{"tool/b", "prompt/a"}}},
		"removed":     {foundContract("tool/a=1-1", "tool/b=1-1"), foundContract("tool/b=1-1"), change{Removed: []string{"tool/a"}}},
		"schema":      {foundContract("tool/a=1-1"), foundContract("tool/a=2-1"), change{SchemaChanged: []string{"tool/a"}}},
		"description": {foundContract("tool/a=1-1"), foundContract("tool/a=1-2"), change{DescriptionChanged: []string{"tool/a"}}},
		"schema and description": {foundContract("tool/a=1-1"), foundContract("tool/a=2-2"),
			change{SchemaChanged: []string{"tool/a"}}},
		"all": {foundContract("tool/a=1-1", "tool/b=1-1", "tool/c=1-1"), foundContract("tool/b=2-1", "tool/c=1-2", "tool/d=1-1"),
			change{Removed: []string{"tool/a"}, SchemaChanged: []string{"tool/b"}, DescriptionChanged: []string{"tool/c"}, Added: []string{"tool/d"}}},
		"another kind": {foundContract("tool/a=1-1"), foundContract("prompt/a=1-1"), change{Removed: []string{"tool/a"}, Added: []string{"prompt/a"}}},
		"a second item with the name": {foundContract("tool/a=1-1"), foundContract("tool/a=1-1", "tool/a=2-2"),
			change{SchemaChanged: []string{"tool/a"}}},
		"one of two with the name":            {foundContract("tool/a=1-1", "tool/a=2-2"), foundContract("tool/a=1-1", "tool/a=2-3"), change{DescriptionChanged: []string{"tool/a"}}},
		"one of two with the name is removed": {foundContract("tool/a=1-1", "tool/a=1-2"), foundContract("tool/a=1-1"), change{SchemaChanged: []string{"tool/a"}}},
		"one of two with the name becomes the other": {foundContract("tool/a=1-1", "tool/a=2-2"), withOmitted(foundContract("tool/a=1-1", "tool/a=1-1"), 1),
			change{SchemaChanged: []string{"tool/a"}}},
		"a list that omits all items":   {withOmitted(foundContract(), 2), foundContract("tool/a=1-1"), change{}},
		"two with the name in an order": {foundContract("tool/a=1-2", "tool/a=2-1"), foundContract("tool/a=2-1", "tool/a=1-2"), change{}},
		"more than are named":           {foundContract(), foundContract(many...), change{Added: slices.Collect(keysOf(many[:32])), Omitted: 8}},
		// The contracts list three items and omit the others.
		"an item moves others out of the list": {withOmitted(foundContract("tool/b=1-1", "tool/c=1-1", "tool/d=1-1"), 1), withOmitted(foundContract("tool/a=1-1", "tool/b=1-1", "tool/c=1-1"), 2),
			change{Added: []string{"tool/a"}}},
		"an item moves others into the list": {withOmitted(foundContract("tool/a=1-1", "tool/b=1-1", "tool/c=1-1"), 2), withOmitted(foundContract("tool/b=1-1", "tool/c=1-1", "tool/d=1-1"), 1),
			change{Removed: []string{"tool/a"}}},
		"an item that is not listed": {withOmitted(foundContract("tool/a=1-1"), 1), withOmitted(foundContract("tool/a=1-1"), 2), change{}},
		"another kind moves out of the list": {withOmitted(foundContract("tool/b=1-1", "prompt/a=1-1"), 1), withOmitted(foundContract("tool/a=1-1", "tool/b=1-1"), 2),
			change{Added: []string{"tool/a"}}},
		"one of two with the name moves out of the list": {foundContract("tool/b=1-1", "tool/b=2-2"), withOmitted(foundContract("tool/a=1-1", "tool/b=1-1"), 1),
			change{Added: []string{"tool/a"}}},
		"the last listed item has another schema": {withOmitted(foundContract("tool/a=1-1"), 1), withOmitted(foundContract("tool/a=2-1"), 1), change{SchemaChanged: []string{"tool/a"}}},
		"one of three with the name moves out of the list": {foundContract("tool/b=1-1", "tool/b=2-2", "tool/b=3-3"), withOmitted(foundContract("tool/a=1-1", "tool/b=1-1", "tool/b=2-2"), 1),
			change{Added: []string{"tool/a"}}},
		"one of two with the name moves into the list": {withOmitted(foundContract("tool/a=1-1", "tool/b=1-1"), 1), foundContract("tool/b=1-1", "tool/b=1-1"),
			change{Removed: []string{"tool/a"}}},
		"a list that becomes complete": {withOmitted(foundContract("tool/a=1-1", "tool/b=1-1"), 1), foundContract("tool/a=1-1"), change{Removed: []string{"tool/b"}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(*compareContracts(recorded(c.before), recorded(c.after))).To(Equal(c.want))
		})
	}
}

func keysOf(items []string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, item := range items {
			key, _, _ := strings.Cut(item, "=")
			if !yield(key) {
				return
			}
		}
	}
}

func TestContractEvents(t *testing.T) {
	cases := map[string]struct {
		before, after *prober.Contract
		want          []phases.Event
	}{
		"the first one": {nil, foundContract("tool/a=1-1"), nil},
		"the same":      {foundContract("tool/a=1-1"), foundContract("tool/a=1-1"), nil},
		"added": {foundContract(), foundContract("tool/a=1-1"),
			[]phases.Event{{Type: "Normal", Note: `the contract changed: added: tool "a"; see status.contract`}}},
		"description": {foundContract("tool/a=1-1"), foundContract("tool/a=1-2"),
			[]phases.Event{{Type: "Normal", Note: `the contract changed: other description: tool "a"; see status.contract`}}},
		"removed": {foundContract("tool/a=1-1"), foundContract(),
			[]phases.Event{{Type: "Warning", Note: `the contract changed: removed: tool "a"; see status.contract`}}},
		"schema": {foundContract("resourceTemplate/a=1-1"), foundContract("resourceTemplate/a=2-1"),
			[]phases.Event{{Type: "Warning", Note: `the contract changed: other schema: resourceTemplate "a"; see status.contract`}}},
		"not listed": {withOmitted(foundContract("tool/a=1-1"), 1), withOmitted(foundContract("tool/a=1-1"), 2),
			[]phases.Event{{Type: "Warning", Note: "the contract changed: in parts that status.contract does not show; see status.contract"}}},
		"several": {foundContract("tool/a=1-1", "tool/b=1-1"), foundContract(append(numbered(5, "tool/%d=1-1"), "tool/b=2-1")...),
			[]phases.Event{{Type: "Warning", Note: `the contract changed: removed: tool "a"; other schema: tool "b"; added: tool "0", tool "1", tool "2" and 2 more; see status.contract`}}},
		"a name that imitates the message": {foundContract(), foundContract(`tool/x"; removed: tool "y`),
			[]phases.Event{{Type: "Normal", Note: `the contract changed: added: tool "x\"; removed: tool \"y"; see status.contract`}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{server: tools(), probed: &prober.Result{Contract: c.after}}
			s.server.Status.Contract = recorded(c.before)
			for i := range c.want {
				c.want[i].Reason, c.want[i].Action = "ContractChanged", "ObserveContract"
			}
			summary := phases.Summary{Now: later}
			g.Expect(contractEvents(s, summary)).To(Equal(c.want))

			// After a crash, the status with the change is what the next reconcile reads.
			s.server.Status.Contract, _ = s.contract(later)
			g.Expect(contractEvents(s, summary)).To(BeEmpty())
		})
	}
}

// The largest contract of a server, with names whose JSON is longest, must fit into etcd.
func TestStatusOfTheLargestContract(t *testing.T) {
	g := NewWithT(t)
	items := make([]prober.Item, prober.MaxContractItems)
	for i := range items {
		items[i] = prober.Item{Kind: prober.ResourceTemplate, Name: fmt.Sprintf("%03d", i) + strings.Repeat("<", 125), Digest: "01234567-01234567"}
	}
	s := &scope{server: tools(), probed: &prober.Result{Contract: &prober.Contract{Digest: "new", Items: items, Omitted: 10_000}}}
	s.server.Status.Contract = recorded(foundContract(numbered(prober.MaxContractItems, "tool/%03d=1-1")...))
	status := desiredStatus(s, phases.Summary{Now: later})
	g.Expect(len(asJSON(t, status))).To(BeNumerically("<", 300_000))
	g.Expect(*status.Status.Contract.Omitted).To(BeEquivalentTo(10_000))
	g.Expect(status.Status.Contract.LastChange.Removed).To(HaveLen(maxChangedNames))
}

func TestWarningAboutAContractThatCannotBeDerived(t *testing.T) {
	cases := map[string]struct {
		err  *prober.Error
		want string
	}{
		"too large":        {&prober.Error{Kind: prober.TooLarge, Detail: "the lists have too many object members"}, "; status.contract is not updated: the response is too large: the lists have too many object members; correct the lists that the server returns, or set spec.contract.policy to Disabled"},
		"not valid":        {&prober.Error{Kind: prober.NotMCP, Detail: "an item of a list is not valid JSON"}, "; status.contract is not updated: the response is not MCP: an item of a list is not valid JSON; correct the lists that the server returns, or set spec.contract.policy to Disabled"},
		"what may pass":    {&prober.Error{Kind: prober.Timeout}, ""},
		"no error at all ": {nil, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			result := prober.Result{State: prober.Answering, ContractErr: c.err}
			NewWithT(t).Expect(withWarnings(resultVerdict(tools(), result), tools(), result).Message()).To(Equal(succeeded + c.want))
		})
	}
}

func TestContractOfAServerThatPinsIsTheOneThatWasDecided(t *testing.T) {
	decided, probed := foundContract("tool/decided=1-1"), foundContract("tool/probed=1-1")
	for name, c := range map[string]struct {
		change func(*spec)
		pinned *pinned
		want   *prober.Contract
	}{
		"pinned":                       {pin, &pinned{decision: contractDecision{record: decided}}, decided},
		"pinned, and not decided":      {pin, nil, nil},
		"no longer pinned":             {func(*spec) {}, &pinned{decision: contractDecision{record: decided}}, probed},
		"pinned, and none is recorded": {pin, &pinned{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope{server: tools(c.change), pinned: c.pinned, probed: &prober.Result{Contract: probed}}
			next, changed := s.contract(later)
			if c.want == nil {
				NewWithT(t).Expect(next).To(BeNil())
			} else {
				NewWithT(t).Expect(next).To(Equal(recorded(c.want)))
			}
			NewWithT(t).Expect(changed).To(BeFalse())
		})
	}
}

func TestStatusSaysHowManyChangesItOmits(t *testing.T) {
	g := NewWithT(t)
	g.Expect(changeConfiguration(&v1beta1.MCPServerContractChange{Omitted: 3}).Omitted).To(HaveValue(BeEquivalentTo(3)))
	g.Expect(changeConfiguration(&v1beta1.MCPServerContractChange{}).Omitted).To(BeNil())
}

func TestEventNamesAllOfThreeItems(t *testing.T) {
	g := NewWithT(t)
	g.Expect(quotedNames([]string{"tool/a", "tool/b", "prompt/c"})).To(Equal(`tool "a", tool "b", prompt "c"`))
	g.Expect(quotedNames([]string{"tool/a", "tool/b", "prompt/c", "tool/d"})).To(Equal(`tool "a", tool "b", prompt "c" and 1 more`))
}
