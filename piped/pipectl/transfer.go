package pipectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func newTransfer(t *tool) *cobra.Command {
	cmd := &cobra.Command{Use: "transfer", Short: "Transfer data between control planes."}
	cmd.AddCommand(newTransferBackup(t), newTransferRestore(t))
	return asGroup(cmd)
}

// backup is the file format of transfer in PipeCD's pipectl, version 1.
type backup struct {
	Version      string                 `json:"version"`
	CreatedAt    string                 `json:"created_at"`
	Pipeds       []*modelv1.Piped       `json:"pipeds"`
	Applications []*modelv1.Application `json:"applications"`
}

func newTransferBackup(t *tool) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Write applications and their agent into a file.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := t.logs.logger(cmd)
			if err != nil {
				return err
			}
			log.info("Starting control plane backup...")
			c, err := t.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer c.close()
			data, err := collect(cmd.Context(), c, log)
			if err != nil {
				return err
			}
			data.Version, data.CreatedAt = "1", t.now().UTC().Format(time.RFC3339)
			if err := writeJSON(file, data); err != nil {
				return fmt.Errorf("failed to write backup file: %w", err)
			}
			log.info("Backup completed successfully", "output-file", file)
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "output-file", "", "Path to the file to write.")
	return required(cmd, "output-file")
}

// collect reads all applications, and their agents.
func collect(ctx context.Context, c *client, log *logger) (*backup, error) {
	data := &backup{}
	for _, disabled := range []bool{false, true} {
		apps, err := allApplications(ctx, c, disabled)
		if err != nil {
			return nil, failed("failed to list applications", err)
		}
		label := map[bool]string{false: "enabled", true: "disabled"}[disabled]
		log.infof("Fetched %d %s application(s)", len(apps), label)
		data.Applications = append(data.Applications, apps...)
	}
	log.infof("Found %d application(s)", len(data.Applications))
	seen := map[string]bool{}
	for _, app := range data.Applications {
		id := app.GetPipedId()
		if seen[id] {
			continue
		}
		seen[id] = true
		resp, err := c.GetPiped(ctx, &apiservice.GetPipedRequest{PipedId: id})
		if err != nil {
			log.warn("failed to fetch piped, skipping", "piped-id", id, "error", err.Error())
			continue
		}
		data.Pipeds = append(data.Pipeds, resp.GetPiped())
	}
	if len(data.Pipeds) == 0 {
		return nil, hint(errors.New("failed to fetch pipeds: no piped for backup"), "a backup holds agents by their applications: there must be one application at least")
	}
	log.infof("Found %d piped(s)", len(data.Pipeds))
	return data, nil
}

// allApplications reads all pages of a list, until an empty page or a missing cursor.
func allApplications(ctx context.Context, c *client, disabled bool) ([]*modelv1.Application, error) {
	var all []*modelv1.Application
	req := &apiservice.ListApplicationsRequest{Disabled: disabled, Limit: 500}
	for {
		page, cancel := context.WithTimeout(ctx, callTimeout)
		resp, err := c.ListApplications(page, req)
		cancel()
		if err != nil {
			return nil, err
		}
		all = append(all, resp.GetApplications()...)
		if req.Cursor = resp.GetCursor(); req.Cursor == "" || len(resp.GetApplications()) == 0 {
			return all, nil
		}
	}
}

// writeJSON writes a file that only its owner can read.
func writeJSON(file string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

// readJSON reads a file written by the command how.
func readJSON(file, how string, v any) error {
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return hint(fmt.Errorf("failed to read %s: %w", file, err), "it is the file that '%s' wrote", how)
	}
	return nil
}
