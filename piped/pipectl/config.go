package pipectl

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func newApplicationConfig(t *tool) *cobra.Command {
	req := &controlv1.GetApplicationConfigRequest{}
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the configuration of an application as it is in effect, with defaults.",
		Long: `Show the configuration of an application as it is in effect at the last known head,
with defaults and analysis templates, as YAML. Comments mark what the file does not
contain. Secrets are redacted. Of an invalid configuration, show what is wrong.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.GetApplicationConfigResponse, error) {
				resp, err := c.control.GetApplicationConfig(ctx, req)
				if err != nil {
					return nil, unknownApplication(failed("failed to get the configuration", err))
				}
				return resp, nil
			}, (*printer).applicationConfig)
		},
	}
	cmd.Flags().StringVar(&req.ApplicationId, "app-id", "", "The application ID.")
	return required(cmd, "app-id")
}

func (p *printer) applicationConfig(c *controlv1.GetApplicationConfigResponse) error {
	errs := []error{p.linef("# %s at %s", clean(c.GetPath()), clean(c.GetCommit()))}
	for _, w := range c.GetWarnings() {
		errs = append(errs, p.linef("# warning: %s", clean(w)))
	}
	if c.GetError() != "" {
		return errors.Join(append(errs, p.linef("The configuration is invalid:"), p.diff(c.GetError()))...)
	}
	return errors.Join(append(errs, p.manifest(c.GetYaml(), "The configuration is empty.", ""))...)
}

func newPipedConfig(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the configuration of the agent as it is in effect, with defaults.",
		Long: `Show the configuration of the agent as it is in effect, with defaults, as YAML.
Comments mark what the file does not contain. Secrets are redacted.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.GetAgentConfigResponse, error) {
				resp, err := c.control.GetAgentConfig(ctx, &controlv1.GetAgentConfigRequest{})
				if err != nil {
					return nil, failed("failed to get the configuration", err)
				}
				return resp, nil
			}, func(p *printer, c *controlv1.GetAgentConfigResponse) error {
				note := ""
				if c.GetRefused() != "" {
					note = "a newer one was refused: " + c.GetRefused()
				}
				return p.manifest(c.GetYaml(), "There is no configuration.", note)
			})
		},
	}
	return required(cmd)
}
