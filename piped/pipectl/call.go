package pipectl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// failed adds the failed operation and a hint for its error code to err.
func failed(what string, err error) error {
	err = fmt.Errorf("%s: %w", what, err)
	switch status.Code(err) {
	case codes.Unauthenticated:
		return hint(err, "the agent does not accept this API key or sign-in: check --api-key, --api-key-file or PIPECTL_API_KEY_FILE, or sign in again with 'pipectl login'; the owner's key is owner.key in the agent's data directory")
	case codes.PermissionDenied:
		return hint(err, "'pipectl whoami' shows what these credentials permit; 'pipectl apikey create' creates a key that permits more, such as one with --role=READ_WRITE")
	case codes.Unavailable:
		if strings.Contains(err.Error(), "disk is full") || strings.Contains(err.Error(), "no space left") {
			return hint(err, "the agent's disk is full: free space for its data directory and its database; 'pipectl status' shows what it cannot write")
		}
		return hint(err, "the agent does not answer: check that it runs, and try again")
	case codes.DeadlineExceeded:
		return hint(err, "the agent took too long to answer: check its log, and try again")
	case codes.ResourceExhausted:
		if tooLarge(err) {
			return hint(err, "ask for less at once, with a smaller --limit")
		}
		return hint(err, "this API key or sign-in makes more calls than the agent allows: wait a moment, or use another")
	case codes.InvalidArgument:
		return hint(err, "the message names what is wrong; the command's --help lists its flags")
	case codes.Internal:
		return hint(err, "this is an error of the agent: its log has details")
	case codes.Unimplemented:
		return hint(err, "this version of the agent does not have it: a newer one may")
	}
	return err
}

// unknown adds a hint to a NotFound error of an ID.
func unknown(err error, where string, args ...any) error {
	if status.Code(err) == codes.NotFound {
		return hint(err, where, args...)
	}
	return err
}

// unknownApplication, unknownDeployment and unknownPiped add where to find the IDs.
func unknownApplication(err error) error {
	return unknown(err, "'pipectl application list' shows the IDs of the enabled applications, with --disabled those of the others")
}

func unknownDeployment(err error) error {
	return unknown(err, "'pipectl deployment list' shows the IDs; 'pipectl deployment get' those of a deployment's stages")
}

func unknownPiped(err error) error {
	return unknown(err, "'pipectl status' shows the agent's ID")
}

// tooLarge reports whether an answer exceeded the client's message size.
func tooLarge(err error) bool {
	return strings.Contains(status.Convert(err).Message(), "larger than max")
}

// retryRateLimited repeats a call that was rejected by the rate limit, after the delay
// that the agent asks for. The agent did not begin a rejected call, so every call can
// be repeated.
func retryRateLimited(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	const most = 2 * time.Second
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, most) {
		err := invoke(ctx, method, req, reply, conn, opts...)
		if status.Code(err) != codes.ResourceExhausted || tooLarge(err) || !pauseFor(ctx, max(pause, retryDelay(err))) {
			return err
		}
	}
}

// retryDelay returns the delay that the agent asks for.
func retryDelay(err error) time.Duration {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// pauseFor waits; it returns false when ctx ends first, or would.
func pauseFor(ctx context.Context, pause time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < pause {
		return false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// statusesFromNames converts names such as DEPLOYMENT_SUCCESS to statuses.
func statusesFromNames(names []string) ([]modelv1.DeploymentStatus, error) {
	var out []modelv1.DeploymentStatus
	for _, name := range names {
		number, ok := modelv1.DeploymentStatus_value[name]
		if !ok {
			return nil, hint(fmt.Errorf("invalid deployment status: %s", name), "the statuses are: %s", strings.Join(statusNames(), ", "))
		}
		out = append(out, modelv1.DeploymentStatus(number))
	}
	return out, nil
}

// registerStrategy adds the strategy flag, strategyFromName parses its value.
func registerStrategy(flags *pflag.FlagSet, name *string) {
	flags.StringVar(name, "strategy", modelv1.SyncStrategy_AUTO.String(),
		fmt.Sprintf("How to deploy. (%s)", strings.Join(namesOf(modelv1.SyncStrategy_name), "|")))
}

func strategyFromName(name string) (modelv1.SyncStrategy, error) {
	number, ok := modelv1.SyncStrategy_value[name]
	if !ok {
		return 0, hint(fmt.Errorf("invalid strategy: %s", name), "the strategies are: %s", strings.Join(namesOf(modelv1.SyncStrategy_name), ", "))
	}
	return modelv1.SyncStrategy(number), nil
}

func statusNames() []string { return namesOf(modelv1.DeploymentStatus_name) }
func kindNames() []string   { return namesOf(modelv1.ApplicationKind_name) }

// namesOf returns the names of an enum in the order of their numbers.
func namesOf(enum map[int32]string) []string {
	var out []string
	for _, n := range slices.Sorted(maps.Keys(enum)) {
		out = append(out, enum[n])
	}
	return out
}

// checkKind accepts the names of application kinds and "".
func checkKind(kind string) error {
	if _, ok := modelv1.ApplicationKind_value[kind]; kind != "" && !ok {
		return hint(fmt.Errorf("%s is invalid application kind", kind), "the kinds are: %s", strings.Join(kindNames(), ", "))
	}
	return nil
}

// labelsFromPairs parses KEY:VALUE pairs.
func labelsFromPairs(pairs []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, ":")
		if !ok {
			return nil, hint(fmt.Errorf("label %q has no value", pair), "write labels as KEY:VALUE")
		}
		labels[key] = value
	}
	return labels, nil
}
