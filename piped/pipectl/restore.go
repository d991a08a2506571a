package pipectl

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const (
	byBackup       = "pipectl transfer backup"
	byRestorePiped = "pipectl transfer restore piped"
)

// pipedMapping maps an agent of a backup to its replacement.
type pipedMapping struct {
	OldPipedID   string `json:"old_piped_id"`
	NewPipedID   string `json:"new_piped_id"`
	NewKey       string `json:"new_key"`
	NewBase64Key string `json:"new_base64_key"`
	PipedName    string `json:"piped_name"`
}

// restoreResult is the result of restoring agents.
type restoreResult struct {
	PipedMappings            []pipedMapping `json:"piped_mappings"`
	RestoredApplicationCount int            `json:"restored_application_count"`
	FailedApplicationCount   int            `json:"failed_application_count"`
}

func newTransferRestore(t *tool) *cobra.Command {
	cmd := &cobra.Command{Use: "restore", Short: "Restore data from a backup file to the target control plane."}
	cmd.AddCommand(newRestorePiped(t), newRestoreApplication(t))
	return asGroup(cmd)
}

func newRestorePiped(t *tool) *cobra.Command {
	var in, out string
	cmd := &cobra.Command{
		Use:   "piped",
		Short: "Write the mapping of agents for the next command.",
		Long: `Write the mapping of agents for 'transfer restore application'. Agents of the
file become this agent, which registers no other.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := t.logs.logger(cmd)
			if err != nil {
				return err
			}
			log.info("Restoring pipeds...", "input-file", in)
			data := &backup{}
			if err := readJSON(in, byBackup, data); err != nil {
				return err
			}
			log.infof("Found %d piped(s) in backup (created at %s)", len(data.Pipeds), data.CreatedAt)
			c, err := t.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer c.close()
			result := &restoreResult{}
			if result.PipedMappings, err = registerPipeds(cmd.Context(), c, log, data.Pipeds); err != nil {
				return err
			}
			if err := writeMappings(cmd, log, out, result); err != nil {
				return err
			}
			log.info(nextStep(result.PipedMappings), "pipeds-registered", strconv.Itoa(len(result.PipedMappings)))
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&in, "input-file", "", "Path to the file that 'pipectl transfer backup' wrote.")
	flags.StringVar(&out, "output-file", "", "Path to the file to write the old and new IDs and the keys to. Empty means stdout.")
	return required(cmd, "input-file")
}

// nextStep describes the next step. An agent without a new key uses its own
// configuration.
func nextStep(mappings []pipedMapping) string {
	if slices.ContainsFunc(mappings, func(m pipedMapping) bool { return m.NewKey != "" }) {
		return "Piped restore completed. Update each piped config with the new ID and key, then restart the piped agents before running 'restore application'."
	}
	return "Piped restore completed. Run 'restore application' with this mapping next."
}

// registerPipeds registers the agents of a backup and returns their new IDs and keys.
// If the called agent cannot register others, it replaces each of them itself; see
// thisAgent.
func registerPipeds(ctx context.Context, c *client, log *logger, pipeds []*modelv1.Piped) ([]pipedMapping, error) {
	var out []pipedMapping
	for _, p := range pipeds {
		resp, err := c.RegisterPiped(ctx, &apiservice.RegisterPipedRequest{Name: p.GetName(), Desc: p.GetDesc()})
		switch status.Code(err) {
		case codes.OK:
		case codes.FailedPrecondition, codes.AlreadyExists: // an agent that registers no other agents
			m, err := thisAgent(ctx, c, p)
			if err != nil {
				return nil, err
			}
			out = append(out, m)
			log.info("Mapped piped to the agent that answers", "name", p.GetName(), "old-id", p.GetId(), "new-id", m.NewPipedID)
			continue
		default:
			return nil, failed(fmt.Sprintf("failed to register piped %q (%s)", p.GetName(), p.GetId()), err)
		}
		out = append(out, pipedMapping{
			OldPipedID: p.GetId(), NewPipedID: resp.GetId(), NewKey: resp.GetKey(),
			NewBase64Key: base64.StdEncoding.EncodeToString([]byte(resp.GetKey())), PipedName: p.GetName(),
		})
		log.info("Registered piped", "name", p.GetName(), "old-id", p.GetId(), "new-id", resp.GetId())
	}
	return out, nil
}

// thisAgent maps an agent of a backup to the called one, which retains its own
// configuration and needs no key.
func thisAgent(ctx context.Context, c *client, p *modelv1.Piped) (pipedMapping, error) {
	resp, err := c.control.GetStatus(ctx, &controlv1.GetStatusRequest{})
	if err != nil {
		return pipedMapping{}, failed(fmt.Sprintf("failed to find the agent that replaces piped %q (%s)", p.GetName(), p.GetId()), err)
	}
	return pipedMapping{OldPipedID: p.GetId(), NewPipedID: resp.GetAgent().GetPipedId(), PipedName: p.GetName()}, nil
}

// writeMappings writes the old and new IDs of the agents, with their new keys, as JSON
// to the file, or to stdout if file is "".
func writeMappings(cmd *cobra.Command, log *logger, file string, result *restoreResult) error {
	if file != "" {
		if err := writeJSON(file, result); err != nil {
			return fmt.Errorf("failed to write mapping file: %w", err)
		}
		log.info("Piped ID mapping written", "path", file)
		return nil
	}
	data, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return fmt.Errorf("failed to write the mapping: %w", err)
	}
	log.info("Piped ID mapping (update your piped config files with the new IDs and keys):")
	_, err = fmt.Fprintln(cmd.OutOrStdout(), string(data))
	return err
}

func newRestoreApplication(t *tool) *cobra.Command {
	var in, mapping string
	cmd := &cobra.Command{
		Use:   "application",
		Short: "Add the applications of such a file with the IDs they have.",
		Long: `Add the applications of such a file with the IDs they have. An application that
discover has added before is deleted first.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := t.logs.logger(cmd)
			if err != nil {
				return err
			}
			log.info("Restoring applications...", "input-file", in, "piped-id-mapping-file", mapping)
			data, result := &backup{}, &restoreResult{}
			if err := readJSON(in, byBackup, data); err != nil {
				return err
			}
			log.infof("Found %d application(s) in backup (created at %s)", len(data.Applications), data.CreatedAt)
			if err := readJSON(mapping, byRestorePiped, result); err != nil {
				return err
			}
			log.infof("Loaded mapping for %d piped(s)", len(result.PipedMappings))
			c, err := t.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer c.close()
			return restoreApplications(cmd.Context(), c, log, data.Applications, result.PipedMappings)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&in, "input-file", "", "Path to the file that 'pipectl transfer backup' wrote.")
	flags.StringVar(&mapping, "piped-id-mapping-file", "", "Path to the file that 'pipectl transfer restore piped' wrote.")
	return required(cmd, "input-file", "piped-id-mapping-file")
}

// restoreApplications adds all applications that it can, and returns an error if any
// failed.
func restoreApplications(ctx context.Context, c *client, log *logger, apps []*modelv1.Application, mappings []pipedMapping) error {
	pipeds := map[string]string{}
	for _, m := range mappings {
		pipeds[m.OldPipedID] = m.NewPipedID
	}
	restored, lost := 0, 0
	for _, app := range apps {
		id, ok := pipeds[app.GetPipedId()]
		if !ok {
			log.warn("No piped mapping found for application, skipping", "app-name", app.GetName(), "app-id", app.GetId(), "piped-id", app.GetPipedId())
			lost++
			continue
		}
		if err := restoreApplication(ctx, c, log, app, id); err != nil {
			log.warn("Failed to restore application", "app-name", app.GetName(), "app-id", app.GetId(), "error", err.Error())
			lost++
			continue
		}
		restored++
	}
	log.infoCounts("Application restore completed", "restored", restored, "failed", lost)
	if lost > 0 {
		return hint(fmt.Errorf("%d application(s) failed to restore", lost), "the messages above say why; restored applications can be added again without effect")
	}
	return nil
}

// restoreApplication adds an application, and disables it if it was disabled.
func restoreApplication(ctx context.Context, c *client, log *logger, app *modelv1.Application, pipedID string) error {
	resp, err := c.AddApplication(ctx, &apiservice.AddApplicationRequest{
		Name: app.GetName(), PipedId: pipedID, GitPath: app.GetGitPath(), Kind: app.GetKind(),
		PlatformProvider: app.GetPlatformProvider(), Description: app.GetDescription(), ApplicationId: app.GetId(),
	})
	if err != nil {
		return err
	}
	message := "Restored application"
	if app.GetDisabled() {
		if _, err := c.DisableApplication(ctx, &apiservice.DisableApplicationRequest{ApplicationId: resp.GetApplicationId()}); err != nil {
			log.warn("Application restored but failed to disable it", "app-name", app.GetName(), "new-id", resp.GetApplicationId(), "error", err.Error())
			return nil
		}
		message = "Restored application (disabled)"
	}
	log.info(message, "name", app.GetName(), "old-id", app.GetId(), "new-id", resp.GetApplicationId())
	return nil
}
