package bridge

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
)

func TestValidUsers(t *testing.T) {
	for name, c := range map[string]struct {
		first, sessions int
		want            bool
	}{
		"none":                            {0, 100, true},
		"negative":                        {-1, 100, false},
		"root":                            {1, 100, false},
		"of the system":                   {999, 100, false},
		"the first that is valid":         {10000, 100, true},
		"the last below those of systemd": {59898, 100, true},
		"one into those of systemd":       {59899, 100, false},
		"nobody":                          {65534, 1, false},
		"the last of 16 bits":             {65535, 1, false},
		"more than 16 bits":               {65536, 10000, true},
		"all below those of systemd":      {59000, 10000, false},
		"the last of 31 bits":             {math.MaxInt32 - 101, 100, true},
		"more than 31 bits":               {math.MaxInt32 - 100, 100, false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(validUsers(c.first, c.sessions)).To(Equal(c.want))
		})
	}
}

func TestUserIsGivenOnceUntilItIsFree(t *testing.T) {
	g := NewWithT(t)
	const first, sessions = 100000, 3
	free := userIDs(first, sessions)

	g.Expect([]int{<-free, <-free, <-free}).To(Equal([]int{100000, 100001, 100002}), "as many as sessions, each once")
	g.Expect(free).NotTo(Receive(), "none is left")

	free <- 100001
	free <- 100000
	g.Expect([]int{<-free, <-free}).To(Equal([]int{100001, 100000}), "the one that is free for longest")
	g.Expect(free).NotTo(Receive(), "none is left")
}

func TestProcessesRunAsTheUserOfTheBridgeByDefault(t *testing.T) {
	g := NewWithT(t)
	ofSessions, shared, err := newUsers(0, 100)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ofSessions).To(BeNil())
	g.Expect(shared).To(BeNil())
}

// Otherwise there would be fewer users than sessions, and a start would wait for one without end.
func TestUserIsFreeAfterAFailedStart(t *testing.T) {
	for name, folder := range map[string]string{
		"the process does not start": "", // without root, its directory is not created
		"it has no directory":        "missing",
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestBridge(t, []string{"true", "an argument with a \x00"})
			homes := t.TempDir()
			id := 1_500_000_000 + 10*os.Getpid() // which no process has
			as := &users{free: userIDs(id, 1), folder: filepath.Join(homes, folder), killer: id + 1}

			_, err := w.bridge.launcher.start(logr.Discard(), as)

			w.Expect(err).To(HaveOccurred())
			w.Expect(as.free).To(Receive(Equal(id)))
			w.Expect(os.ReadDir(homes)).To(BeEmpty(), "its directory is removed")
		})
	}
}
