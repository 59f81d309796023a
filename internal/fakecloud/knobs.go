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

// Delay is a distribution of durations. As text it is "17s" (always that), "10s..30s"
// (evenly between the two) or "exp(2s,30s)" (exponential with that mean, never above
// the second). The zero value is no delay.
type Delay struct {
	Min  time.Duration
	Mean time.Duration // of an exponential distribution; zero means an even one
	Max  time.Duration
}

// Fixed is always d.
func Fixed(d time.Duration) Delay { return Delay{Min: d, Max: d} }

// Between is evenly distributed between two durations.
func Between(shortest, longest time.Duration) Delay { return Delay{Min: shortest, Max: longest} }

// Exponential has the given mean and a tail that ends at longest.
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

// String is the form that ParseDelay reads.
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

// ParseDelay reads "17s", "10s..30s" or "exp(2s,30s)".
func ParseDelay(text string) (Delay, error) {
	if inner, found := strings.CutPrefix(text, "exp("); found {
		mean, longest, ok := strings.Cut(strings.TrimSuffix(inner, ")"), ",")
		if !ok {
			return Delay{}, fmt.Errorf("delay %q: exp needs a mean and a maximum, as in exp(2s,30s)", text)
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
		return Delay{}, fmt.Errorf(`delay %q: write "17s", "10s..30s" or "exp(2s,30s)"`, text)
	}
	return build(a, b), nil
}

// Bucket is a token bucket: calls take a token each, and a call that finds none is
// throttled. A bucket with no capacity throttles nothing.
type Bucket struct {
	Capacity  float64 `json:"capacity"`
	PerSecond float64 `json:"perSecond"`
}

// Period is a duration that JSON writes as "24h0m0s".
type Period time.Duration

// MarshalText implements encoding.TextMarshaler.
func (p Period) MarshalText() ([]byte, error) { return []byte(time.Duration(p).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Period) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*p = Period(d)
	return err
}

// Knobs are the manners of the cloud. The zero value is a cloud without any: it
// answers at once, and what it says is so.
type Knobs struct {
	// Latency is how long a call is under way before it is decided. It is waited for
	// on the server's clock, so with a fake clock somebody has to advance it.
	Latency Delay `json:"latency"`

	// AccountCreation is from the PUT to provisioningState Succeeded; the last fifth
	// of it is ResolvingDNS. Zero creates synchronously.
	AccountCreation Delay `json:"accountCreation"`
	// AccountUpdate is how long after a write the account refuses the next one with
	// StorageAccountOperationInProgress.
	AccountUpdate Delay `json:"accountUpdate"`
	// AccountDeletion is from the DELETE to the GET that says 404.
	AccountDeletion Delay `json:"accountDeletion"`
	// NameHold is how long the name of a deleted account cannot be taken.
	NameHold Delay `json:"nameHold"`
	// VaultCreation is from the PUT to provisioningState Succeeded.
	VaultCreation Delay `json:"vaultCreation"`
	// VaultUpdate is how long after a write the vault refuses the next one with ConflictError.
	VaultUpdate Delay `json:"vaultUpdate"`
	// PollInterval is the Retry-After of asynchronous operations.
	PollInterval Delay `json:"pollInterval"`
	// AsyncOperation announces operations by Azure-AsyncOperation beside Location.
	AsyncOperation bool `json:"asyncOperation"`
	// MillisecondHints adds x-ms-retry-after-ms to Retry-After, for compressed time.
	MillisecondHints bool `json:"millisecondHints"`

	// ReadAfterWrite is how long a GET says 404 of what a PUT has created.
	ReadAfterWrite Delay `json:"readAfterWrite"`
	// PrincipalDelay is from the account's success to the principalId on it.
	PrincipalDelay Delay `json:"principalDelay"`
	// DirectoryDelay is from then until role assignments without a principalType no
	// longer answer PrincipalNotFound.
	DirectoryDelay Delay `json:"directoryDelay"`
	// GrantDelay is until a role assignment opens the vault.
	GrantDelay Delay `json:"grantDelay"`
	// PolicyDelay is until an access policy opens the vault.
	PolicyDelay Delay `json:"policyDelay"`
	// RevokeDelay is until a deleted role assignment or access policy has closed it.
	RevokeDelay Delay `json:"revokeDelay"`
	// KeyLookup is how often an account without a pinned version looks for a new one.
	KeyLookup Period `json:"keyLookup"`

	// CreationFailures is the share of account creations that are accepted and fail late.
	CreationFailures float64 `json:"creationFailures"`
	// FailedAccountsStay keeps an account that failed in state Failed; otherwise it vanishes.
	FailedAccountsStay bool `json:"failedAccountsStay"`
	// ServerErrors is the share of calls answered 500 or 503 before anything happened.
	ServerErrors float64 `json:"serverErrors"`
	// ErrorsAfterEffect is the share of writes answered 500 after they took effect.
	ErrorsAfterEffect float64 `json:"errorsAfterEffect"`
	// LostResponses is the share of writes whose answer is lost: they took effect, and
	// the connection is closed without a word.
	LostResponses float64 `json:"lostResponses"`

	// Writes, Deletes and Reads are the buckets of one caller in one subscription.
	Writes  Bucket `json:"writes"`
	Deletes Bucket `json:"deletes"`
	Reads   Bucket `json:"reads"`

	// Denied lists what callers may not do.
	Denied []Denial `json:"denied,omitempty"`
	// Faults are scripted failures; each is used up after Times calls.
	Faults []Fault `json:"faults,omitempty"`
}

// Denial takes a permission away. Empty fields match everything.
type Denial struct {
	// Who is the caller's name.
	Who string `json:"who,omitempty"`
	// Action is such as Microsoft.Storage/storageAccounts/write; * at its end matches the rest.
	Action string `json:"action,omitempty"`
	// Scope is a resource id; it covers what is below it.
	Scope string `json:"scope,omitempty"`
}

// Fault is a failure by script: the calls that match meet it, the first Skip of them
// excepted, Times times.
type Fault struct {
	// Method is an HTTP method; empty matches all that write.
	Method string `json:"method,omitempty"`
	// Resource is part of the resource id, in any case.
	Resource string `json:"resource,omitempty"`
	// Who is the caller's name; empty matches all.
	Who string `json:"who,omitempty"`
	// Skip lets that many calls pass first.
	Skip int `json:"skip,omitempty"`
	// Times is how many calls meet the fault; zero means one.
	Times int `json:"times,omitempty"`

	// Status, Code and Message are the answer. A zero status with Lost set only loses the answer.
	Status     int    `json:"status,omitempty"`
	Code       string `json:"code,omitempty"`
	Message    string `json:"message,omitempty"`
	RetryAfter Period `json:"retryAfter,omitempty"`
	// AfterEffect lets the call take effect before it is answered so.
	AfterEffect bool `json:"afterEffect,omitempty"`
	// Lost lets the call take effect and closes the connection without an answer.
	Lost bool `json:"lost,omitempty"`
	// FailLate accepts a creation and lets the operation fail at its end.
	FailLate bool `json:"failLate,omitempty"`
}

// Instant is a cloud without manners, for tests that look at one thing.
func Instant() Knobs {
	return Knobs{KeyLookup: Period(24 * time.Hour)}
}

// Realistic has the delays and limits of the real cloud, and no failures beyond them.
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
	}
}

// Compress makes time pass factor times as fast: delays shrink, buckets refill faster.
// Shares of failures stay as they are.
func (k Knobs) Compress(factor float64) Knobs {
	for _, d := range k.delays() {
		*d = d.compressed(factor)
	}
	k.KeyLookup = Period(shrink(time.Duration(k.KeyLookup), factor))
	for _, b := range []*Bucket{&k.Writes, &k.Deletes, &k.Reads} {
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

// Preset returns the knobs of that name: instant, realistic, or realistic/100 for
// realistic delays compressed 100 times (any factor will do).
func Preset(name string) (Knobs, error) {
	base, text, compressed := strings.Cut(name, "/")
	presets := map[string]func() Knobs{"instant": Instant, "realistic": Realistic}
	build, known := presets[base]
	if !known {
		return Knobs{}, fmt.Errorf("preset %q: known are %s, each also with /factor, as in realistic/100", name, strings.Join(slices.Sorted(maps.Keys(presets)), ", "))
	}
	if !compressed {
		return build(), nil
	}
	factor, err := strconv.ParseFloat(text, 64)
	if err != nil || factor <= 0 {
		return Knobs{}, fmt.Errorf("preset %q: %q is not a factor by which time can be compressed", name, text)
	}
	return build().Compress(factor), nil
}

// merge sets the fields that the JSON document names and leaves the others.
func (k Knobs) merge(document []byte) (Knobs, error) {
	k.Denied, k.Faults = slices.Clone(k.Denied), slices.Clone(k.Faults)
	if err := json.Unmarshal(document, &k); err != nil {
		return Knobs{}, fmt.Errorf("reading knobs: %w", err)
	}
	return k, nil
}
