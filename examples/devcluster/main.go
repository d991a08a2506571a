package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code. A component never
// comes back from it before its process is asked to end.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 1 && args[0] == "component" {
		return runComponent(ctx, args[1], args[2:], stderr)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, "devcluster:", err)
		return 1
	}
	return 0
}

// newRoot builds the command tree.
func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "devcluster",
		Short:         "A real local Kubernetes control plane with simulated nodes",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.DisableDefaultCmd = true
	dir := root.PersistentFlags().String("dir", "", "folder of the cluster: data, certificates, kubeconfig, logs (required)")
	root.AddCommand(
		upCommand(dir),
		componentCommand(dir, "stop", "Stop one component of a running cluster and return when it has ended"),
		componentCommand(dir, "start", "Start one component of a running cluster and return when it is ready"),
		statusCommand(dir),
		downCommand(dir),
	)
	return root
}

func upCommand(dir *string) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "up --dir DIR",
		Short: "Run a cluster in the foreground until SIGINT, SIGTERM or \"devcluster down\"",
		Long: "Run a cluster in the foreground. The path of its kubeconfig is printed on stdout once the API answers,\n" +
			"the default ServiceAccount exists and every node is Ready.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := openDir(*dir)
			if err != nil {
				return err
			}
			if err := o.validate(); err != nil {
				return err
			}
			return up(cmd.Context(), d, o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func componentCommand(dir *string, verb, short string) *cobra.Command {
	return &cobra.Command{
		Use:       verb + " COMPONENT --dir DIR",
		Short:     short,
		Long:      short + ".\nComponents: " + componentList() + ".",
		Args:      cobra.ExactArgs(1),
		ValidArgs: componentNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := openDir(*dir)
			if err != nil {
				return err
			}
			return newControlClient(d).post(cmd.Context(), "/components/"+args[0]+"/"+verb)
		},
	}
}

func statusCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "status --dir DIR",
		Short: "Print each component's name, state, process id and port",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := openDir(*dir)
			if err != nil {
				return err
			}
			return newControlClient(d).status(cmd.Context(), cmd.OutOrStdout())
		},
	}
}

func downCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down --dir DIR",
		Short: "End a running cluster and wait for it; its data stays",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := openDir(*dir)
			if err != nil {
				return err
			}
			return down(cmd.Context(), d, cmd.ErrOrStderr())
		},
	}
}
