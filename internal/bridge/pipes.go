package bridge

import (
	"errors"
	"os"
)

// pipes are the three standard streams of a child: our ends, and its own.
type pipes struct {
	stdin, stdout, stderr             *os.File
	childStdin, childStdout, childErr *os.File
}

func openPipes() (*pipes, error) {
	var p pipes
	var errs [3]error
	p.childStdin, p.stdin, errs[0] = os.Pipe()
	p.stdout, p.childStdout, errs[1] = os.Pipe()
	p.stderr, p.childErr, errs[2] = os.Pipe()
	if err := errors.Join(errs[:]...); err != nil {
		p.closeOurs()
		p.closeTheirs()
		return nil, err
	}
	return &p, nil
}

// theirs are the descriptors that the child gets as 0, 1 and 2. Asking for them
// makes these ends blocking, as programs expect of their standard streams.
func (p *pipes) theirs() []uintptr {
	return []uintptr{p.childStdin.Fd(), p.childStdout.Fd(), p.childErr.Fd()}
}

func (p *pipes) closeTheirs() { closeAll(p.childStdin, p.childStdout, p.childErr) }

func (p *pipes) closeOurs() { closeAll(p.stdin, p.stdout, p.stderr) }

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
