package fakecloud

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// chance makes random decisions. A decision depends on the seed, its kind, the resource, and the number of
// earlier decisions about the resource. It does not depend on other resources, so a run is repeatable
// although objects are reconciled in parallel.
type chance struct {
	seed int64
	// draws counts the decisions. It is part of the state, so that decisions do not repeat after a restart.
	draws map[string]uint64
}

// next returns a number in [0,1).
func (c chance) next(what, resource string) float64 {
	key := what + " " + strings.ToLower(resource)
	count := c.draws[key]
	c.draws[key] = count + 1
	sum := c.digest(key, fmt.Sprint(count))
	return float64(binary.BigEndian.Uint64(sum)>>11) / (1 << 53)
}

// happens decides an event of the given probability. Events of probability 0 are not counted, so that
// turning on one knob does not change the decisions of another.
func (c chance) happens(what, resource string, probability float64) bool {
	return probability > 0 && c.next(what, resource) < probability
}

// guid returns the same UUID for the same seed and parts.
func (c chance) guid(parts ...string) string {
	sum := c.digest(parts...)
	sum[6] = sum[6]&0x0f | 0x40
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// version returns a key version: 32 hexadecimal digits.
func (c chance) version(parts ...string) string {
	return hex.EncodeToString(c.digest(parts...)[:16])
}

func (c chance) digest(parts ...string) []byte {
	var seed [8]byte
	binary.BigEndian.PutUint64(seed[:], uint64(c.seed))
	mac := hmac.New(sha256.New, seed[:])
	mac.Write([]byte(strings.ToLower(strings.Join(parts, "\x00"))))
	return mac.Sum(nil)
}
