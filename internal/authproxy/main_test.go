package authproxy

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs more parallel tests at a time than there are processors: they wait for drains and closed connections, and take
// two seconds of processor time together. The flag -parallel takes precedence.
func TestMain(m *testing.M) {
	const waiting = "8"
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		if err := parallel.Value.Set(waiting); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
