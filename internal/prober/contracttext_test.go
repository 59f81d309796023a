package prober

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
)

// readerOf has read one list of tools.
func readerOf(t *testing.T, tools []string) *contractReader {
	t.Helper()
	k := kept{maxBytes: handshakeKept + listKept, maxValues: handshakeValues + listValues}
	reader := newContractReader()
	reader.list = toolList
	r := reducer{kept: &k, contract: reader}
	NewWithT(t).Expect(r.write([]byte(`{"result":{"tools":[` + strings.Join(tools, ",") + `]}}`))).To(BeNil())
	return reader
}

func textOf(t *testing.T, raw string) (text ContractText) {
	t.Helper()
	NewWithT(t).Expect(json.Unmarshal([]byte(raw), &text)).To(Succeed())
	return text
}

func TestTextOfAContract(t *testing.T) {
	g := NewWithT(t)
	reader := readerOf(t, []string{`{ "name": "b", "description": "<b> & more" }`, `{"name":"a","inputSchema":{"z":1.50,"a":[true,null]}}`})
	g.Expect(reader.text()).To(Equal(`{"items":[` +
		`{"kind":"tool","name":"a","definition":{"inputSchema":{"a":[true,null],"z":1.50},"name":"a"}},` +
		`{"kind":"tool","name":"b","definition":{"description":"<b> & more","name":"b"}}]}`))
	g.Expect(DigestOfText(textOf(t, reader.text()))).To(Equal(reader.contract().Digest))
	g.Expect(newContractReader().text()).To(Equal(`{"items":[]}`))
}

func TestTextIsBoundedAndDoesNotDependOnOrder(t *testing.T) {
	tool := func(name string, size int) string {
		return fmt.Sprintf(`{"name":%q,"description":%q}`, name, strings.Repeat("x", size))
	}
	many := make([]string, 2*MaxContractItems)
	for i := range many {
		many[i] = toolNamed(fmt.Sprintf("tool-%05d", i))
	}
	// The first 256 are not too long together, and all are.
	longer := make([]string, 2*MaxContractItems)
	for i := range longer {
		longer[i] = tool(fmt.Sprintf("tool-%05d", i), 300+1200*(i%2))
	}
	longest := maxItemBytes - len(tool("a", 0))
	for name, c := range map[string]struct {
		tools   []string
		kept    int
		omitted int
	}{
		"as long as possible":  {[]string{tool("a", 60<<10), tool("b", 60<<10), tool("c", 60<<10), tool("d", 60<<10), tool("e", 10<<10)}, 5, 0},
		"too long together":    {[]string{tool("a", 60<<10), tool("b", 60<<10), tool("c", 60<<10), tool("d", 60<<10), tool("e", 60<<10), tool("f", 60<<10), tool("g", 60<<10), tool("h", 1)}, 4, 4},
		"exactly as long":      {[]string{tool("e", 1), tool("d", longest), tool("c", longest), tool("b", longest), tool("a", longest)}, 4, 1},
		"one byte more":        {[]string{tool("d", longest-99), tool("c", longest), tool("b", longest), tool("a", longest), tool("e", 100-len(tool("e", 0)))}, 4, 1},
		"one byte too long":    {[]string{tool("a", longest+1)}, 0, 1},
		"with a valid end":     {[]string{`{"name":"a","x":` + strings.Repeat(" ", maxItemBytes) + `{}}`}, 0, 1},
		"one is too long":      {[]string{tool("a", 100), tool("b", maxItemBytes), tool("c", 1)}, 2, 1},
		"the first is":         {[]string{tool("a", 2*maxTextBytes), tool("b", 1)}, 1, 1},
		"more than are listed": {many, MaxContractItems, MaxContractItems},
		"more, and long ones":  {longer, MaxContractItems, MaxContractItems},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reader := readerOf(t, c.tools)
			text := textOf(t, reader.text())
			g.Expect(text.Items).To(HaveLen(c.kept))
			g.Expect(text.Omitted).To(Equal(c.omitted))
			g.Expect(len(reader.texts.current)).To(BeNumerically("<=", maxItemBytes), "what is too long takes no memory")
			held := 0
			for _, item := range reader.kept {
				held += len(item.raw)
			}
			g.Expect(held).To(BeNumerically("<=", maxTextBytes), "nor what is omitted")
			if c.omitted > 0 {
				g.Expect(DigestOfText(text)).To(BeEmpty())
			}
			for range 5 {
				rand.Shuffle(len(c.tools), func(i, j int) { c.tools[i], c.tools[j] = c.tools[j], c.tools[i] })
				g.Expect(readerOf(t, c.tools).text()).To(Equal(reader.text()))
			}
		})
	}
}

// What is stored of some texts is longer than what the server sent.
func TestTextThatIsStoredIsBounded(t *testing.T) {
	const separator = "\u2028" // has three bytes, and an escape of six
	tool := func(name string, separators, others int) string {
		return `{"description":"` + strings.Repeat(separator, separators) + strings.Repeat("x", others) + `","name":"` + name + `"}`
	}
	longest := maxItemBytes - len(tool("a", 0, 0)) - 6
	half := maxItemBytes / 2 / 6
	for name, c := range map[string]struct {
		tools   []string
		kept    []string
		omitted int
	}{
		"as long as possible": {[]string{tool("a", 1, longest)}, []string{"a"}, 0},
		"one byte too long":   {[]string{tool("a", 1, longest+1), tool("b", 0, 0)}, []string{"b"}, 1},
		"not UTF-8":           {[]string{strings.ReplaceAll(tool("a", 0, half), "x", "\xff"), strings.ReplaceAll(tool("b", 0, longest), "x", "\xff")}, []string{"a"}, 1},
		"exactly as long":     {[]string{tool("a", 1, longest), tool("b", 1, longest), tool("c", 1, longest), tool("d", 1, longest)}, []string{"a", "b", "c", "d"}, 0},
		"too long together":   {[]string{tool("a", 1, longest), tool("b", 1, longest), tool("c", 1, longest), tool("d", half, 0), tool("e", half, 0), tool("f", 0, 0)}, []string{"a", "b", "c", "d"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reader := readerOf(t, c.tools)
			text := textOf(t, reader.text())
			var names []string
			for _, item := range text.Items {
				names = append(names, item.Name)
			}
			g.Expect(names).To(Equal(c.kept))
			g.Expect(text.Omitted).To(Equal(c.omitted))
			slices.Reverse(c.tools)
			g.Expect(readerOf(t, c.tools).text()).To(Equal(reader.text()))
		})
	}
}

// A ConfigMap has three texts, and at most 1 MiB.
func TestThreeTextsFitIntoAConfigMap(t *testing.T) {
	templates := make([]string, MaxContractItems)
	for i := range templates {
		templates[i] = fmt.Sprintf(`{"name":"%s%03d","x":"`, strings.Repeat(`\"`, maxItemName-3), i) + strings.Repeat("\u2028", maxTextBytes/MaxContractItems/4) + `"}`
	}
	reader := newContractReader()
	reader.list = templateList
	for _, template := range templates {
		reader.begin(templateList)
		reader.write([]byte(template))
		reader.end()
	}
	NewWithT(t).Expect(3 * len(reader.text())).To(BeNumerically("<", 1<<20))
}

func TestDigestOfATextThatIsNoContract(t *testing.T) {
	g := NewWithT(t)
	g.Expect(DigestOfText(ContractText{Items: []TextItem{{Kind: "x", Definition: json.RawMessage(`{}`)}}})).To(BeEmpty())
	g.Expect(DigestOfText(ContractText{Items: []TextItem{{Kind: Tool, Definition: json.RawMessage(`{`)}}})).To(BeEmpty())
}

func TestTextOfAServerIsKept(t *testing.T) {
	g := NewWithT(t)
	p := newProber(t, Options{})
	server := newServer()
	server.AddResourceTemplate(&mcp.ResourceTemplate{Name: "file", URITemplate: "file:///{path}"}, nil)
	target := withContract(Target{URL: serve(t, streamable(server, nil)).URL})
	found := probeBy(t, p, target)
	g.Expect(found.contract.reader).To(BeNil(), "it takes memory")
	text := textOf(t, p.ContractText(found.contract.Digest))
	g.Expect(text.Items).To(HaveExactElements(
		HaveField("Kind", Tool), HaveField("Kind", Tool), HaveField("Kind", Prompt), HaveField("Kind", ResourceTemplate)))
	g.Expect(DigestOfText(text)).To(Equal(found.contract.Digest))
	g.Expect(p.ContractText("other")).To(BeEmpty())
}

func TestTextsThatAreKeptAreBounded(t *testing.T) {
	g := NewWithT(t)
	known := newTexts()
	long := strings.Repeat("x", maxTextsBytes/4)
	for i := range 10 {
		known.add(fmt.Sprint(i), long)
		known.add(fmt.Sprint(i), long)
		g.Expect(known.bytes).To(And(BeNumerically(">", 0), BeNumerically("<=", maxTextsBytes)))
		g.Expect(known.get(fmt.Sprint(i))).To(Equal(long), "the last one")
	}
	for i := range 2 * maxTexts {
		known.add(fmt.Sprint("short", i), "x")
	}
	g.Expect(known.known.Len()).To(Equal(maxTexts))
	g.Expect(known.bytes).To(BeNumerically("<", 2*maxTextsBytes))
}

func TestTextsAreKeptUntilTheyAreTooLongTogether(t *testing.T) {
	g := NewWithT(t)
	known := newTexts()
	long := strings.Repeat("x", maxTextsBytes/4)
	for range 10 {
		known.add("first", long) // as several probes that read it at once
	}
	for _, digest := range []string{"second", "third", "fourth"} {
		known.add(digest, long)
	}
	for _, digest := range []string{"first", "second", "third", "fourth"} {
		g.Expect(known.get(digest)).To(Equal(long), digest)
	}
}

// Or else all would be dropped from time to time.
func TestTextsThatAreDroppedDoNotCount(t *testing.T) {
	g := NewWithT(t)
	known := newTexts()
	for i := range 3 * maxTexts {
		known.add(fmt.Sprint(i), "x")
	}
	g.Expect(known.bytes).To(Equal(maxTexts))
}
