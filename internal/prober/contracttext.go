package prober

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"

	"k8s.io/utils/lru"
)

const (
	// maxTextBytes is the maximum size of the items in the text of a contract together, and maxItemBytes of one, as the
	// server sent them, and again as they are stored, which may be longer.
	maxTextBytes = 256 << 10
	maxItemBytes = 64 << 10
	// maxTexts and maxTextsBytes limit the texts that a prober keeps.
	maxTexts      = 4096
	maxTextsBytes = 16 << 20
)

// ContractText is a contract in full.
type ContractText struct {
	// Items are in the order of the contract.
	Items []TextItem `json:"items"`
	// Omitted is the number of items that Items does not contain, because there are too many, or they are too long.
	Omitted int `json:"omitted,omitempty"`
}

// TextItem is an item in full.
type TextItem struct {
	Kind Kind `json:"kind"`
	// Name is that of the item in the contract.
	Name string `json:"name"`
	// Definition is the JSON that the server sent, without white space and with sorted keys. Of equal keys it has the last.
	Definition json.RawMessage `json:"definition"`
}

// textReader keeps the JSON of the first items of a contract, up to a size.
type textReader struct {
	// current is the item that is being read, unless it isTooLong.
	current   []byte
	isTooLong bool
	size      int
	// from is the first item that is omitted, and those after it are, too; nil if none is.
	from *readItem
}

func (t *textReader) begin() { t.current, t.isTooLong = t.current[:0], false }

func (t *textReader) write(part []byte) {
	if t.isTooLong = t.isTooLong || len(t.current)+len(part) > maxItemBytes; t.isTooLong {
		t.current = nil
		return
	}
	t.current = append(t.current, part...)
}

// keep gives an item the JSON that was read, and removes that of the last items while all together are too long. So what is
// kept does not depend on the order of the items.
func (t *textReader) keep(r *contractReader, item *readItem) {
	if t.isTooLong || t.from != nil && item.compare(*t.from) >= 0 {
		return
	}
	item.raw = bytes.Clone(t.current)
	t.size += len(item.raw)
	for i := len(r.kept) - 1; i >= 0 && t.size > maxTextBytes; i-- {
		last := &r.kept[i]
		if last.compare(*item) < 0 {
			break
		}
		t.drop(last)
	}
	if t.size > maxTextBytes {
		t.drop(item)
	}
}

// drop removes the JSON of the last item that has one.
func (t *textReader) drop(item *readItem) {
	t.size -= len(item.raw)
	item.raw = nil
	from := *item
	t.from = &from
}

// text is the contract in full, as JSON.
func (r *contractReader) text() string {
	kinds := map[int]Kind{toolList: Tool, promptList: Prompt, templateList: ResourceTemplate}
	text := ContractText{Items: []TextItem{}, Omitted: r.items}
	size := 0
	for _, item := range r.kept {
		definition := canonicalJSON(item.raw)
		if definition == nil || len(definition) > maxItemBytes {
			continue
		}
		if size += len(definition); size > maxTextBytes {
			break
		}
		text.Items = append(text.Items, TextItem{kinds[item.list], item.name, definition})
		text.Omitted--
	}
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // it consists of valid JSON
	return strings.TrimSuffix(out.String(), "\n")
}

// canonicalJSON is JSON without white space and with sorted keys; nil if it is not valid.
func canonicalJSON(raw []byte) json.RawMessage {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return nil
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // it was decoded from JSON
	return bytes.TrimSpace(out.Bytes())
}

// DigestOfText is the digest of a contract whose text is complete; empty if it is not, or is not valid.
func DigestOfText(text ContractText) string {
	if text.Omitted > 0 {
		return ""
	}
	lists := map[Kind]int{Tool: toolList, Prompt: promptList, ResourceTemplate: templateList}
	r := newContractReader()
	for _, item := range text.Items {
		list, ok := lists[item.Kind]
		if !ok {
			return ""
		}
		r.list = list
		r.begin(list)
		r.write(item.Definition)
		r.end()
	}
	if r.values.err != nil {
		return ""
	}
	return r.contract().Digest
}

// texts are the texts of the contracts that were read last, by digest.
type texts struct {
	mu    sync.Mutex
	known *lru.Cache
	bytes int
}

func newTexts() *texts {
	t := &texts{}
	t.known = lru.NewWithEvictionFunc(maxTexts, func(_ lru.Key, text any) {
		removed, _ := text.(string)
		t.bytes -= len(removed)
	})
	return t
}

// take keeps the text of a contract, which no longer holds what it was read from.
func (t *texts) take(contract *Contract) {
	if contract == nil {
		return
	}
	reader := contract.reader
	contract.reader = nil
	if t.get(contract.Digest) == "" {
		t.add(contract.Digest, reader.text())
	}
}

func (t *texts) get(digest string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, _ := t.known.Get(digest)
	text, _ := known.(string)
	return text
}

func (t *texts) add(digest, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.known.Get(digest); ok { // another probe has read it
		return
	}
	if t.bytes+len(text) > maxTextsBytes {
		t.known.Clear() // which subtracts the bytes of each
	}
	t.known.Add(digest, text)
	t.bytes += len(text)
}

// ContractText is the text of a contract that was read lately, as the JSON of a [ContractText]; empty if it is not known
// any more.
func (p *Prober) ContractText(digest string) string { return p.texts.get(digest) }
