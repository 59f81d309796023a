package prober

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/sha3"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxContractItems is the greatest number of items that a Contract names.
const MaxContractItems = 256

// Kind is the kind of an item of a contract.
type Kind string

// The kinds of items, in the order of a contract.
const (
	Tool             Kind = "tool"
	Prompt           Kind = "prompt"
	ResourceTemplate Kind = "resourceTemplate"
)

// Contract is what a server offers to clients.
type Contract struct {
	// Digest changes if and only if the items change, including those that Items does not contain. It does not depend
	// on their order.
	Digest string
	// Items are sorted by kind and name.
	Items []Item
	// Omitted is the number of items that Items does not contain.
	Omitted int

	// reader has read it, until the prober takes its text: see [Prober.ContractText].
	reader *contractReader
}

// Item is a tool, a prompt or a resource template.
type Item struct {
	Kind Kind
	// Name is cut to 128 bytes, and contains only printable characters.
	Name string
	// Digest is 8 hexadecimal digits of the digest of the schema, which is all but the description, "-", and 8 of the
	// digest of the description, which includes the title and the icons.
	Digest string
}

// sameContract reports whether both are nil, or have the same digest.
func sameContract(a, b *Contract) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Digest == b.Digest
}

// unnamed is the name of items without one.
const unnamed = "(unnamed)"

// contractReader derives the contract of a server from the items of its lists, as they are read. Its memory is
// bounded by constants.
type contractReader struct {
	values canonicalizer
	// list is the list that is being read. Items of others are ignored.
	list    int
	reading bool
	// kept are the first items in the order of a contract; rest are the others.
	kept []readItem
	rest *multiset
	// items is the number of all items.
	items int
	texts textReader
}

// readItem is an item of a list.
type readItem struct {
	list                int
	name                string
	schema, description digest
	// raw is the JSON of the item; nil if it is not kept.
	raw []byte
}

// noList is the list of a contractReader that ignores all items.
const noList = -1

func newContractReader() *contractReader { return &contractReader{list: noList} }

// begin starts an item of a list. Resources are content, and not part of the contract.
func (r *contractReader) begin(list int) {
	if r == nil || list != r.list || list == resourceList {
		return
	}
	r.reading = true
	r.texts.begin()
	r.values.begin()
}

// write reads more bytes of the current item, if there is one.
func (r *contractReader) write(part []byte) {
	if r != nil && r.reading {
		r.values.write(part)
		r.texts.write(part)
	}
}

func (r *contractReader) writeByte(b byte) {
	if r != nil && r.reading {
		one := [1]byte{b}
		r.values.write(one[:])
		r.texts.write(one[:])
	}
}

// end ends the current item, if there is one.
func (r *contractReader) end() {
	if r == nil || !r.reading {
		return
	}
	r.reading = false
	item := readItem{list: r.list}
	item.schema, item.description = r.values.end()
	item.name = itemName(r.values.name)
	r.add(item)
}

// add keeps an item if it is one of the first. Which items these are does not depend on the order of the lists.
func (r *contractReader) add(item readItem) {
	r.items++
	at, _ := slices.BinarySearchFunc(r.kept, item, readItem.compare)
	if at < MaxContractItems {
		r.texts.keep(r, &item)
	}
	if len(r.kept) < MaxContractItems {
		r.kept = slices.Insert(r.kept, at, item)
		return
	}
	if at < MaxContractItems {
		last := r.kept[MaxContractItems-1]
		copy(r.kept[at+1:], r.kept[at:MaxContractItems-1])
		r.kept[at], item = item, last
		r.texts.size -= len(item.raw)
	}
	if r.rest == nil {
		r.rest = &multiset{}
	}
	r.rest.add(item)
}

func (i readItem) compare(other readItem) int {
	return cmp.Or(cmp.Compare(i.list, other.list), strings.Compare(i.name, other.name),
		bytes.Compare(i.schema[:], other.schema[:]), bytes.Compare(i.description[:], other.description[:]))
}

// bytes are what the digest of the contract covers. The name is in the schema.
func (i readItem) bytes() []byte {
	return slices.Concat([]byte{byte(i.list)}, i.schema[:], i.description[:]) //nolint:gosec // one of four lists
}

// contract is the contract after all lists have been read.
func (r *contractReader) contract() *Contract {
	all := sha256.New()
	contract := &Contract{Omitted: r.items - len(r.kept)}
	kinds := map[int]Kind{toolList: Tool, promptList: Prompt, templateList: ResourceTemplate}
	for _, item := range r.kept {
		_, _ = all.Write(item.bytes())
		contract.Items = append(contract.Items, Item{kinds[item.list], item.name, hex.EncodeToString(item.schema[:4]) + "-" + hex.EncodeToString(item.description[:4])})
	}
	if r.rest != nil {
		_ = binary.Write(all, binary.BigEndian, uint64(r.items)) //nolint:gosec // not negative
		_ = binary.Write(all, binary.BigEndian, r.rest)
	}
	contract.Digest = hex.EncodeToString(all.Sum(nil)[:16])
	return contract
}

// multiset is a digest of items that does not depend on their order, in constant memory: LtHash, the sum of vectors
// of 1,024 numbers of 16 bits that are derived from the items.
type multiset [1024]uint16

func (m *multiset) add(item readItem) {
	shake := sha3.NewSHAKE128()
	_, _ = shake.Write(item.bytes())
	var part [128]byte
	for at := 0; at < len(m); at += len(part) / 2 {
		_, _ = shake.Read(part[:])
		for i := range len(part) / 2 {
			m[at+i] += binary.BigEndian.Uint16(part[2*i:])
		}
	}
}

// itemName is a name from a server, which is stored in objects and printed.
func itemName(raw []byte) string {
	kept := make([]byte, 0, min(len(raw), maxItemName))
	for len(raw) > 0 {
		character, size := utf8.DecodeRune(raw)
		if len(kept)+utf8.RuneLen(character) > maxItemName {
			break
		}
		if isValid := character != utf8.RuneError || size > 1; isValid && unicode.IsPrint(character) {
			kept = append(kept, raw[:size]...)
		}
		raw = raw[size:]
	}
	if len(kept) == 0 {
		return unnamed
	}
	return string(kept)
}

// observes reports whether the next probe of a replica lists it for its contract, beside the full probes. Each replica
// is listed once, and again while the first one offers something else.
func (e *entry) observes(m *member, now time.Time) bool {
	if e.target.Contract && e.target.Verify {
		return true
	}
	if !e.target.Contract || !m.listSchedule.due(now) {
		return false
	}
	first := e.members[0]
	return m.contract == nil || first.contract != nil && !sameContract(m.contract, first.contract)
}

// updateContract stores the contract of a replica after a handshake. If that of the first replica has changed, the
// others are listed immediately.
func (p *Prober) updateContract(m *member, j job, a answer) {
	e := m.entry
	if !j.list || !e.target.Contract || !j.contract {
		return
	}
	m.noteOffer(a)
	now := p.options.Clock.Now()
	isFirst := m == e.members[0]
	if isFirst && a.listed {
		e.contractErr = a.contractErr
	}
	switch {
	case !a.listed:
		m.listSchedule.postpone(now, e.target.Interval)
		return
	case a.contract == nil:
		m.listSchedule.schedule(now, false, e.target.Interval, p.options.ListEvery, p.random())
		return
	}
	before := m.contract
	m.contract = a.contract
	if sameContract(m.contract, e.members[0].contract) {
		m.listSchedule = listSchedule{}
	} else {
		// The first one may be replaced, or never offer the same.
		m.listSchedule.schedule(now, false, e.target.Interval, p.options.ListEvery, p.random())
	}
	if isFirst && before != nil && !sameContract(before, m.contract) {
		p.listOthers(e)
	}
}

// noteOffer stores why a replica has no contract. What it offered before stays, because an error may be one of the network,
// unless the content of the response is the reason.
func (m *member) noteOffer(a answer) {
	if !a.listed {
		m.unlisted = m.entry.target.Verify
		return
	}
	m.offerErr = firstOf(a.listErr, a.contractErr)
	if a.contract != nil {
		m.refusal = nil
	}
	m.noteRefusal(m.offerErr)
}

func (m *member) noteRefusal(err *Error) {
	if err != nil && err.isContent() {
		m.refusal = err
	}
}

func firstOf(errs ...*Error) *Error {
	at := slices.IndexFunc(errs, func(err *Error) bool { return err != nil })
	if at < 0 {
		return nil
	}
	return errs[at]
}

// offers are those of all replicas.
func (e *entry) offers() map[string]Offer {
	if !e.target.Contract || !e.target.Verify {
		return nil
	}
	offers := make(map[string]Offer, len(e.members))
	for _, m := range e.members {
		switch {
		case m.refusal != nil:
			offers[m.address] = Offer{Err: m.refusal}
		case m.contract == nil:
			offers[m.address] = Offer{Err: firstOf(m.history.err, m.offerErr)}
		default:
			offers[m.address] = Offer{Contract: m.contract}
		}
	}
	return offers
}

// listOthers makes probes of all replicas but the first one due immediately.
func (p *Prober) listOthers(e *entry) {
	for _, m := range e.members[1:] {
		m.listSchedule = listSchedule{}
		if m.cancel != nil || m.fresh {
			continue // a probe runs or is due
		}
		p.queue.remove(m)
		p.enqueueFresh(m)
	}
}

// agree updates the contract of the server once all replicas offer the same. Until then, as during a rollout, the
// server has the last one on which they agreed.
func (e *entry) agree() {
	if !e.target.Contract {
		e.contract, e.contractErr = nil, nil
		for _, m := range e.members {
			m.contract, m.offerErr, m.refusal = nil, nil, nil
		}
		return
	}
	first := e.members[0].contract
	agreed := first != nil
	for _, m := range e.members {
		if sameContract(m.contract, first) {
			m.contract = first // so that equal ones take the memory of one
		} else {
			agreed = false
		}
	}
	if agreed {
		e.contract = first
	}
}
