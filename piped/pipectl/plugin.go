package pipectl

import (
	"errors"

	"github.com/spf13/cobra"
)

// newPlugin exists for scripts written for PipeCD's pipectl. The agent has no plugins.
func newPlugin() *cobra.Command {
	cmd := &cobra.Command{Use: "plugin", Short: "Do plugin tasks. This agent has none."}
	push := &cobra.Command{
		Use:   "push",
		Short: "Refused: the agent has no plugins.",
		RunE: func(*cobra.Command, []string) error {
			return hint(errors.New("this agent has no plugins: what it does is built in"), "remove this step; an agent of PipeCD's takes plugins from the real pipectl")
		},
	}
	flags := push.Flags()
	flags.StringSlice("files", nil, "Accepted and ignored.")
	flags.String("tag", "", "Accepted and ignored.")
	flags.String("registry", "", "Accepted and ignored.")
	flags.String("repository", "", "Accepted and ignored.")
	cmd.AddCommand(required(push))
	return asGroup(cmd)
}
