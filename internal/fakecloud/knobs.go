package fakecloud

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Delay is a distribution of durations. Its text is "17s" (constant), "10s..30s" (uniform) or "exp(2s,30s)"
// (exponential, with a mean and a maximum). The zero value is no delay.
type Delay struct {
	Min  time.Duration
	Mean time.Duration // of an exponential distribution; zero for a uniform one
	Max  time.Duration
}

// Fixed returns a delay that is always d.
func Fixed(d time.Duration) Delay { return Delay{Min: d, Max: d} }

// Between returns a uniform distribution between two durations.
func Between(shortest, longest time.Duration) Delay { return Delay{Min: shortest, Max: longest} }

// Exponential returns an exponential distribution with a mean and a maximum.
func Exponential(mean, longest time.Duration) Delay { return Delay{Mean: mean, Max: longest} }

// at maps a number in [0,1) to a duration.
func (d Delay) at(x float64) time.Duration {
	if d.Mean > 0 {
		return min(time.Duration(-math.Log(1-x)*float64(d.Mean)), d.Max)
	}
	return d.Min + time.Duration(x*float64(d.Max-d.Min))
}

func (d Delay) compressed(factor float64) Delay {
	return Delay{Min: shrink(d.Min, factor), Mean: shrink(d.Mean, factor), Max: shrink(d.Max, factor)}
}

func shrink(d time.Duration, factor float64) time.Duration {
	return time.Duration(float64(d) / factor)
}

// String returns the text that ParseDelay parses.
func (d Delay) String() string {
	switch {
	case d.Mean > 0:
		return fmt.Sprintf("exp(%s,%s)", d.Mean, d.Max)
	case d.Min == d.Max:
		return d.Min.String()
	default:
		return fmt.Sprintf("%s..%s", d.Min, d.Max)
	}
}

// MarshalText implements encoding.TextMarshaler.
func (d Delay) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Delay) UnmarshalText(text []byte) error {
	parsed, err := ParseDelay(string(text))
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

// ParseDelay parses "17s", "10s..30s" or "exp(2s,30s)".
func ParseDelay(text string) (Delay, error) {
	if inner, found := strings.CutPrefix(text, "exp("); found {
		mean, longest, ok := strings.Cut(strings.TrimSuffix(inner, ")"), ",")
		if !ok {
			return Delay{}, fmt.Errorf("delay %q: exp needs a mean and a maximum, such as exp(2s,30s)", text)
		}
		return twoDurations(text, mean, longest, Exponential)
	}
	if shortest, longest, found := strings.Cut(text, ".."); found {
		return twoDurations(text, shortest, longest, Between)
	}
	return twoDurations(text, text, text, Between)
}

func twoDurations(text, first, second string, build func(a, b time.Duration) Delay) (Delay, error) {
	a, errA := time.ParseDuration(strings.TrimSpace(first))
	b, errB := time.ParseDuration(strings.TrimSpace(second))
	if errA != nil || errB != nil || a < 0 || b < a {
		return Delay{}, fmt.Errorf(`delay %q: use "17s", "10s..30s" or "exp(2s,30s)"`, text)
	}
	return build(a, b), nil
}

// Bucket is a token bucket: each request takes a token, and is throttled without one. A bucket without
// capacity has no limit.
type Bucket struct {
	Capacity  float64 `json:"capacity"`
	PerSecond float64 `json:"perSecond"`
}

// Period is a duration with the JSON form "24h0m0s".
type Period time.Duration

// MarshalText implements encoding.TextMarshaler.
func (p Period) MarshalText() ([]byte, error) { return []byte(time.Duration(p).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Period) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*p = Period(d)
	return err
}

// Knobs are the delays, limits and failures of the cloud. The zero value has none: every request takes
// effect at once.
type Knobs struct {
	// Latency is the time before a request is processed, by the server's clock: a fake clock must be
	// advanced.
	Latency Delay `json:"latency"`

	// AccountCreation is from the PUT to provisioningState Succeeded; the last fifth
	// of it is ResolvingDNS. Zero creates synchronously.
	AccountCreation Delay `json:"accountCreation"`
	// AccountUpdate is how long after a write other writes fail with
	// StorageAccountOperationInProgress.
	AccountUpdate Delay `json:"accountUpdate"`
	// AccountDeletion is from the DELETE until GET returns 404.
	AccountDeletion Delay `json:"accountDeletion"`
	// NameHold is how long the name of a deleted account is reserved.
	NameHold Delay `json:"nameHold"`
	// VaultCreation is from the PUT to provisioningState Succeeded.
	VaultCreation Delay `json:"vaultCreation"`
	// VaultUpdate is how long after a write other writes of a key vault fail with ConflictError.
	VaultUpdate Delay `json:"vaultUpdate"`
	// PollInterval is the Retry-After of asynchronous operations.
	PollInterval Delay `json:"pollInterval"`
	// AsyncOperation sends Azure-AsyncOperation in addition to Location.
	AsyncOperation bool `json:"asyncOperation"`
	// MillisecondHints sends x-ms-retry-after-ms in addition to Retry-After, for short delays.
	MillisecondHints bool `json:"millisecondHints"`

	// ReadAfterWrite is how long GET returns 404 for a new resource.
	ReadAfterWrite Delay `json:"readAfterWrite"`
	// PrincipalDelay is from provisioningState Succeeded until the principalId is set.
	PrincipalDelay Delay `json:"principalDelay"`
	// DirectoryDelay is from then until role assignments without a principalType no
	// longer fail with PrincipalNotFound.
	DirectoryDelay Delay `json:"directoryDelay"`
	// GrantDelay is until a role assignment is effective.
	GrantDelay Delay `json:"grantDelay"`
	// PolicyDelay is until an access policy is effective.
	PolicyDelay Delay `json:"policyDelay"`
	// RevokeDelay is until a deleted role assignment or access policy has no effect any more.
	RevokeDelay Delay `json:"revokeDelay"`
	// KeyLookup is how often an account without a pinned version checks for a new one.
	KeyLookup Period `json:"keyLookup"`

	// CreationFailures is the share of account creations that are accepted and fail later.
	CreationFailures float64 `json:"creationFailures"`
	// FailedAccountsStay keeps a failed account in the state Failed; otherwise it is removed.
	FailedAccountsStay bool `json:"failedAccountsStay"`
	// ServerErrors is the share of requests that fail with 500 or 503 without an effect.
	ServerErrors float64 `json:"serverErrors"`
	// ErrorsAfterEffect is the share of writes that fail with 500 after they took effect.
	ErrorsAfterEffect float64 `json:"errorsAfterEffect"`
	// LostResponses is the share of writes that take effect without a response: the connection is
	// closed.
	LostResponses float64 `json:"lostResponses"`

	// Writes, Deletes and Reads are the buckets of each caller and subscription.
	Writes  Bucket `json:"writes"`
	Deletes Bucket `json:"deletes"`
	Reads   Bucket `json:"reads"`
	// AccountLists is the bucket of each subscription for lists of storage accounts, of all callers.
	AccountLists Bucket `json:"accountLists"`
	// PageSize is the number of items on a page of a list; zero means all.
	PageSize int `json:"pageSize"`

	// Denied are the permissions that callers lack.
	Denied []Denial `json:"denied,omitempty"`
	// Faults are scripted failures.
	Faults []Fault `json:"faults,omitempty"`
}

// Denial removes a permission. Empty fields match everything.
type Denial struct {
	// Who is the name of the caller.
	Who string `json:"who,omitempty"`
	// Action is, for example, Microsoft.Storage/storageAccounts/write; a trailing * is a wildcard.
	Action string `json:"action,omitempty"`
	// Scope is a resource ID; it includes everything below it.
	Scope string `json:"scope,omitempty"`
	// Lists removes the permission only for lists, as for a caller with roles on single resources.
	Lists bool `json:"lists,omitempty"`
}

// Fault is a scripted failure: of the requests that match, it skips the first Skip, and applies to the
// next Times.
type Fault struct {
	// Method is an HTTP method; empty matches all writes.
	Method string `json:"method,omitempty"`
	// Resource is a part of the resource ID, ignoring case.
	Resource string `json:"resource,omitempty"`
	// Who is the name of the caller; empty matches all.
	Who string `json:"who,omitempty"`
	// Skip is how many requests are not affected first.
	Skip int `json:"skip,omitempty"`
	// Times is how many requests fail; zero means one.
	Times int `json:"times,omitempty"`

	// Status, Code and Message are the response. With a zero status and Lost, only the response is lost.
	Status     int    `json:"status,omitempty"`
	Code       string `json:"code,omitempty"`
	Message    string `json:"message,omitempty"`
	RetryAfter Period `json:"retryAfter,omitempty"`
	// AfterEffect lets the request take effect before the failure.
	AfterEffect bool `json:"afterEffect,omitempty"`
	// Lost lets the request take effect, and closes the connection without a response.
	Lost bool `json:"lost,omitempty"`
	// FailLate accepts a creation that fails later.
	FailLate bool `json:"failLate,omitempty"`
}

// Instant has no delays, limits and failures.
func Instant() Knobs {
	return Knobs{KeyLookup: Period(24 * time.Hour)}
}

// Realistic has the delays and limits of Azure, and no failures.
func Realistic() Knobs {
	return Knobs{
		Latency:         Exponential(150*time.Millisecond, 3*time.Second),
		AccountCreation: Between(20*time.Second, 60*time.Second),
		AccountUpdate:   Between(500*time.Millisecond, 2*time.Second),
		AccountDeletion: Between(2*time.Second, 15*time.Second),
		NameHold:        Between(10*time.Second, 60*time.Second),
		VaultCreation:   Between(20*time.Second, 60*time.Second),
		VaultUpdate:     Between(200*time.Millisecond, time.Second),
		PollInterval:    Fixed(17 * time.Second),
		ReadAfterWrite:  Exponential(500*time.Millisecond, 5*time.Second),
		PrincipalDelay:  Between(0, 5*time.Second),
		DirectoryDelay:  Exponential(30*time.Second, 3*time.Minute),
		GrantDelay:      Exponential(90*time.Second, 10*time.Minute),
		PolicyDelay:     Between(time.Second, 20*time.Second),
		RevokeDelay:     Exponential(60*time.Second, 10*time.Minute),
		KeyLookup:       Period(24 * time.Hour),
		Writes:          Bucket{Capacity: 200, PerSecond: 10},
		Deletes:         Bucket{Capacity: 200, PerSecond: 10},
		Reads:           Bucket{Capacity: 250, PerSecond: 25},
		AccountLists:    Bucket{Capacity: 100, PerSecond: 100. / 300},
		PageSize:        100,
	}
}

// Compress divides the delays by a factor, and multiplies the refill rates of the buckets. The shares of
// failures do not change.
func (k Knobs) Compress(factor float64) Knobs {
	for _, d := range k.delays() {
		*d = d.compressed(factor)
	}
	k.KeyLookup = Period(shrink(time.Duration(k.KeyLookup), factor))
	for _, b := range []*Bucket{&k.Writes, &k.Deletes, &k.Reads, &k.AccountLists} {
		b.PerSecond *= factor
	}
	k.MillisecondHints = true
	return k
}

func (k *Knobs) delays() []*Delay {
	return []*Delay{
		&k.Latency, &k.AccountCreation, &k.AccountUpdate, &k.AccountDeletion, &k.NameHold,
		&k.VaultCreation, &k.VaultUpdate, &k.PollInterval, &k.ReadAfterWrite, &k.PrincipalDelay,
		&k.DirectoryDelay, &k.GrantDelay, &k.PolicyDelay, &k.RevokeDelay,
	}
}

// Preset returns the knobs of a name: instant, realistic, or realistic/N with delays divided by N.
func Preset(name string) (Knobs, error) {
	base, text, compressed := strings.Cut(name, "/")
	presets := map[string]func() Knobs{"instant": Instant, "realistic": Realistic}
	build, known := presets[base]
	if !known {
		return Knobs{}, fmt.Errorf("unknown preset %q; use one of %s, optionally with a factor, such as realistic/100", name, strings.Join(slices.Sorted(maps.Keys(presets)), ", "))
	}
	if !compressed {
		return build(), nil
	}
	factor, err := strconv.ParseFloat(text, 64)
	if err != nil || factor <= 0 {
		return Knobs{}, fmt.Errorf("preset %q: %q is not a positive number", name, text)
	}
	return build().Compress(factor), nil
}

// merge sets the fields that the JSON document contains.
func (k Knobs) merge(document []byte) (Knobs, error) {
	k.Denied, k.Faults = slices.Clone(k.Denied), slices.Clone(k.Faults)
	if err := json.Unmarshal(document, &k); err != nil {
		return Knobs{}, fmt.Errorf("reading knobs: %w", err)
	}
	return k, nil
}
