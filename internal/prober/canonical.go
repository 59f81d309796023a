package prober

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits of what a canonicalizer keeps and computes.
const (
	// maxMembers limits the members of all objects, and maxOpenMembers those of the objects that have not ended.
	maxMembers     = 100_000
	maxOpenMembers = 4 << 10
	// maxToken is the longest number.
	maxToken = 128
	// maxKey is more than the length of the keys that have a meaning, and maxItemName limits names in bytes.
	maxKey      = 16
	maxItemName = 128
)

// The errors of values that have no digests.
var (
	errTooManyMembers = &Error{Kind: TooLarge, Detail: "the lists have too many object members, or a number is too long"}
	errMalformed      = &Error{Kind: NotMCP, Detail: "an item of a list is not valid JSON"}
)

type digest [sha256.Size]byte

// canonicalizer derives digests of JSON values from their bytes as they arrive. Its memory does not depend on their
// size. Values that differ only in white space, in the order of members with different keys, in the escapes of strings,
// or in the spelling of numbers, such as 1 and 1.0, have the same digests.
//
// It hashes JSON without white space, with the escapes that are necessary, with numbers in one spelling, and
// with each object replaced by the sorted digests of its members. So no object has to be kept to sort its keys.
//
// A value is begun, written in any number of parts, and ended. After an error it ignores what is written.
type canonicalizer struct {
	err *Error
	// total is the number of members of all values.
	total int

	frames []frame
	// hashes are those of the value, and of the current member of each open object; open is their number less one.
	hashes []hash.Hash
	open   int
	// members are those of open objects, without those in described: the members of the value itself that describe it.
	members, described []objectMember
	expected           expectation

	// isKey is true for the current string if it is a key.
	inString, isKey bool
	escape          escape
	// code is the part of an escape that has been read, and high the first half of a pair of escapes.
	code, high rune
	token      []byte
	// key is the beginning of the current key of the value itself, and name that of its member "name".
	key, name []byte

	scratch []byte
}

// frame is an open array, or an open object with the index of its first member and the beginning of the digest of its
// current key.
type frame struct {
	isObject bool
	start    int
	key      uint64
}

// objectMember is a member of an object: the beginning of the digest of its key, and the digest of all of it.
type objectMember struct {
	key    uint64
	digest digest
}

// expectation is what can follow in a value.
type expectation uint8

const (
	aValue expectation = iota
	aValueOrEnd
	aKey
	aKeyOrEnd
	aColon
	aCommaOrEnd
	nothing
)

// escape is the state within an escape: the number of hexadecimal digits that are missing, or one of the following.
type escape uint8

const (
	noEscape    escape = 0
	afterEscape escape = 5
)

// begin starts a value.
func (c *canonicalizer) begin() {
	c.frames, c.members, c.described = c.frames[:0], c.members[:0], c.described[:0]
	c.key, c.name, c.token = c.key[:0], c.name[:0], c.token[:0]
	c.open, c.inString, c.escape, c.high, c.expected = 0, false, noEscape, 0, aValue
	c.reset()
}

// end ends a value. schema is the digest of the value without the members that describe it, and description is
// that of these members. They are valid if there is no error.
func (c *canonicalizer) end() (schema, description digest) {
	c.endToken()
	if c.expected != nothing {
		c.fail(errMalformed)
	}
	if c.err != nil {
		return digest{}, digest{}
	}
	schema = c.sum()
	c.reset()
	c.writeMembers(c.described)
	return schema, c.sum()
}

// write reads more bytes of a value.
func (c *canonicalizer) write(part []byte) {
	for len(part) > 0 && c.err == nil {
		if c.inString {
			part = part[c.readString(part):]
			continue
		}
		c.next(part[0])
		part = part[1:]
	}
}

func (c *canonicalizer) next(b byte) {
	if isTokenByte(b) {
		c.addToTokens(b)
		return
	}
	c.endToken()
	switch b {
	case ' ', '\t', '\r', '\n':
	case '"':
		c.beginString()
	case '{', '[':
		c.openFrame(b)
	case '}', ']':
		c.closeFrame(b)
	case ',':
		c.separate()
	case ':':
		c.expect(aColon)
		c.put(':')
		c.expected = aValue
	default:
		c.fail(errMalformed)
	}
}

// isTokenByte reports whether a byte is part of a number, true, false or null.
func isTokenByte(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b == '-' || b == '+' || b == '.' || b == 'E'
}

func (c *canonicalizer) addToTokens(b byte) {
	switch {
	case c.expected != aValue && c.expected != aValueOrEnd:
		c.fail(errMalformed)
	case len(c.token) == maxToken:
		c.fail(errTooManyMembers)
	default:
		c.token = append(c.token, b)
	}
}

func (c *canonicalizer) endToken() {
	if len(c.token) == 0 {
		return
	}
	token, ok := canonicalToken(c.token)
	if !ok {
		c.fail(errMalformed)
		return
	}
	c.puts(token)
	c.token = c.token[:0]
	c.endValue()
}

func (c *canonicalizer) endValue() {
	c.expected = aCommaOrEnd
	if len(c.frames) == 0 {
		c.expected = nothing
	}
}

func (c *canonicalizer) openFrame(b byte) {
	c.expect(aValue, aValueOrEnd)
	if len(c.frames) >= maxDepth {
		c.fail(errTooDeep)
		return
	}
	c.frames = append(c.frames, frame{isObject: b == '{', start: len(c.members)})
	if b == '[' {
		c.put('[')
		c.expected = aValueOrEnd
		return
	}
	c.open++
	c.expected = aKeyOrEnd
}

func (c *canonicalizer) closeFrame(b byte) {
	if len(c.frames) == 0 || c.top().isObject != (b == '}') {
		c.fail(errMalformed)
		return
	}
	if b == ']' {
		c.expect(aCommaOrEnd, aValueOrEnd)
		c.put(']')
		c.frames = c.frames[:len(c.frames)-1]
		c.endValue()
		return
	}
	c.expect(aCommaOrEnd, aKeyOrEnd)
	if c.expected == aCommaOrEnd {
		c.endMember()
	}
	start := c.top().start
	c.frames = c.frames[:len(c.frames)-1]
	c.open--
	c.writeMembers(c.members[start:])
	c.members = c.members[:start]
	c.endValue()
}

// separate reads a comma.
func (c *canonicalizer) separate() {
	c.expect(aCommaOrEnd)
	if c.err != nil {
		return
	}
	if !c.top().isObject {
		c.put(',')
		c.expected = aValue
		return
	}
	c.endMember()
	c.expected = aKey
}

func (c *canonicalizer) top() frame { return c.frames[len(c.frames)-1] }

// endMember replaces a member by its digest.
func (c *canonicalizer) endMember() {
	if c.total++; c.total > maxMembers || len(c.members)+len(c.described) >= maxOpenMembers {
		c.fail(errTooManyMembers)
		return
	}
	member := objectMember{key: c.top().key, digest: c.sum()}
	if len(c.frames) == 1 && describes(string(c.key)) {
		c.described = append(c.described, member)
		return
	}
	c.members = append(c.members, member)
}

// describes reports whether a member of an item is for people and models, and has no effect on its parameters.
func describes(key string) bool {
	return key == "description" || key == "title" || key == "icons"
}

func (c *canonicalizer) writeMembers(members []objectMember) {
	slices.SortStableFunc(members, func(a, b objectMember) int { return cmp.Compare(a.key, b.key) })
	// Of members with one key, clients read only the last one, or the first: their order is part of the value.
	if !hasDuplicates(members) {
		slices.SortFunc(members, func(a, b objectMember) int { return bytes.Compare(a.digest[:], b.digest[:]) })
	}
	c.scratch = binary.BigEndian.AppendUint32(append(c.scratch[:0], '{'), uint32(len(members))) //nolint:gosec // at most maxOpenMembers
	c.puts(c.scratch)
	for i := range members {
		c.puts(members[i].digest[:])
	}
}

// hasDuplicates reports whether members that are sorted by their keys have one key.
func hasDuplicates(members []objectMember) bool {
	for i := 1; i < len(members); i++ {
		if members[i].key == members[i-1].key {
			return true
		}
	}
	return false
}

func (c *canonicalizer) beginString() {
	switch c.expected {
	case aValue, aValueOrEnd:
		c.isKey = false
	case aKey, aKeyOrEnd:
		c.isKey = true
		c.reset()
		if len(c.frames) == 1 {
			c.key = c.key[:0]
		}
	default:
		c.fail(errMalformed)
		return
	}
	if c.isName() {
		c.name = c.name[:0]
	}
	c.inString = true
	c.put('"')
}

// isName reports whether the current string is the name of the value.
func (c *canonicalizer) isName() bool {
	return len(c.frames) == 1 && string(c.key) == "name"
}

// readString reads the beginning of part, and returns its length.
func (c *canonicalizer) readString(part []byte) int {
	if c.escape != noEscape {
		c.readEscape(part[0])
		return 1
	}
	n := 0
	for n < len(part) && part[n] != '"' && part[n] != '\\' {
		n++
	}
	if n > 0 {
		c.endPair()
		c.puts(part[:n])
		c.capture(part[:n])
		return n
	}
	if part[0] == '\\' {
		c.escape = afterEscape
		return 1
	}
	c.endPair()
	c.put('"')
	c.inString = false
	if c.isKey {
		key := c.sum()
		c.frames[len(c.frames)-1].key = binary.BigEndian.Uint64(key[:])
		c.expected = aColon
	} else {
		c.endValue()
	}
	return 1
}

// escaped are the characters of short escapes.
var escaped = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (c *canonicalizer) readEscape(b byte) {
	if c.escape == afterEscape {
		c.escape, c.code = noEscape, 0
		if b == 'u' {
			c.escape = 4
			return
		}
		character, ok := escaped[b]
		if !ok {
			c.fail(errMalformed)
			return
		}
		c.addCharacter(character)
		return
	}
	value, err := strconv.ParseUint(string(b), 16, 4)
	if err != nil {
		c.fail(errMalformed)
		return
	}
	c.code = c.code<<4 | rune(value) //nolint:gosec // four bits
	if c.escape--; c.escape == noEscape {
		c.addCharacter(c.code)
	}
}

// addCharacter adds an escaped character. Halves of pairs without the other half become U+FFFD, as in Go.
func (c *canonicalizer) addCharacter(character rune) {
	if pair := utf16.DecodeRune(c.high, character); pair != utf8.RuneError {
		c.high = 0
		c.putCharacter(pair)
		return
	}
	c.endPair()
	if utf16.IsSurrogate(character) {
		c.high = character
		return
	}
	c.putCharacter(character)
}

// endPair ends a pair whose second half does not follow.
func (c *canonicalizer) endPair() {
	if c.high != 0 {
		c.high = 0
		c.putCharacter(utf8.RuneError)
	}
}

// putCharacter hashes a character that was escaped, with an escape only if it needs one. U+0001 has none, because `\u1` and
// a digit is the escape of another character. The others are not padded, because digests are stored.
func (c *canonicalizer) putCharacter(character rune) {
	text := utf8.AppendRune(nil, character)
	c.capture(text)
	switch {
	case character == '"' || character == '\\':
		c.put('\\')
	case character < ' ' && character != 1:
		text = strconv.AppendInt([]byte(`\u`), int64(character), 16)
	}
	c.puts(text)
}

// capture keeps the beginning of strings that have a meaning.
func (c *canonicalizer) capture(text []byte) {
	switch {
	case c.isKey && len(c.frames) == 1:
		c.key = append(c.key, text[:min(len(text), maxKey-len(c.key))]...)
	case c.isName():
		// A character that is cut is removed later.
		c.name = append(c.name, text[:min(len(text), maxItemName+utf8.UTFMax-len(c.name))]...)
	}
}

func (c *canonicalizer) expect(allowed ...expectation) {
	if !slices.Contains(allowed, c.expected) {
		c.fail(errMalformed)
	}
}

func (c *canonicalizer) fail(err *Error) {
	if c.err == nil {
		c.err = err
	}
}

// hash is the current one.
func (c *canonicalizer) hash() hash.Hash {
	for len(c.hashes) <= c.open {
		c.hashes = append(c.hashes, sha256.New())
	}
	return c.hashes[c.open]
}

func (c *canonicalizer) reset() { c.hash().Reset() }

// sum is the digest of what the current hash has read.
func (c *canonicalizer) sum() (sum digest) {
	c.hash().Sum(sum[:0])
	return sum
}

func (c *canonicalizer) puts(text []byte) { _, _ = c.hash().Write(text) }

func (c *canonicalizer) put(b byte) {
	c.scratch = append(c.scratch[:0], b)
	c.puts(c.scratch)
}

// canonicalToken is the only spelling of a number, true, false or null; false if it is none of them.
func canonicalToken(token []byte) ([]byte, bool) {
	switch string(token) {
	case "true", "false", "null":
		return token, true
	}
	return canonicalNumber(token)
}

// canonicalNumber is a number as an integer without trailing zeros and a power of ten. Nothing is rounded.
func canonicalNumber(token []byte) ([]byte, bool) {
	rest, isNegative := bytes.CutPrefix(token, []byte("-"))
	mantissa, power, hasPower := cutAny(rest, "eE")
	whole, fraction, hasFraction := bytes.Cut(mantissa, []byte("."))
	if !isDigits(whole) || hasFraction && !isDigits(fraction) || len(whole) > 1 && whole[0] == '0' {
		return nil, false
	}
	exponent := 0
	if hasPower {
		unsigned := bytes.TrimPrefix(bytes.TrimPrefix(power, []byte("+")), []byte("-"))
		if !isDigits(unsigned) || len(power)-len(unsigned) > 1 {
			return nil, false
		}
		// One that is out of range is the greatest or the least number.
		if exponent, _ = strconv.Atoi(string(power)); exponent > 1<<30 || exponent < -1<<30 {
			return token, true // its spelling has to do
		}
	}
	digits := append(bytes.Clone(whole), fraction...)
	significant := bytes.TrimRight(digits, "0")
	exponent += len(digits) - len(significant) - len(fraction)
	significant = bytes.TrimLeft(significant, "0")
	if len(significant) == 0 {
		return []byte("0"), true
	}
	var number []byte
	if isNegative {
		number = append(number, '-')
	}
	number = append(number, significant...)
	if exponent != 0 {
		number = strconv.AppendInt(append(number, 'e'), int64(exponent), 10)
	}
	return number, true
}

func cutAny(text []byte, separators string) (before, after []byte, found bool) {
	i := bytes.IndexAny(text, separators)
	if i < 0 {
		return text, nil, false
	}
	return text[:i], text[i+1:], true
}

func isDigits(text []byte) bool {
	return len(text) > 0 && len(bytes.Trim(text, "0123456789")) == 0
}
