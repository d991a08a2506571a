package pipectl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// query connects, makes one call and prints what it answers.
func query[R any](cmd *cobra.Command, conn *connection, call func(context.Context, *client) (R, error)) error {
	c, err := conn.dial(cmd.Context())
	if err != nil {
		return err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
	defer cancel()
	resp, err := call(ctx, c)
	if err != nil {
		return err
	}
	return printJSON(cmd, resp)
}

// failed names what failed and adds what to do about it.
func failed(what string, err error) error {
	err = fmt.Errorf("%s: %w", what, err)
	switch status.Code(err) {
	case codes.Unauthenticated:
		return hint(err, "the agent does not accept this API key: check --api-key, --api-key-file or PIPECTL_API_KEY_FILE; the owner's key is owner.key in the agent's data directory")
	case codes.PermissionDenied:
		return hint(err, "this API key may only read: use one with the role READ_WRITE")
	case codes.Unavailable:
		return hint(err, "the agent does not answer: check that it runs, and try again")
	case codes.DeadlineExceeded:
		return hint(err, "the agent took too long to answer: look at its log, and try again")
	case codes.Unimplemented:
		return hint(err, "update the agent")
	}
	return err
}

// unknownApplication and unknownDeployment add where IDs are found.
func unknownApplication(err error) error {
	if status.Code(err) == codes.NotFound {
		return hint(err, "'pipectl application list' shows the IDs of the enabled applications, with --disabled those of the others")
	}
	return err
}

func unknownDeployment(err error) error {
	if status.Code(err) == codes.NotFound {
		return hint(err, "'pipectl deployment list' shows the IDs")
	}
	return err
}

// statusesFromNames turns names such as DEPLOYMENT_SUCCESS into statuses.
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

// registerStrategy adds the flag that says how to deploy, strategyFromName reads
// its value.
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

// namesOf returns an enum's names in the order of their numbers.
func namesOf(enum map[int32]string) []string {
	var out []string
	for _, n := range slices.Sorted(maps.Keys(enum)) {
		out = append(out, enum[n])
	}
	return out
}

// checkKind accepts the names of application kinds, and none.
func checkKind(kind string) error {
	if _, ok := modelv1.ApplicationKind_value[kind]; kind != "" && !ok {
		return hint(fmt.Errorf("%s is invalid application kind", kind), "the kinds are: %s", strings.Join(kindNames(), ", "))
	}
	return nil
}

// labelsFromPairs reads KEY:VALUE pairs.
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
