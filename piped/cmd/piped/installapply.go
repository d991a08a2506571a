package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/c785c783/piped/piped/app"
	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/install"
	"github.com/c785c783/piped/piped/starter"
)

// clusterFlags select the cluster of an installation.
type clusterFlags struct {
	kubeconfig, context string
	timeout             time.Duration
}

func (f *clusterFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "the kubeconfig; default: that of kubectl")
	flags.StringVar(&f.context, "context", "", "the context of the kubeconfig; default: the current one")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long all of it may take")
}

// answerWithin is how long a cluster may not answer: a person waits.
const answerWithin = 15 * time.Second

// connect returns the installer of an agent. The caller calls done.
func (f *clusterFlags) connect(o install.Options, out io.Writer) (i *install.Installer, done func(), err error) {
	where, err := starter.FindCluster(f.kubeconfig, f.context)
	if err != nil {
		return nil, nil, err
	}
	c, err := cluster.NewCluster(cluster.ClusterConfig{Name: where.Context, KubeConfigPath: where.Kubeconfig, Context: where.Context, RetryFor: answerWithin, UserAgent: "piped-install"})
	if err != nil {
		return nil, nil, err
	}
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	return &install.Installer{Cluster: c, Namespace: o.Namespace, Namespaces: o.Namespaces, Say: say}, c.Close, nil
}

// errLate is the cause of the end of a command that took too long.
var errLate = errors.New("--timeout has passed")

// within limits the time of a command.
func (f *clusterFlags) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, f.timeout, errLate)
}

// apply applies the manifests, and waits until the agent answers.
func (f *installFlags) apply(ctx context.Context, stdout, stderr io.Writer) error {
	ctx, cancel := f.cluster.within(ctx)
	defer cancel()
	v, err := f.variant()
	if err != nil {
		return err
	}
	parts, err := f.parts()
	if err != nil {
		return err
	}
	i, done, err := f.cluster.connect(v.Options, stdout)
	if err != nil {
		return err
	}
	defer done()
	i.ReplaceConfig, i.ChangeStore = f.replaceConfig, f.changeStore
	var secrets []install.Secret
	if slices.Contains(parts, install.Secrets) {
		if secrets, err = f.secrets(ctx, v, i, stderr); err != nil {
			return err
		}
	}
	if err := f.checkFirst(ctx, i, v, stdout); err != nil {
		return err
	}
	files, err := v.Files()
	if err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(file install.File) bool { return !slices.Contains(parts, file.Part) })
	applied, err := i.Apply(ctx, files, secrets, len(parts) == len(install.Parts))
	if err != nil {
		return err
	}
	for _, left := range applied.Left {
		fmt.Fprintf(stdout, "left %s, which this variant does not use: it contains data\n", left)
	}
	if applied.PublicKey != "" {
		fmt.Fprintln(stdout)
		printPublicKey(stdout, v, applied.PublicKey)
	}
	if !slices.Contains(parts, install.Agent) {
		return nil
	}
	if err := i.AwaitReady(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, `The agent answers. Next:
  piped install check --namespace %[1]s
  kubectl -n %[1]s exec deploy/piped -- piped apikey create --config /etc/piped/piped.yaml --name NAME
  kubectl -n %[1]s port-forward deploy/piped 9083 9085
`, v.Namespace)
	return err
}

// checkFirst ends the installation before it begins if something that it needs is missing. What
// exists already is not asked for again.
func (f *installFlags) checkFirst(ctx context.Context, i *install.Installer, v install.Variant, out io.Writer) error {
	installed, err := i.Installed(ctx)
	if err != nil {
		return err
	}
	findings, err := i.CheckBefore(ctx, install.Expected{Variant: &v, Given: f.read})
	if err != nil {
		return err
	}
	findings = slices.DeleteFunc(findings, func(found install.Finding) bool {
		return found.Level != install.Problem || installed && found.Area != "rights"
	})
	return report(out, findings)
}

// report prints findings, and fails if there is a problem.
func report(out io.Writer, findings []install.Finding) error {
	problems := 0
	for _, f := range findings {
		fmt.Fprintf(out, "%-8s %-8s %s\n", f.Level, f.Area, f.Text)
		if f.Do != "" {
			fmt.Fprintf(out, "%-8s %-8s   %s\n", "", "", f.Do)
		}
		if f.Level == install.Problem {
			problems++
		}
	}
	if problems > 0 {
		fmt.Fprintf(out, "%s\n", count(problems, "problem"))
		return &failure{code: exitFailed}
	}
	return nil
}

func installCheckCommand(stdout, stderr io.Writer) *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use: "check", Short: "Check what an agent in a cluster needs, before and after its installation", Args: cobra.NoArgs,
		Long: `Check what an agent in a cluster needs, and say what to do about what is missing.

Before the installation, with its flags: whether you may make the objects, whether the
volume or the database is there, whether the repository can be read, and the clocks.
After it: the permissions of the agent's account, its storage, its access to the
repositories, the clocks, and whether it answers. Nothing is changed. The exit status is 1
if there is a problem.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.check(cmd.Context(), stdout, stderr)
		},
	}
	f.add(cmd.Flags())
	f.cluster.add(cmd.Flags())
	return cmd
}

// check checks the installation in the cluster, or a coming one.
func (f *installFlags) check(ctx context.Context, stdout, stderr io.Writer) error {
	ctx, cancel := f.cluster.within(ctx)
	defer cancel()
	i, done, err := f.cluster.connect(f.options, stdout)
	if err != nil {
		return err
	}
	defer done()
	installed, err := i.Installed(ctx)
	if err != nil {
		return err
	}
	if installed {
		findings, err := i.CheckAfter(ctx, install.Expected{Parse: parseInstalled})
		if err != nil {
			return err
		}
		return report(stdout, findings)
	}
	v, err := f.variant()
	if err != nil {
		return fmt.Errorf("no agent is installed in namespace %s; before an installation: %w", f.options.Namespace, err)
	}
	if f.read, err = f.given(ctx, v, i, stderr); err != nil {
		return err
	}
	findings, err := i.CheckBefore(ctx, install.Expected{Variant: &v, Given: f.read})
	if err != nil {
		return err
	}
	return report(stdout, findings)
}

// parseInstalled reads the configuration of an agent in the cluster.
func parseInstalled(text string) (*config.Piped, error) {
	cfg, _, err := app.Kinds().ParsePiped("piped.yaml", []byte(text))
	return cfg, err
}

func uninstallCommand(stdout io.Writer) *cobra.Command {
	var f clusterFlags
	var o install.Options
	var yes, data bool
	cmd := &cobra.Command{
		Use: "uninstall", Short: "List or remove what piped install made in a cluster", Args: cobra.NoArgs,
		Long: `List what piped install made in a cluster; with --yes, remove it. It is found by its
labels. What the agent deployed stays, and so do the volume with the agent's data, the key of
its store and its access to Git, unless --data is given, and a namespace that contains
anything else.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := f.within(cmd.Context())
			defer cancel()
			i, done, err := f.connect(o, stdout)
			if err != nil {
				return err
			}
			defer done()
			return uninstall(ctx, i, yes, data, stdout)
		},
	}
	cmd.Flags().StringVar(&o.Namespace, "namespace", install.DefaultNamespace, "the namespace of the agent")
	cmd.Flags().StringSliceVar(&o.Namespaces, "namespaces", nil, "the namespaces of the applications; needed where you may not list objects in the whole cluster")
	cmd.Flags().BoolVar(&yes, "yes", false, "remove it")
	cmd.Flags().BoolVar(&data, "data", false, "remove the volume with the agent's data, the key of its store and its access to Git, too")
	f.add(cmd.Flags())
	cmd.SetFlagErrorFunc(usageError)
	return cmd
}

func uninstall(ctx context.Context, i *install.Installer, yes, data bool, out io.Writer) error {
	plan, err := i.PlanRemoval(ctx, data, parseInstalled)
	if err != nil {
		return err
	}
	if len(plan.Deletes)+len(plan.Kept) == 0 {
		_, err := fmt.Fprintf(out, "There is no installation in namespace %s.\n", i.Namespace)
		return err
	}
	if yes {
		if err := i.Remove(ctx, plan); err != nil {
			return err
		}
	} else {
		for _, o := range plan.Objects() {
			fmt.Fprintf(out, "would delete %s\n", o)
		}
	}
	for _, kept := range plan.Kept {
		fmt.Fprintf(out, "stays: %s: %s\n", kept.Object, kept.Reason)
	}
	if !yes {
		fmt.Fprintf(out, "Nothing was changed: --yes removes it.\n")
	}
	return nil
}

// hostLines returns the host keys for a repository: those of a file, of the Secret in the cluster, of
// this machine, or what the host shows.
func (f *installFlags) hostLines(ctx context.Context, v install.Variant, i *install.Installer, stderr io.Writer) (text string, keep bool, err error) {
	var files []string
	if f.knownHostsFile != "" {
		files = []string{f.knownHostsFile}
	} else if i != nil {
		if text, err = i.KnownHosts(ctx, v.Repo); text != "" || err != nil {
			return text, true, err
		}
	}
	lines, err := git.FindHostLines(ctx, v.Repo, files)
	if err != nil {
		return "", false, fmt.Errorf("%w; or name a file with its keys with --known-hosts-file", err)
	}
	if lines.Shown != "" {
		fmt.Fprintf(stderr, "The key of the repository's host is %s. No file of this machine had it: compare it with what the host publishes.\n", lines.Shown)
	}
	return lines.Text, false, nil
}
