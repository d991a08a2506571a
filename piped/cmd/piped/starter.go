package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/c785c783/piped/piped/app"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/endpoint"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/pipectl/signin"
	"github.com/c785c783/piped/piped/starter"
)

// addStarterFlags adds the flags of a configuration without a file.
func addStarterFlags(flags *pflag.FlagSet, o *starter.Options) {
	flags.StringVar(&o.Repo, "repo", "", "the Git repository: a path, or an address over HTTP or SSH")
	flags.StringVar(&o.Branch, "branch", "", "the branch; default: that of the repository's HEAD")
	flags.StringVar(&o.Path, "path", "", "the directory of the repository with the applications; default: all of it")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "the kubeconfig; default: that of kubectl, or the cluster of the pod")
	flags.StringVar(&o.Context, "context", "", "the context of the kubeconfig; default: the current one")
	flags.StringVar(&o.GitUsername, "git-username", "", "the user name for Git over HTTP")
	flags.StringVar(&o.SSHKeyFile, "ssh-key-file", "", "the private key for Git over SSH; default: the ssh agent and the user's keys")
	flags.StringVar(&o.DataDir, "data-dir", "", "the directory of the agent's data; default: ~/.piped")
}

// addRunFlags adds those that make no sense for a file to grow from, such as secrets.
func addRunFlags(flags *pflag.FlagSet, o *starter.Options) {
	flags.StringVar(&o.GitPasswordFile, "git-password-file", "", "the file with the password or token for Git over HTTP")
	flags.StringVar(&o.APIAddress, "api-address", "", "the address of the control API; default: 127.0.0.1:9083")
	flags.StringVar(&o.WebAddress, "web-address", "", "the address of the page; default: 127.0.0.1:9085")
}

// check refuses flags that belong to the other way to run.
func (f runFlags) check(cmd *cobra.Command) error {
	if f.config == "" {
		return nil
	}
	own := []string{"config", "log-level", "log-format"}
	var problem error
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if !slices.Contains(own, flag.Name) {
			problem = fmt.Errorf("--%s is for --repo: set it in %s", flag.Name, f.config)
		}
	})
	return problem
}

// parsed reads a configuration that was made.
func parsed(c interface{ File() (string, error) }) configure {
	return func() (*config.Piped, []string, error) {
		text, err := c.File()
		if err != nil {
			return nil, nil, err
		}
		return app.Kinds().ParsePiped("the flags", []byte(text))
	}
}

// greeting are the parts of a greeting that depend on what the agent does.
type greeting struct {
	first  string // what it does
	client string // a command to begin with
	end    string // what an end means
}

// printTo returns a greeting that prints where the page is once the agent serves it.
func (g greeting) printTo(out io.Writer) greet {
	return func(ctx context.Context, cfg *config.Piped, agent *app.App) {
		fmt.Fprintln(out, g.first)
		link, err := signInLink(ctx, cfg, agent)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			fmt.Fprintf(out, "page    http://%s (cannot make a sign-in link: %v; pipectl login-link tries again)\n", agent.WebAddr(), err)
			return
		}
		fmt.Fprintf(out, "page    %s\n        signs a browser in once, within ten minutes; pipectl login-link prints another\nclient  %s\nend     Ctrl-C; %s\n", link, g.client, g.end)
	}
}

// signInLink returns an address that signs a browser in as the owner. The address of the page is
// bound already: the request waits until it is served.
func signInLink(ctx context.Context, cfg *config.Piped, agent *app.App) (string, error) {
	announced, _, err := endpoint.Find([]string{cfg.DataDir})
	if err != nil {
		return "", err
	}
	key, err := os.ReadFile(announced.OwnerKeyFile)
	if err != nil {
		return "", err
	}
	web, err := signin.New("http://"+agent.WebAddr(), nil)
	if err != nil {
		return "", err
	}
	link, _, err := web.Link(ctx, strings.TrimSpace(string(key)), "/")
	return link, err
}

// dryRun prints what an agent without a file would deploy.
func dryRun(ctx context.Context, o starter.Options, options app.Options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "piped-dry-run-")
	if err != nil {
		return fmt.Errorf("make a directory for the dry run: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	o.DataDir, o.APIAddress, o.WebAddress = dir, "127.0.0.1:0", "127.0.0.1:0"
	made, err := starter.New(ctx, o)
	if err != nil {
		return err
	}
	cfg, _, err := parsed(made)()
	if err != nil {
		return err
	}
	proposals, rest, err := app.DryRun(ctx, cfg, options)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "piped would deploy %s:\n", made)
	failed := 0
	for _, p := range proposals {
		printProposal(out, p)
		if p.Err != nil {
			failed++
		}
	}
	rest = slices.DeleteFunc(rest, func(c deploy.Candidate) bool { return !made.Contains(c.Git.Dir) })
	for _, c := range rest {
		fmt.Fprintf(out, "\n%s  (%s)\n  not deployed: %s\n", cmp.Or(c.Name, c.Git.Dir), c.Git.ConfigPath(), c.Reason)
	}
	failed += len(rest)
	fmt.Fprintf(out, "\n%s found, %d cannot be deployed. Nothing was changed.\n", count(len(proposals)+len(rest), "application"), failed)
	if failed > 0 {
		return &failure{code: exitFailed}
	}
	return nil
}

// printProposal prints what the first deployment of an application would do.
func printProposal(out io.Writer, p app.Proposal) {
	fmt.Fprintf(out, "\n%s  (%s)\n", p.Application.Name, p.Application.Git.ConfigPath())
	if p.Err != nil {
		fmt.Fprintf(out, "  cannot be deployed: %v\n", p.Err)
		return
	}
	fmt.Fprintf(out, "  %s\n", p.Plan.Summary)
	if p.Hold != "" {
		fmt.Fprintf(out, "  waits: %s\n", p.Hold)
	}
	live := map[deploy.ObjectRef]deploy.AdoptedObject{}
	for _, o := range p.Live {
		live[o.Object] = o
	}
	for _, c := range p.Changes {
		object, exists := live[c.Object]
		fmt.Fprintf(out, "  %-20s  %s\n", effect(exists, object.Changes, object.OwnerApplicationID == p.Application.ID), c.Object)
	}
}

// effect names what the first deployment does to an object.
func effect(exists, changes, own bool) string {
	switch {
	case !exists:
		return "create"
	case own && changes:
		return "change"
	case own:
		return "unchanged"
	case changes:
		return "take over and change"
	}
	return "take over"
}
