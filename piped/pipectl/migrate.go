package pipectl

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func newMigrate(t *tool) *cobra.Command {
	cmd := &cobra.Command{Use: "migrate", Short: "Do migration tasks."}
	cmd.AddCommand(newMigrateDatabase(t), newMigrateApplicationConfig())
	return asGroup(cmd)
}

func newMigrateDatabase(t *tool) *cobra.Command {
	var ids []string
	cmd := &cobra.Command{
		Use:   "database",
		Short: "Record the deploy targets that platform providers stand for.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := t.logs.logger(cmd)
			if err != nil {
				return err
			}
			c, err := t.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer c.close()
			for _, id := range ids {
				log.info("migrating database", "application", id)
				if err := migrateApplication(cmd.Context(), c, log, id); err != nil {
					return err
				}
				log.info("successfully migrated database", "application", id)
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&ids, "applications", nil, "The IDs of the applications.")
	return required(cmd, "applications")
}

// migrateApplication makes the platform provider of an application its deploy target,
// for the plugin of its kind. It skips applications that have deploy targets or no
// provider.
func migrateApplication(ctx context.Context, c *client, log *logger, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.GetApplication(ctx, &apiservice.GetApplicationRequest{ApplicationId: id})
	if err != nil {
		return unknownApplication(failed("failed to get application", err))
	}
	app := resp.GetApplication()
	if len(app.GetDeployTargetsByPlugin()) > 0 {
		log.info("skip migrating database because the deploy target is already set", "application", id)
		return nil
	}
	provider := app.GetPlatformProvider()
	if provider == "" {
		log.info("skip migrating database because the platform provider is not set", "application", id)
		return nil
	}
	_, err = c.UpdateApplicationDeployTargets(ctx, &apiservice.UpdateApplicationDeployTargetsRequest{
		ApplicationId: id,
		DeployTargetsByPlugin: map[string]*modelv1.DeployTargets{
			strings.ToLower(app.GetKind().String()): {DeployTargets: []string{provider}},
		},
	})
	if err != nil {
		return unknownApplication(failed("failed to update application deploy targets", err))
	}
	return nil
}

// newMigrateApplicationConfig exists for scripts written for PipeCD's pipectl, where it
// converts configurations to the plugin format. The agent does not read that format.
func newMigrateApplicationConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "application-config",
		Short: "Refused: the agent reads kind KubernetesApp as it is.",
		RunE: func(*cobra.Command, []string) error {
			return hint(errors.New("nothing was changed: this agent reads kind KubernetesApp as it is, and not what would be written"),
				"leave the files as they are; 'piped check' shows whether the agent can read them")
		},
	}
	cmd.Flags().StringSlice("config-files", nil, "Accepted and ignored.")
	return required(cmd, "config-files")
}
