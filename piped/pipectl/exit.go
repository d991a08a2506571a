package pipectl

import (
	"context"
	"errors"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Exit codes of Run. What the real pipectl also has ends with its two, 0 and 1;
// the others are those of our own waiting, so that a script can tell how a
// deployment ended. 2 is left out: the real one ends with it when it panics.
const (
	ExitSuccess     = 0   // it is done; a deployment that was waited for succeeded
	ExitError       = 1   // any error that none of the others says
	ExitFailure     = 3   // the deployment that was waited for failed
	ExitCancelled   = 4   // it was cancelled
	ExitRefused     = 5   // the request was refused: no deployment was triggered
	ExitTimeout     = 6   // it was not over in time; it goes on
	ExitOutOfSync   = 7   // application drift --exit-code: the application differs from Git
	ExitInterrupted = 130 // Ctrl-C or SIGTERM; what was asked of the agent goes on
)

// coded is an error that ends the program with a code of its own.
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

// exitCode is the code for an error that a command run under ctx returned.
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

// codeOf is the exit code for a status that a deployment ended with.
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
