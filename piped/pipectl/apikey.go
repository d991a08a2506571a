package pipectl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func newAPIKey(t *tool) *cobra.Command {
	cmd := &cobra.Command{Use: "apikey", Short: "Manage API keys."}
	cmd.AddCommand(newAPIKeyCreate(t), newAPIKeyList(t), newAPIKeyDisable(t))
	return asGroup(cmd)
}

func newAPIKeyCreate(t *tool) *cobra.Command {
	req := &controlv1.CreateAPIKeyRequest{}
	var role, file string
	limit := &modelv1.ApplicationSelector{}
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create an API key, and write it to stdout or to a file. It is shown this once.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if number, ok := modelv1.APIKey_Role_value[role]; ok { // agents before roles had names know these
				req.Role = modelv1.APIKey_Role(number)
			} else {
				req.RoleName = role
			}
			if proto.Size(limit) > 0 {
				req.Applications = limit
			}
			if file != "" {
				return createIntoFile(cmd, t, req, file)
			}
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.CreateAPIKeyResponse, error) {
				return createKey(ctx, c, req)
			}, func(p *printer, resp *controlv1.CreateAPIKeyResponse) error { return p.linef("%s", resp.GetKey()) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.Name, "name", "", "The name of the key; no other enabled key has it.")
	flags.StringVar(&role, "role", modelv1.APIKey_READ_ONLY.String(), "What the key permits: READ_ONLY, READ_WRITE, viewer, deployer, approver, admin, or a role of the agent's configuration.")
	flags.StringToStringVar(&limit.Labels, "label", nil, "Restrict the key to applications with these labels.")
	flags.StringSliceVar(&limit.Names, "app-name", nil, "Restrict the key to applications with one of these names; * stands for any text.")
	flags.StringSliceVar(&limit.RepositoryIds, "repo-id", nil, "Restrict the key to applications in these repositories.")
	flags.StringVar(&req.Subject, "subject", "", "The subject of the key, such as a login name: approvers are named by it. Empty means the key's name.")
	flags.StringVar(&file, "output-file", "", "Write the key to this new file, which only its owner can read, instead of stdout.")
	return required(cmd, "name")
}

func createKey(ctx context.Context, c *client, req *controlv1.CreateAPIKeyRequest) (*controlv1.CreateAPIKeyResponse, error) {
	resp, err := c.control.CreateAPIKey(ctx, req)
	if err != nil {
		return nil, failed("failed to create the API key", err)
	}
	return resp, nil
}

// createIntoFile opens the file before it creates the key, so that no key is lost
// because the file cannot be written.
func createIntoFile(cmd *cobra.Command, t *tool, req *controlv1.CreateAPIKeyRequest, file string) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return hint(fmt.Errorf("failed to create the API key's file: %w", err), "name a file that is not there yet with --output-file")
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err != nil {
			_ = os.Remove(file) // the file contains no key
		}
	}()
	return callAndReport(cmd, t, "Successfully created API key id = %s", func(ctx context.Context, c *client) (string, error) {
		resp, err := createKey(ctx, c, req)
		if err != nil {
			return "", err
		}
		if _, err := fmt.Fprintln(f, resp.GetKey()); err != nil {
			return "", fmt.Errorf("failed to write the API key %s: %w", resp.GetApiKey().GetId(), err)
		}
		return resp.GetApiKey().GetId(), nil
	})
}

func newAPIKeyList(t *tool) *cobra.Command {
	req := &controlv1.ListAPIKeysRequest{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the API keys, without their secrets.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.ListAPIKeysResponse, error) {
				resp, err := c.control.ListAPIKeys(ctx, req)
				if err != nil {
					return nil, failed("failed to list API keys", err)
				}
				return resp, nil
			}, (*printer).apiKeys)
		},
	}
	cmd.Flags().BoolVar(&req.IncludeDisabled, "include-disabled", false, "Also show disabled keys.")
	return required(cmd)
}

func (p *printer) apiKeys(resp *controlv1.ListAPIKeysResponse) error {
	t := newTable(fixed("ID"), flexible("NAME"), flexible("SUBJECT"), fixed("ROLE"), flexible("APPLICATIONS"), fixed("STATE"), flexible("CREATOR"), fixed("CREATED"), fixed("LAST USED"))
	for _, k := range resp.GetApiKeys() {
		state := cell{text: "ENABLED", color: green}
		if k.GetDisabled() {
			state = colored("DISABLED")
		}
		t.add(k.GetId(), k.GetName(), k.GetSubject(), roleName(k), limitText(k.GetApplications()), state, k.GetCreator(), p.ageSeconds(k.GetCreatedAt()), p.ageSeconds(k.GetLastUsedAt()))
	}
	return p.table(t, "No API keys.", "")
}

// roleName returns the role of a key; agents before roles had names report only the number.
func roleName(k *modelv1.APIKey) string { return cmp.Or(k.GetRoleName(), k.GetRole().String()) }

// limitText describes the applications that a key is restricted to, "all" without restriction.
func limitText(s *modelv1.ApplicationSelector) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.GetLabels())) {
		parts = append(parts, name+"="+s.GetLabels()[name])
	}
	if names := s.GetNames(); len(names) > 0 {
		parts = append(parts, "name "+strings.Join(names, "|"))
	}
	if repos := s.GetRepositoryIds(); len(repos) > 0 {
		parts = append(parts, "repository "+strings.Join(repos, "|"))
	}
	return cmp.Or(strings.Join(parts, ", "), "all")
}

func newAPIKeyDisable(t *tool) *cobra.Command {
	req := &controlv1.DisableAPIKeyRequest{}
	cmd := &cobra.Command{
		Use:   "disable",
		Short: "Disable an API key for good.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return callAndReport(cmd, t, "Successfully disabled API key id = %s", func(ctx context.Context, c *client) (string, error) {
				if _, err := c.control.DisableAPIKey(ctx, req); err != nil {
					return "", unknown(failed("failed to disable the API key", err), "'pipectl apikey list' shows the IDs")
				}
				return req.GetId(), nil
			})
		},
	}
	cmd.Flags().StringVar(&req.Id, "key-id", "", "The ID of the key: its part before the dot.")
	return required(cmd, "key-id")
}
