package pipectl

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// referenceFlags returns the flags whose values are IDs of applications or deployments,
// with the request that resolves a name to such an ID.
func referenceFlags() map[string]func(name string) *controlv1.ResolveRequest {
	application := func(name string) *controlv1.ResolveRequest { return &controlv1.ResolveRequest{Application: name} }
	deployment := func(name string) *controlv1.ResolveRequest { return &controlv1.ResolveRequest{Deployment: name} }
	return map[string]func(string) *controlv1.ResolveRequest{
		"app-id": application, "applications": application, "deployment-id": deployment, "to": deployment,
	}
}

// resolve replaces names in a command's flags by IDs.
func resolve(ctx context.Context, c *client, flags *pflag.FlagSet) (err error) {
	requests := referenceFlags()
	flags.Visit(func(f *pflag.Flag) {
		request, ok := requests[f.Name]
		if !ok || err != nil || f.Name == "to" && isHash(f.Value.String()) { // a commit
			return
		}
		err = resolveFlag(ctx, c, f, request)
	})
	return err
}

func resolveFlag(ctx context.Context, c *client, f *pflag.Flag, request func(string) *controlv1.ResolveRequest) error {
	list, ok := f.Value.(pflag.SliceValue)
	if !ok {
		id, err := idOf(ctx, c, f.Value.String(), request)
		if err != nil {
			return err
		}
		return f.Value.Set(id)
	}
	ids := list.GetSlice()
	for i := range ids {
		var err error
		if ids[i], err = idOf(ctx, c, ids[i], request); err != nil {
			return err
		}
	}
	return list.Replace(ids)
}

// idOf returns the ID for a name. An unknown name is returned as it is: the following
// call reports the error.
func idOf(ctx context.Context, c *client, name string, request func(string) *controlv1.ResolveRequest) (string, error) {
	if uuid.Validate(name) == nil || name == "" {
		return name, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.control.Resolve(ctx, request(name))
	switch matches := resp.GetMatches(); {
	case err != nil || len(matches) == 0:
		return name, nil
	case len(matches) == 1:
		return matches[0].GetId(), nil
	}
	var all []string
	for _, m := range resp.GetMatches() {
		all = append(all, fmt.Sprintf("%s (%s, %s)", m.GetId(), clean(m.GetApplicationName()), clean(m.GetPath())))
	}
	return "", hint(fmt.Errorf("%q is ambiguous: %s", name, strings.Join(all, ", ")), "give the ID, more of its beginning, or the repository and path")
}

// completeReferences adds shell completion to all flags below cmd that take IDs.
func completeReferences(t *tool, cmd *cobra.Command) {
	for flag, values := range map[string]func(context.Context, *client) ([]cobra.Completion, error){
		"app-id": applicationNames, "applications": applicationNames, "deployment-id": deploymentIDs,
	} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, t.complete(values)) // the flag exists and is registered once
		}
	}
	for _, sub := range cmd.Commands() {
		completeReferences(t, sub)
	}
}

// complete requests completions from the agent; on errors there are none.
func (t *tool) complete(values func(context.Context, *client) ([]cobra.Completion, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), connectTimeout)
		defer cancel()
		c, err := t.dial(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer c.close()
		all, err := values(ctx, c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []cobra.Completion
		for _, value := range all {
			if strings.HasPrefix(value, begun) {
				out = append(out, value)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// completed bounds the completed applications and deployments: the last updated ones.
const completed = 500

// applicationNames returns the names of enabled applications with their paths, and the
// IDs of those with a common name.
func applicationNames(ctx context.Context, c *client) ([]cobra.Completion, error) {
	resp, err := c.ListApplications(ctx, &apiservice.ListApplicationsRequest{Limit: completed})
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, a := range resp.GetApplications() {
		count[a.GetName()]++
	}
	var out []cobra.Completion
	for _, a := range resp.GetApplications() {
		path := clean(a.GetGitPath().GetRepo().GetId() + "/" + a.GetGitPath().GetPath())
		if count[a.GetName()] == 1 {
			out = append(out, cobra.CompletionWithDesc(clean(a.GetName()), path))
		}
		out = append(out, cobra.CompletionWithDesc(a.GetId(), clean(a.GetName())+" "+path))
	}
	return out, nil
}

// deploymentIDs returns the IDs of deployments, with their application and status.
func deploymentIDs(ctx context.Context, c *client) ([]cobra.Completion, error) {
	resp, err := c.ListDeployments(ctx, &apiservice.ListDeploymentsRequest{Limit: completed})
	var out []cobra.Completion
	for _, d := range resp.GetDeployments() {
		out = append(out, cobra.CompletionWithDesc(d.GetId(), clean(d.GetApplicationName())+" "+word(d.GetStatus(), "DEPLOYMENT_")))
	}
	return out, err
}
