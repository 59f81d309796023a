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

func TestUsersThatCannotBeUsedAreAnErrorOfTheConfiguration(t *testing.T) {
	opts := DefaultOptions()
	opts.Command, opts.FirstSessionUser = []string{"x"}, 100000
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing")) // without root, it has no privileges either

	_, err := New(opts)

	NewWithT(t).Expect(err).To(MatchError(HavePrefix("configuring the bridge: ")))
}

// A process can signal the thread that kills those of a session if it has the user of that thread, and the thread kills the
// processes of that user, too.
func TestEachUserIsAnother(t *testing.T) {
	if checkPrivileges() != nil {
		t.Skip("needs root, to run processes as other users; .ci/run requires root")
	}
	g := NewWithT(t)
	t.Setenv("TMPDIR", t.TempDir())

	ofSessions, shared, err := newUsers(100000, 2)

	g.Expect(err).NotTo(HaveOccurred(), "a new pod has no directory of an earlier bridge")
	defer ofSessions.close()
	g.Expect([]int{<-ofSessions.free, <-ofSessions.free, <-shared.free, shared.killer}).To(Equal([]int{100000, 100001, 100002, 100003}))
	g.Expect(ofSessions.killer).To(Equal(shared.killer))
	g.Expect(ofSessions.folder).To(BeADirectory())
}

// Otherwise the last session would wait for a user without end.
func TestSharedServerHasNoUserOfASession(t *testing.T) {
	w := newTestBridge(t, tinyServer())
	id := 1_500_000_000 + 10*os.Getpid() // which no process has
	missing := filepath.Join(t.TempDir(), "missing")
	w.bridge.sessionUsers = &users{free: userIDs(id, 1), folder: filepath.Join(missing, "sessions"), killer: id + 2}
	w.bridge.sharedUser = &users{free: userIDs(id+1, 1), folder: filepath.Join(missing, "shared"), killer: id + 2}

	_, f := w.bridge.shared.get(t.Context())

	w.Expect(f).To(HaveField("Reason", reasonStartFailed))
	w.Expect(w.logs.String()).To(ContainSubstring(w.bridge.sharedUser.folder), "the error names its directory")
}

// The next session must not read the files of the one before, or replace them by links while root removes them.
func TestUserIsFreeOnceItsDirectoryIsRemoved(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(testTimeout)
	id := 1_500_000_000 + 10*os.Getpid() // which no process has
	u := &user{id: id, home: t.TempDir(), of: &users{free: make(chan int), killer: id + 1}}
	released := make(chan struct{})

	go func() {
		defer close(released)
		u.release(logr.Discard())
	}()

	g.Eventually(u.home).ShouldNot(BeADirectory(), "nobody has received the user")
	g.Eventually(u.of.free).Should(Receive(Equal(id)))
	g.Eventually(released).Should(BeClosed())
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
