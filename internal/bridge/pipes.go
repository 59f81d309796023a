package bridge

import (
	"errors"
	"os"
)

// pipes are the standard streams of a child, with the ends of the bridge and of the child.
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
		p.closeBridgeEnds()
		p.closeChildEnds()
		return nil, err
	}
	return &p, nil
}

// childFiles are the descriptors 0, 1 and 2 of the child. Fd makes them blocking, as
// programs expect of their standard streams.
func (p *pipes) childFiles() []uintptr {
	return []uintptr{p.childStdin.Fd(), p.childStdout.Fd(), p.childErr.Fd()}
}

func (p *pipes) closeChildEnds() { closeAll(p.childStdin, p.childStdout, p.childErr) }

func (p *pipes) closeBridgeEnds() { closeAll(p.stdin, p.stdout, p.stderr) }

func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close() // which returns an error for one that was not opened
	}
}
