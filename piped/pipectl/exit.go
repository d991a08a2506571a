package pipectl

import (
	"context"
	"errors"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Exit codes of Run. Commands of PipeCD's pipectl end with its codes 0 and 1. The
// others describe the end of a deployment that piped's own commands wait for. 2 is not
// used: PipeCD's pipectl ends with it when it panics.
const (
	ExitSuccess     = 0   // success; a deployment that was waited for succeeded
	ExitError       = 1   // any other error
	ExitFailure     = 3   // the deployment that was waited for failed
	ExitCancelled   = 4   // it was cancelled
	ExitRefused     = 5   // the request was rejected: no deployment was triggered
	ExitTimeout     = 6   // the deployment was not completed in time; it continues
	ExitOutOfSync   = 7   // application drift --exit-code: the application differs from Git
	ExitInterrupted = 130 // Ctrl-C or SIGTERM; requests to the agent are not cancelled
)

// coded is an error with an exit code.
type coded struct {
	err  error
	code int
}

func (c *coded) Error() string { return c.err.Error() }
func (c *coded) Unwrap() error { return c.err }

// withCode gives err an exit code; nil stays nil.
func withCode(err error, code int) error {
	if err == nil {
		return nil
	}
	return &coded{err: err, code: code}
}

// exitCode returns the exit code for an error of a command under ctx.
func exitCode(ctx context.Context, err error) int {
	var c *coded
	switch {
	case err == nil:
		return ExitSuccess
	case errors.Is(ctx.Err(), context.Canceled):
		return ExitInterrupted
	case errors.As(err, &c):
		return c.code
	}
	return ExitError
}

// codeOf returns the exit code for the final status of a deployment.
func codeOf(s modelv1.DeploymentStatus) int {
	switch s {
	case modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS:
		return ExitSuccess
	case modelv1.DeploymentStatus_DEPLOYMENT_FAILURE:
		return ExitFailure
	case modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED:
		return ExitCancelled
	}
	return ExitError
}
