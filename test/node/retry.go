package node

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	pollInterval = 50 * time.Millisecond
	// retryTime is for what the kernel does a moment later than asked.
	retryTime = 10 * time.Second
)

// retry repeats what is bound to work soon.
func retry(do func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), retryTime)
	defer cancel()
	return await(ctx, func(context.Context) error { return do() })
}

// await repeats do until it works; its last error is in the one returned.
func await(ctx context.Context, do func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		last = do(ctx)
		return last == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("not in time: %w", last)
	}
	return err
}
