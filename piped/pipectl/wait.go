package pipectl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// firstDelay is the delay after the first check. It doubles up to the check interval,
// since most awaited changes happen soon.
const firstDelay = 250 * time.Millisecond

// wait is the common part of commands that wait.
type wait struct {
	statuses []modelv1.DeploymentStatus
	interval time.Duration
	timeout  time.Duration
	whole    bool // wait until the deployment has ended, showing its stages
	patient  bool // --timeout is set: it also applies to the deployment

	client *client
	log    *logger
	screen *screen
	now    func() time.Time
}

func (w *wait) register(flags *pflag.FlagSet, timeout time.Duration) {
	flags.DurationVar(&w.interval, "check-interval", 15*time.Second, "The longest time between two checks.")
	flags.DurationVar(&w.timeout, "timeout", timeout, "The longest time to wait.")
}

// registerWhole adds the flag that shows the deployment until it has ended.
func (w *wait) registerWhole(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.whole, "wait", false, fmt.Sprintf(
		"Show the deployment's stages until it has ended, at most %s without --timeout. Exits with %d when it failed, %d when it was cancelled, %d when it was refused, %d when it is not over in time.",
		wholeTimeout, ExitFailure, ExitCancelled, ExitRefused, ExitTimeout))
}

// wholeTimeout bounds the duration of a deployment shown until its end.
const wholeTimeout = time.Hour

// with connects and runs f.
func (w *wait) with(cmd *cobra.Command, t *tool, f func(context.Context) error) (err error) {
	if w.interval <= 0 || w.timeout <= 0 {
		return hint(fmt.Errorf("check-interval is %s and timeout %s", w.interval, w.timeout), "both must be longer than zero, such as 5s")
	}
	if w.log, err = t.logs.logger(cmd); err != nil {
		return err
	}
	if w.client, err = t.dial(cmd.Context()); err != nil {
		return err
	}
	defer w.client.close()
	w.screen, w.now, w.patient = newScreen(cmd.ErrOrStderr()), t.now, cmd.Flags().Changed("timeout")
	return f(cmd.Context())
}

// sync requests a deployment and waits until it is triggered, then for the statuses or
// for its end, with a new timeout. The error of request must be complete.
func (w *wait) sync(ctx context.Context, request func(context.Context) (commandID string, err error)) error {
	id, err := w.trigger(ctx, request)
	if err != nil {
		return w.refused(err)
	}
	w.log.infof("Successfully triggered deployment %s", id)
	if w.whole {
		return w.toTheEnd(ctx, id)
	}
	if len(w.statuses) == 0 {
		return nil
	}
	w.log.infof("Waiting until the deployment reaches one of the specified statuses")
	return w.deployment(ctx, id)
}

// trigger returns the ID of the deployment created by a sync.
func (w *wait) trigger(ctx context.Context, request func(context.Context) (string, error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	commandID, err := request(ctx)
	if err != nil {
		return "", err
	}
	w.log.infof("Sent a request to sync application and waiting to be accepted...")
	var id string
	err = w.poll(ctx, "the agent to accept the request", func() (done bool, err error) {
		id, done, err = w.triggered(ctx, commandID)
		return done, err
	})
	return id, err
}

// refused adds the exit code of a rejected request, for commands that wait for the
// whole deployment.
func (w *wait) refused(err error) error {
	if w.whole && (errors.Is(err, errNoDeployment) || status.Code(err) == codes.FailedPrecondition) {
		return withCode(err, ExitRefused)
	}
	return err
}

// triggered checks a sync command once.
func (w *wait) triggered(ctx context.Context, commandID string) (id string, done bool, err error) {
	resp, err := w.client.GetCommand(ctx, &apiservice.GetCommandRequest{CommandId: commandID})
	if status.Code(err) == codes.NotFound {
		return "", false, fmt.Errorf("command %q not found", commandID)
	}
	if err != nil {
		return "", false, w.transient("failed to get command", err)
	}
	command := resp.GetCommand()
	if command == nil {
		return "", false, fmt.Errorf("the agent's answer holds no command %s", commandID)
	}
	if t := command.GetType(); !triggers(t) {
		w.log.errorf("Unexpected command type %s", command.GetType())
		return "", false, errNoDeployment
	}
	switch command.GetStatus() {
	case modelv1.CommandStatus_COMMAND_SUCCEEDED:
		if id := command.GetMetadata()[deploy.MetaTriggeredDeployment]; id != "" {
			return id, true, nil
		}
		return "", false, errNoDeployment
	case modelv1.CommandStatus_COMMAND_FAILED:
		if !w.whole { // otherwise the error is sufficient
			w.log.errorf("The request was unable to handle")
		}
		return "", false, withReason(errNoDeployment, command.GetMetadata()[deploy.MetaReason])
	case modelv1.CommandStatus_COMMAND_TIMEOUT:
		w.log.errorf("The request was timed out")
		return "", false, errNoDeployment
	}
	return "", false, nil
}

// triggers reports whether commands of a type create a deployment.
func triggers(t modelv1.Command_Type) bool {
	switch t {
	case modelv1.Command_SYNC_APPLICATION, modelv1.Command_RETRY_DEPLOYMENT, modelv1.Command_ROLLBACK_APPLICATION:
		return true
	}
	return false
}

var errNoDeployment = errors.New("failed to detect the triggered deployment ID")

// withReason appends the reason for a user to read, if there is one, and wraps err.
func withReason(err error, reason string) error {
	if reason == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, reason)
}

// deployment waits until a deployment has one of the statuses. A deployment that ends
// with another status is an error.
func (w *wait) deployment(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	return w.poll(ctx, "deployment "+id, func() (done bool, err error) {
		resp, err := w.client.GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: id})
		if status.Code(err) == codes.NotFound {
			return false, unknownDeployment(failed(fmt.Sprintf("deployment %q not found", id), err))
		}
		if err != nil {
			return false, w.transient("failed to get deployment", err)
		}
		d := resp.GetDeployment()
		if d == nil {
			return false, fmt.Errorf("the agent's answer holds no deployment %s", id)
		}
		if slices.Contains(w.statuses, d.Status) {
			w.log.infof("Deployment is at %s status", d.Status)
			return true, nil
		}
		if ended(d.Status) {
			return false, withReason(fmt.Errorf("deployment %s ended at %s, which is none of %s", id, d.Status, w.statusList()), d.StatusReason)
		}
		return false, nil
	})
}

func (w *wait) statusList() string {
	names := make([]string, len(w.statuses))
	for i, s := range w.statuses {
		names[i] = s.String()
	}
	return strings.Join(names, ", ")
}

func ended(s modelv1.DeploymentStatus) bool {
	switch s {
	case modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE, modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED:
		return true
	}
	return false
}

// transient logs a temporary error and returns nil to continue the wait; it returns
// permanent errors.
func (w *wait) transient(what string, err error) error {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument, codes.Unimplemented:
		return failed(what, err)
	case codes.Canceled, codes.DeadlineExceeded:
		return nil // poll detects the end of ctx
	}
	w.log.errorf("%s, trying again: %v", what, err)
	return nil
}

// poll calls check with growing intervals until it is done, fails or ctx ends.
func (w *wait) poll(ctx context.Context, what string, check func() (done bool, err error)) error {
	for delay := min(firstDelay, w.interval); ; delay = min(2*delay, w.interval) {
		done, err := check()
		if done || err != nil {
			return err
		}
		if !w.whole {
			w.log.infof("...")
		}
		pause := time.NewTimer(delay)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return w.stopped(ctx, what)
		}
	}
}

func (w *wait) stopped(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("stopped waiting for %s: %w", what, ctx.Err())
	}
	err := hint(fmt.Errorf("waited %s for %s: %w", w.timeout, what, ctx.Err()), "wait longer with --timeout, or check its progress with 'pipectl deployment get'")
	if w.whole {
		return withCode(err, ExitTimeout)
	}
	return err
}
