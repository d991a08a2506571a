package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/install"
)

// installFlags are the flags of piped install and piped install check.
type installFlags struct {
	options                               install.Options
	keyFile, knownHostsFile, passwordFile string
	gitPasswordFile                       string
	only                                  []string
	applies, replaceConfig, changeStore   bool
	cluster                               clusterFlags
	read                                  install.Given // out of the files
}

func installCommand(stdout, stderr io.Writer) *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use: "install --repo URL", Short: "Print or apply the manifests of an agent in a cluster", Args: cobra.NoArgs,
		Long: `Print the manifests of an agent in a cluster, with the secrets that they need.

By default the agent has permissions in the whole cluster; with --namespaces, in these
namespaces. Its store is SQLite on a volume; with --postgres, three replicas share that
database. For a repository over SSH, a deploy key is generated, and its public half is
printed with where to add it. A repository over HTTP is read with the password or token in
--git-password-file, or without credentials.

With --apply they are applied to the cluster that kubectl would use, secrets first, and the
command waits until the agent answers, or says why it does not. Secrets that exist are
kept, and so is a configuration that was edited since the last installation, unless
--replace-config is given: where it lacks what this variant needs, the command names that and
changes nothing. Another store needs --change-store, because the data of the one before is not
in it. What another variant had and this one has not is deleted, but for secrets and the
volume.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.applies {
				return f.apply(cmd.Context(), stdout, stderr)
			}
			return f.print(cmd.Context(), stdout, stderr)
		},
	}
	f.add(cmd.Flags())
	f.cluster.add(cmd.Flags())
	cmd.Flags().BoolVar(&f.applies, "apply", false, "apply them to the cluster of kubectl, and wait until the agent answers")
	cmd.Flags().BoolVar(&f.replaceConfig, "replace-config", false, "with --apply: replace a configuration that was edited since the last installation")
	cmd.Flags().BoolVar(&f.changeStore, "change-store", false, "with --apply: the agent gets another store than it has, after its data was moved or to begin without it")
	cmd.AddCommand(installCheckCommand(stdout, stderr))
	cmd.SetFlagErrorFunc(usageError)
	return cmd
}

// add adds the flags of a variant.
func (f *installFlags) add(flags *pflag.FlagSet) {
	o := &f.options
	flags.StringVar(&o.Repo, "repo", "", "the Git repository with the applications: an address over SSH or HTTP")
	flags.StringVar(&o.Branch, "branch", install.DefaultBranch, "the branch of the repository")
	flags.StringVar(&o.Path, "path", "", "the directory of the repository with the applications; default: all of it")
	flags.StringVar(&o.Namespace, "namespace", install.DefaultNamespace, "the namespace of the agent")
	flags.StringSliceVar(&o.Namespaces, "namespaces", nil, "the namespaces of the applications, which must exist; default: the whole cluster")
	flags.StringVar(&o.Image, "image", defaultImage(), "the agent's image; no registry has the default: make image builds it, and make image PUSH=REF pushes it to one of yours")
	flags.StringVar(&o.PipedID, "piped-id", install.DefaultPipedID, "the name of this agent; no other in the same clusters has it")
	flags.StringVar(&o.StorageSize, "storage-size", install.DefaultStorage, "the size of the volume")
	flags.StringVar(&o.StorageClass, "storage-class", "", "the storage class of the volume; default: the cluster's")
	flags.StringVar(&o.Postgres, "postgres", "", "the database for several replicas: postgres://USER@HOST:5432/DATABASE?sslmode=require")
	flags.IntVar(&o.Replicas, "replicas", 0, fmt.Sprintf("with --postgres: the number of replicas; default: %d", install.DefaultReplicas))
	flags.BoolVar(&o.Share, "share", false, "with --postgres: the replicas share the work, and do not only stand by")
	flags.StringVar(&f.passwordFile, "postgres-password-file", "", "the file with the password of the database")
	flags.StringVar(&f.keyFile, "ssh-key-file", "", "the private key for the repository; default: one is generated")
	flags.StringVar(&o.GitUsername, "git-username", "", "the user for a repository over HTTP that is not public; default with --git-password-file: "+defaultGitUser)
	flags.StringVar(&f.gitPasswordFile, "git-password-file", "", "the file with the password or token for the repository over HTTP")
	flags.StringVar(&f.knownHostsFile, "known-hosts-file", "", "the SSH host keys; default: the user's and the system's, or what the host shows")
	flags.StringSliceVar(&f.only, "only", nil, "only these parts: secrets (with the namespace), permissions, agent")
}

// defaultGitUser is the user for a token: most Git hosts take any name with it.
const defaultGitUser = "piped"

// variant returns the variant of the flags.
func (f *installFlags) variant() (install.Variant, error) {
	if f.gitPasswordFile != "" && f.options.GitUsername == "" {
		f.options.GitUsername = defaultGitUser
	}
	return install.NewVariant(f.options)
}

// defaultImage is the reference that make image gives to this version.
func defaultImage() string {
	version := built().Version
	if !imageTag.MatchString(version) { // built without make
		version = "latest"
	}
	return "piped:" + version
}

var imageTag = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// parts returns the parts that --only names, by default all.
func (f *installFlags) parts() (parts []install.Part, err error) {
	if len(f.only) == 0 {
		return install.Parts, nil
	}
	for _, name := range f.only {
		part := install.Part(name)
		switch part {
		case install.Secrets, install.Permissions, install.Agent:
			parts = append(parts, part)
		default:
			return nil, deploy.Errorf(deploy.Invalid, "--only %q: use secrets, permissions or agent", name)
		}
	}
	return parts, nil
}

// given reads the secrets that the user has, and the host keys of the repository.
// i is nil without a cluster.
func (f *installFlags) given(ctx context.Context, v install.Variant, i *install.Installer, stderr io.Writer) (given install.Given, err error) {
	for _, file := range []struct {
		flag, path string
		into       *string
	}{{"--ssh-key-file", f.keyFile, &given.DeployKey}, {"--postgres-password-file", f.passwordFile, &given.Password}, {"--git-password-file", f.gitPasswordFile, &given.GitPassword}} {
		if file.path == "" {
			continue
		}
		data, err := os.ReadFile(file.path)
		if err != nil {
			return given, deploy.Errorf(deploy.Invalid, "%s: %w", file.flag, err)
		}
		*file.into = string(data)
	}
	given.Password, given.GitPassword = strings.TrimRight(given.Password, "\r\n"), strings.TrimRight(given.GitPassword, "\r\n")
	if f.gitPasswordFile != "" && given.GitPassword == "" {
		return given, deploy.Errorf(deploy.Invalid, "--git-password-file: %s is empty", f.gitPasswordFile)
	}
	if !v.SSH {
		return given, nil
	}
	given.KnownHosts, given.Keep, err = f.hostLines(ctx, v, i, stderr)
	return given, err
}

// print prints the manifests.
func (f *installFlags) print(ctx context.Context, stdout, stderr io.Writer) error {
	v, err := f.variant()
	if err != nil {
		return err
	}
	parts, err := f.parts()
	if err != nil {
		return err
	}
	files, err := v.Files()
	if err != nil {
		return err
	}
	var secrets []install.Secret
	if slices.Contains(parts, install.Secrets) {
		if secrets, err = f.secrets(ctx, v, nil, stderr); err != nil {
			return err
		}
	}
	text, err := install.Text(files, secrets, parts)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, text); err != nil {
		return err
	}
	for _, s := range secrets {
		if public := s.PublicKey(); public != "" {
			printPublicKey(stderr, v, public)
		}
	}
	if len(secrets) > 0 {
		fmt.Fprintln(stderr, "The output contains secrets: keep it out of Git. Printed again, they are others; --only leaves them out.")
	}
	return nil
}

// secrets makes the secrets of a variant.
func (f *installFlags) secrets(ctx context.Context, v install.Variant, i *install.Installer, stderr io.Writer) (_ []install.Secret, err error) {
	if f.read, err = f.given(ctx, v, i, stderr); err != nil {
		return nil, err
	}
	if v.GitUsername != "" && f.read.GitPassword == "" {
		has := false
		if i != nil {
			if has, err = i.HasGitPassword(ctx); err != nil {
				return nil, err
			}
		}
		if !has {
			return nil, deploy.Errorf(deploy.Invalid, "--git-password-file is missing: name the file with the password or token of user %s", v.GitUsername)
		}
	}
	return v.MakeSecrets(f.read, time.Now())
}

// printPublicKey says what to do with the public half of the deploy key.
func printPublicKey(out io.Writer, v install.Variant, public string) {
	fmt.Fprintf(out, `The agent reads %s with this deploy key. Add it there:
  GitHub: Settings, Deploy keys; GitLab: Settings, Repository, Deploy keys; Gitea: Settings, Deploy Keys.
  It needs write access only for event watchers, which push commits.

%s

`, git.ShownRemote(v.Repo), public)
}
