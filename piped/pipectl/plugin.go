package pipectl

import (
	"errors"

	"github.com/spf13/cobra"
)

// newPlugin is there for scripts of the real pipectl. This agent has no
// plugins, so there is nothing to push one to.
func newPlugin() *cobra.Command {
	cmd := &cobra.Command{Use: "plugin", Short: "Do plugin tasks. This agent has none."}
	push := &cobra.Command{
		Use:   "push",
		Short: "Refused: the agent has no plugins.",
		RunE: func(*cobra.Command, []string) error {
			return hint(errors.New("this agent has no plugins: what it does is built in"), "leave this step away; an agent of PipeCD's takes plugins from the real pipectl")
		},
	}
	flags := push.Flags()
	flags.StringSlice("files", nil, "Taken and not used.")
	flags.String("tag", "", "Taken and not used.")
	flags.String("registry", "", "Taken and not used.")
	flags.String("repository", "", "Taken and not used.")
	cmd.AddCommand(required(push))
	return asGroup(cmd)
}
