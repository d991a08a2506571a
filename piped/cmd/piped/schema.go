package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/piped/app"
	"github.com/c785c783/piped/piped/config/schema"
)

func schemaCommand(stdout io.Writer) *cobra.Command {
	kind := app.Kinds()[0].File
	cmd := &cobra.Command{
		Use:   "schema [application|piped]",
		Short: "Print the JSON Schema of a configuration file",
		Long: `Print the JSON Schema (draft 2020-12) of app.pipecd.yaml, or of the agent's own
configuration, for completion and validation in editors.`,
		ValidArgs: []string{"application", "piped"},
		RunE: func(_ *cobra.Command, args []string) error {
			switch strings.Join(args, " ") {
			case "", "application":
				found, ok := app.Kinds().Find(kind)
				if !ok {
					return &failure{exitUsage, fmt.Errorf("--kind: there is no kind %q", kind)}
				}
				return writeSchema(stdout, found.ApplicationSchema())
			case "piped":
				return writeSchema(stdout, app.Kinds().PipedSchema())
			}
			return &failure{exitUsage, fmt.Errorf("%q: use application or piped", strings.Join(args, " "))}
		},
	}
	cmd.Flags().StringVar(&kind, "kind", kind, "kind of the application: KubernetesApp, OpenTofuApp or TerraformApp")
	cmd.SetFlagErrorFunc(usageError)
	return cmd
}

func writeSchema(w io.Writer, s schema.Schema) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // patterns stay readable
	enc.SetIndent("", "  ")
	return enc.Encode(s)
}
