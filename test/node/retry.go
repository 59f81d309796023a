package node

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	pollInterval = 50 * time.Millisecond
	// retryTime limits retries of operations that the kernel completes with a delay.
	retryTime = 10 * time.Second
)

// retry repeats a function until it succeeds or retryTime has passed.
func retry(do func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), retryTime)
	defer cancel()
	return await(ctx, func(context.Context) error { return do() })
}

// await repeats a function until it succeeds. The returned error contains the last one.
func await(ctx context.Context, do func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		last = do(ctx)
		return last == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("timed out: %w", last)
	}
	return err
}
