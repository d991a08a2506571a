package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/piped/starter"
)

func observeCommand(stdout, stderr io.Writer) *cobra.Command {
	var o starter.Observation
	var level, format string
	cmd := &cobra.Command{
		Use: "observe", Short: "Record the rollouts of a cluster, and change nothing", Args: cobra.NoArgs,
		Long: `Record the rollouts of every Deployment, StatefulSet and DaemonSet of a cluster, with
start, end, outcome and times, until it is stopped.

Neither a repository nor an application is needed. It sends no request that changes the
cluster, and needs no right to: get, list and watch on Deployments, StatefulSets and
DaemonSets, list and watch on ReplicaSets and ControllerRevisions, list on pods and events,
and get on the Leases of kube-system, by which it notices that no controller acts.

It serves a page and the control API on loopback addresses, and prints an address that
signs a browser in. What began while it was not running is found at its next start.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(stderr, level, format)
			if err != nil {
				return err
			}
			klog.SetSlogLogger(slog.New(clientLog{log.Handler()}).With("component", "client-go"))
			made, err := o.Complete()
			if err != nil {
				return err
			}
			if err := sandbox.Hide(); err != nil { // from other processes of the same user
				return err
			}
			options := newOptions(log)
			options.ReadOnly = true
			return runAgent(cmd.Context(), parsed(made), options, greeting{
				first: fmt.Sprintf("piped observes %s, and changes nothing there.", made), client: "pipectl rollout list", end: "what begins meanwhile is found at the next start",
			}.printTo(stdout))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "the kubeconfig; default: that of kubectl, or the cluster of the pod")
	flags.StringVar(&o.Context, "context", "", "the context of the kubeconfig; default: the current one")
	flags.StringSliceVar(&o.Namespaces, "namespace", nil, "a namespace, or a pattern such as team-*; can be given several times; default: all")
	flags.StringSliceVar(&o.ExcludeNamespaces, "exclude-namespace", nil, "a namespace or a pattern that is not observed; can be given several times")
	flags.StringVar(&o.Selector, "selector", "", "the labels of the workloads, as for kubectl; default: all workloads")
	flags.StringVar(&o.Webhook, "webhook", "", "a URL that gets the start and the end of each rollout; default: none")
	flags.StringVar(&o.GitHosts, "git-hosts", "", "a YAML file with the list gitHosts of an agent's configuration, whose workloads get statuses of their commits; default: none")
	flags.StringVar(&o.DataDir, "data-dir", "", "the directory of the records; default: "+starter.ObserveDir)
	flags.StringVar(&o.APIAddress, "api-address", "", "the address of the control API; default: 127.0.0.1:9083")
	flags.StringVar(&o.WebAddress, "web-address", "", "the address of the page; default: 127.0.0.1:9085")
	flags.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&format, "log-format", "text", "text or json")
	return cmd
}
