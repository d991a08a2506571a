package pipectl

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/piped/build"
)

func newVersion(b build.Info) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version and the commit that pipectl was built from.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine(b))
			return err
		},
	}
	return required(cmd)
}

// versionLine formats the version like PipeCD's pipectl.
func versionLine(b build.Info) string {
	return fmt.Sprintf("Version: %s, GitCommit: %s, BuildDate: %s", b.Version, b.Commit, b.Date)
}
