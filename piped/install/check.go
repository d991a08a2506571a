package install

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/git"
)

// Level is how much a finding matters.
type Level string

const (
	OK      Level = "ok"
	Warning Level = "warning" // it may work nevertheless
	Problem Level = "problem"
)

// Finding is one result of a check.
type Finding struct {
	Area  string // rights, storage, git, clock or agent
	Level Level
	Text  string
	Do    string // what to do; "" if there is nothing to do
}

// Expected is what an installation is checked with.
type Expected struct {
	// Variant is that of a coming installation, nil for the one in the cluster.
	Variant *Variant
	// Given are the user's secrets for a coming installation.
	Given Given
	// Parse reads a configuration of an agent.
	Parse func(text string) (*config.Piped, error)
}

// Installed reports whether an agent is installed.
func (i *Installer) Installed(ctx context.Context) (bool, error) {
	r, err := i.readiness(ctx)
	return r.installed, err
}

// CheckBefore checks what an installation needs: the user's rights, storage, access to Git, clocks.
// It changes nothing.
func (i *Installer) CheckBefore(ctx context.Context, e Expected) ([]Finding, error) {
	v := *e.Variant
	out, err := i.mayInstall(ctx, v)
	if err != nil {
		return nil, err
	}
	if v.Replicated {
		out = append(out, checkPostgres(ctx, v.Postgres, e.Given.Password))
	} else {
		found, err := i.checkClass(ctx, v)
		if err != nil {
			return nil, err
		}
		out = append(out, found)
	}
	shown := git.ShownRemote(v.Repo)
	switch {
	case v.SSH && e.Given.DeployKey == "":
		out = append(out, Finding{"git", Warning, "the deploy key is not made yet: access to " + shown + " cannot be checked", "check again after the installation"})
	case v.GitUsername != "" && e.Given.GitPassword == "":
		out = append(out, Finding{"git", Warning, "no password or token is given: access to " + shown + " cannot be checked", "give it with --git-password-file, or check again after the installation"})
	default:
		out = append(out, checkGit(ctx, v.Repo, v.Branch, gitAccess{e.Given.DeployKey, e.Given.KnownHosts, v.GitUsername, e.Given.GitPassword}))
	}
	return append(out, i.checkClock()), nil
}

// CheckAfter checks the installation in the cluster: the rights of the agent's account, its storage,
// its access to Git, clocks, and whether it answers. It changes nothing.
func (i *Installer) CheckAfter(ctx context.Context, e Expected) ([]Finding, error) {
	out, err := i.checkAccount(ctx)
	if err != nil {
		return nil, err
	}
	ready, err := i.readiness(ctx)
	if err != nil {
		return nil, err
	}
	cfg, problem, err := i.configuration(ctx, e.Parse)
	switch {
	case err != nil:
		return nil, err
	case problem != nil:
		out = append(out, *problem)
	default:
		more, err := i.checkConfigured(ctx, cfg, ready.ready)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	out = append(out, i.checkClock())
	if ready.ready {
		return append(out, Finding{"agent", OK, ready.text, ""}), nil
	}
	return append(out, Finding{"agent", Problem, ready.text, fmt.Sprintf("kubectl -n %s describe pods; kubectl -n %s logs deploy/piped", i.Namespace, i.Namespace)}), nil
}

// configuration reads the agent's configuration, or says what is wrong with it.
func (i *Installer) configuration(ctx context.Context, parse func(string) (*config.Piped, error)) (*config.Piped, *Finding, error) {
	var m *corev1.ConfigMap
	err := i.Cluster.Retry(ctx, nil, func(ctx context.Context) (err error) {
		m, err = i.Cluster.Typed().CoreV1().ConfigMaps(i.Namespace).Get(ctx, "piped", metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, &Finding{"agent", Problem, fmt.Sprintf("there is no ConfigMap %s/piped: the agent has no configuration", i.Namespace), "piped install --apply makes it"}, nil
	}
	if err != nil {
		return nil, nil, i.Cluster.Classify(err)
	}
	cfg, err := parse(m.Data["piped.yaml"])
	if err != nil {
		return nil, &Finding{"agent", Problem, fmt.Sprintf("the configuration in ConfigMap %s/piped is invalid: %v", i.Namespace, err), "correct it; the agent goes on with the one before"}, nil
	}
	return cfg, nil, nil
}

// checkConfigured checks the storage and the repositories of a configuration.
func (i *Installer) checkConfigured(ctx context.Context, cfg *config.Piped, ready bool) (out []Finding, err error) {
	if dsn := cfg.Store.DSN.Reveal(); isPostgres(dsn) {
		found, err := i.checkInstalledPostgres(ctx, dsn, ready)
		if err != nil {
			return nil, err
		}
		out = append(out, found)
	} else {
		found, err := i.checkClaim(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, found)
	}
	access := gitAccess{username: cfg.Git.Username, password: cfg.Git.Password.Reveal()}
	if cfg.Git.SSHKeyFile != "" || cfg.Git.PasswordFile != "" {
		s, err := i.getSecret(ctx, GitSecret)
		if err != nil {
			return nil, err
		}
		if s == nil {
			return append(out, Finding{"git", Problem, fmt.Sprintf("there is no Secret %s/%s: the pods cannot start", i.Namespace, GitSecret), "piped install --only secrets --apply makes it"}), nil
		}
		if cfg.Git.PasswordFile != "" {
			access.password = strings.TrimRight(string(s.Data[keyGitPassword]), "\r\n") // as the agent reads it
		} else {
			access.key, access.hosts = string(s.Data[keyDeploy]), string(s.Data[keyHosts])
		}
	}
	for _, r := range cfg.Repositories {
		with := access
		if host := hostOf(r.Remote); cfg.Git.Host != "" && host != cfg.Git.Host && host != cfg.Git.HostName {
			with.username, with.password = "", ""
		}
		out = append(out, checkGit(ctx, r.Remote, r.Branch, with))
	}
	return out, nil
}

// getSecret returns a secret of the agent's namespace, nil if it does not exist.
func (i *Installer) getSecret(ctx context.Context, name string) (s *corev1.Secret, err error) {
	err = i.Cluster.Retry(ctx, nil, func(ctx context.Context) (err error) {
		s, err = i.Cluster.Typed().CoreV1().Secrets(i.Namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", i.Namespace, name, i.Cluster.Classify(err))
	}
	return s, nil
}

// maxSkew is how far clocks may differ: leases and short-lived tokens bear this much.
const maxSkew = 10 * time.Second

// checkClock compares this machine's clock with the API server's, by the answers so far.
func (i *Installer) checkClock() Finding { return clockFinding(i.Cluster.Skew()) }

func clockFinding(skew time.Duration) Finding {
	if skew.Abs() <= maxSkew {
		return Finding{"clock", OK, "the API server's clock and this machine's agree", ""}
	}
	side := "ahead of"
	if skew < 0 {
		side = "behind"
	}
	return Finding{"clock", Problem, fmt.Sprintf("the API server's clock is %s %s this machine's", skew.Abs().Round(time.Second), side),
		"set both by NTP: tokens, leases and the windows of time in which deployments may start depend on it"}
}
