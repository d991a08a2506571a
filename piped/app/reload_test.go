package app

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/certificate/certificatetest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestBadConfigurationIsRefused: the reason is logged once, the previous configuration
// stays in effect, and a fixed file is applied.
func TestBadConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	good := spec{dataDir: t.TempDir(), repositories: map[string]string{"apps": repo.Dir}, providers: map[string]string{"local": cluster.Kubeconfig()}}
	agent := runReloading(t, good, 10*time.Millisecond)
	web := appID("web")
	agent.mustEnd(web, repo.Push(t, "add web", webApp(ns, "v1", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	for name, c := range map[string]struct {
		change func(*spec)
		want   []string
	}{
		"typo":          {func(s *spec) { s.more = "  limit: {deployments: 1}\n" }, []string{"limit", "limits"}},
		"no kubeconfig": {func(s *spec) { s.providers = map[string]string{"local": "/does/not/exist"} }, []string{"local", "/does/not/exist"}},
		"no key": {func(s *spec) {
			s.more = "  git: {sshKeyFile: /no/key}\n"
			s.repositories = map[string]string{"apps": "git@github.com:a/b"}
		}, []string{"/no/key", "apps"}},
		"no remote":    {func(s *spec) { s.repositories = map[string]string{"apps": "ftp://host/x"} }, []string{"ftp", "apps"}},
		"empty secret": {func(s *spec) { s.more = "  webhooks: [{name: hook, type: GITHUB, secretFile: /no/secret}]\n" }, []string{"hook", "/no/secret"}},
		"no certificate": {func(s *spec) {
			s.more = "  api: {address: \"127.0.0.1:0\", tlsCertFile: /no/cert, tlsKeyFile: /no/key}\n"
		}, []string{"/no/cert"}},
		"not even YAML": {func(s *spec) { s.more = "  }{\n" }, []string{"piped.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			c.change(&bad)
			agent.write(bad, append(c.want, "is rejected, the former one stays")...)
			agent.write(good, "the configuration is the one in effect again")
			if strings.Contains(agent.log.String(), "is rejected") {
				t.Errorf("logged twice:\n%s", agent.log)
			}
		})
	}

	replaceFile(t, agent.path, "kind: [")
	agent.awaitLog("is rejected")
	agent.mustEnd(web, repo.Push(t, "web v2", webApp(ns, "v2", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if err := os.Remove(agent.path); err != nil {
		t.Fatal(err)
	}
	agent.awaitLog("is rejected", "no such file")
	fixed := good
	fixed.more = "  limits: {deployments: 3}\n"
	agent.write(fixed, inEffect, "changed=limits")
	if got := agent.app.live.Limits().Deployments; got != 3 {
		t.Errorf("limit %d, want 3", got)
	}
}

// TestRepositoriesComeAndGo: applications of an added repository are deployed; those of a
// removed one stay known and are no longer synced.
func TestRepositoriesComeAndGo(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	first, second := newRepo(t), newRepo(t)
	s := spec{dataDir: t.TempDir(), repositories: map[string]string{"others": first.Dir}, providers: map[string]string{"local": cluster.Kubeconfig()}}
	agent := runReloading(t, s, 10*time.Millisecond)
	commit := second.Push(t, "add web", webApp(ns, "v1", ""))

	s.repositories = map[string]string{"others": first.Dir, "apps": second.Dir}
	agent.write(s, inEffect, "changed=repositories")
	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	s.repositories = map[string]string{"others": first.Dir}
	agent.write(s, inEffect, "changed=repositories")
	c := agent.sync(appID("web"))
	if c.GetStatus() != modelv1.CommandStatus_COMMAND_FAILED {
		t.Errorf("sync of an application whose repository was removed: %v", c)
	}
	mustContain(t, c.GetMetadata()["Reason"], "apps", "not in the agent's configuration")

	third := newRepo(t)
	s.repositories = map[string]string{"others": first.Dir, "apps": third.Dir}
	commit = third.Push(t, "web elsewhere", webApp(ns, "v2", ""))
	agent.write(s, inEffect)
	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
}

// TestRunningStageSurvivesTheReplacementOfItsCluster: while a stage waits for a rollout,
// its provider's kubeconfig is replaced and then the provider is removed.
func TestRunningStageSurvivesTheReplacementOfItsCluster(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	data, err := os.ReadFile(cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	replaceFile(t, kubeconfig, string(data))
	s := spec{dataDir: t.TempDir(), repositories: map[string]string{"apps": repo.Dir}, providers: map[string]string{"local": kubeconfig}}
	agent := runReloading(t, s, 10*time.Millisecond)
	rollOut := func(image string) string {
		t.Helper()
		commit := repo.Push(t, "web "+image, webApp(ns, image, `devcluster.piped.dev/ready-delay: "3s"`))
		agent.await(appID("web"), "rolls out", func(d *modelv1.Deployment) bool {
			return d.GetTrigger().GetCommit().GetHash() == commit && strings.Contains(agent.logs(d.GetId()), "applied Deployment")
		})
		return commit
	}

	commit := rollOut("v1")
	replaceFile(t, kubeconfig, string(data)+"\n# rotated\n")
	agent.awaitLog(inEffect, "changed=platformProviders")
	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	commit = rollOut("does-not-exist")
	s.providers = map[string]string{"other": kubeconfig}
	agent.write(s, inEffect, "changed=platformProviders")
	d := agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustContain(t, d.GetStatusReason(), "does-not-exist", "rolled back to commit")
	for end := time.Now().Add(patience); agent.app.live.clusters.anyRemoved(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the removed provider's connection stays open although no stage uses it")
		}
	}

	commit = repo.Push(t, "web v3", webApp(ns, "v3", "")) // the only provider is now another one
	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
}

// TestMirrorsAreTriedAgain: a mirror is retried once its obstacle is gone, without a
// change of the configuration.
func TestMirrorsAreTriedAgain(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	s := spec{dataDir: t.TempDir(), repositories: map[string]string{"apps": repo.Dir}, providers: map[string]string{"local": cluster.Kubeconfig()}}
	obstacle := filepath.Join(s.dataDir, "git")
	replaceFile(t, obstacle, "a file where the directory of the mirrors belongs")
	agent := runReloading(t, s, 10*time.Millisecond)
	agent.awaitLog("retried; everything else works", "not a directory")
	commit := repo.Push(t, "add web", webApp(ns, "v1", ""))
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	agent.awaitLog(inEffect, "changed=repositories")
	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
}

// TestReloadsLeaveNothingBehind: the watches of replaced clusters end, and so do the
// connections to removed remotes.
func TestReloadsLeaveNothingBehind(t *testing.T) {
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	server := repo.HTTP(t, gittest.HTTPOptions{})
	data, err := os.ReadFile(cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	replaceFile(t, kubeconfig, string(data))
	s := spec{dataDir: t.TempDir(), repositories: map[string]string{"apps": server.URL}, providers: map[string]string{"local": kubeconfig}}
	agent := runReloading(t, s, 10*time.Millisecond)
	var first int
	const rounds = 5
	for round := range rounds {
		commit := repo.Push(t, "web", webApp(ns, fmt.Sprintf("v%d", round), ""))
		agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
		if round == 0 {
			agent.awaitSyncState(appID("web"), modelv1.ApplicationSyncStatus_SYNCED) // the applied objects are watched
			first = runtime.NumGoroutine()
		}
		replaceFile(t, kubeconfig, fmt.Sprintf("%s\n# rotation %d\n", data, round))
		agent.awaitLog("changed=platformProviders", "a replaced or removed connection has ended")
		s.more = fmt.Sprintf("  git: {username: user%d}\n", round)
		agent.write(s, `changed="repositories, git.username and git.email"`)
	}
	last := 0
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if last = runtime.NumGoroutine(); last < first+rounds {
			return
		}
	}
	t.Errorf("%d goroutines after the first deployment, %d after %d reloads", first, last, 2*rounds)
}

// TestKeyFileIsRotated replaces the SSH key in the way Kubernetes updates the files of a
// Secret: by a symlink to another directory.
func TestKeyFileIsRotated(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	oldKey, _, err := gittest.NewUserKey()
	if err != nil {
		t.Fatal(err)
	}
	newKey, authorized, err := gittest.NewUserKey()
	if err != nil {
		t.Fatal(err)
	}
	server := repo.SSH(t, gittest.SSHOptions{AuthorizedKey: authorized})
	secret := t.TempDir()
	mount := func(version string, key []byte) {
		t.Helper()
		dir := filepath.Join(secret, version)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		replaceFile(t, filepath.Join(dir, "key"), string(key))
		if err := os.Symlink(version, filepath.Join(secret, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(secret, "..tmp"), filepath.Join(secret, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	mount("one", oldKey)
	if err := os.Symlink(filepath.Join("..data", "key"), filepath.Join(secret, "key")); err != nil {
		t.Fatal(err)
	}
	agent := runReloading(t, spec{
		dataDir: t.TempDir(), repositories: map[string]string{"apps": server.URL}, providers: map[string]string{"local": cluster.Kubeconfig()},
		more: fmt.Sprintf("  git: {host: 127.0.0.1, sshKeyFile: %s, knownHostsFile: %s}\n", filepath.Join(secret, "key"), server.KnownHostsFile(t)),
	}, 10*time.Millisecond)
	commit := repo.Push(t, "add web", webApp(ns, "v1", ""))
	agent.awaitLog("cannot follow the repository")
	mount("two", newKey)
	agent.awaitLog(inEffect, "changed=repositories")
	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
}

// TestUnusableRepositoriesAreRetried: at the start one repository lacks its key and the
// mirror of another cannot be created. The agent must run, log the reasons, deploy from
// the working repository, and use the missing key once it exists.
func TestUnusableRepositoriesAreRetried(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo, sound := newRepo(t), newRepo(t)
	private, public, err := gittest.NewUserKey()
	if err != nil {
		t.Fatal(err)
	}
	server := repo.SSH(t, gittest.SSHOptions{AuthorizedKey: public})
	key := filepath.Join(t.TempDir(), "key")
	tooLong := strings.Repeat("x", 300) // longer than the name of a directory may be
	agent := runReloading(t, spec{
		dataDir:      t.TempDir(),
		repositories: map[string]string{"apps": server.URL, "sound": sound.Dir, tooLong: sound.Dir},
		providers:    map[string]string{"local": cluster.Kubeconfig()},
		more:         fmt.Sprintf("  git: {host: 127.0.0.1, sshKeyFile: %s, knownHostsFile: %s}\n", key, server.KnownHostsFile(t)),
	}, 10*time.Millisecond)
	agent.awaitLog("retried; everything else works", key, tooLong, "file name too long")
	other := deploy.ApplicationID(deploy.GitPath{RepoID: "sound", Dir: "web", ConfigFile: "app.pipecd.yaml"})
	agent.mustEnd(other, sound.Push(t, "add web", webApp(ns, "v1", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	files := webApp(cluster.Namespace(t), "v1", "")
	commit := repo.Push(t, "add web", files)
	replaceFile(t, key, string(private))
	agent.awaitLog(inEffect, "changed=repositories")
	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
}

// TestCertificateIsRotated: the API presents the new certificate to new connections.
func TestCertificateIsRotated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := certificatetest.Write(t, dir)
	agent := runReloading(t, spec{
		dataDir: t.TempDir(), more: fmt.Sprintf("  api: {address: \"127.0.0.1:0\", tlsCertFile: %s, tlsKeyFile: %s}\n", cert, key),
	}, 10*time.Millisecond)
	shown := func() string {
		t.Helper()
		conn, err := tls.Dial("tcp", agent.app.APIAddr(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return string(conn.ConnectionState().PeerCertificates[0].Raw)
	}
	mustShow := func(pair tls.Certificate) {
		t.Helper()
		if parsed, err := x509.ParseCertificate(pair.Certificate[0]); err != nil || shown() != string(parsed.Raw) {
			t.Errorf("another certificate is presented: %v", err)
		}
	}
	load := func() tls.Certificate {
		t.Helper()
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	mustShow(load())
	certificatetest.Write(t, dir)
	agent.awaitLog("changed=\"api certificate\"")
	mustShow(load())
}

// TestSignalReloadsAtOnce: a signal reloads without a second poll.
func TestSignalReloadsAtOnce(t *testing.T) {
	t.Parallel()
	s := spec{dataDir: t.TempDir()}
	agent := runReloading(t, s, time.Hour)
	s.more = "  limits: {deployments: 2, perCluster: 1}\n  retention: {keepPerApplication: 3}\n"
	replaceFile(t, agent.path, s.text(t.Name()))
	agent.signal <- syscall.SIGHUP
	agent.awaitLog("reloading the configuration after a signal", inEffect, "changed=\"limits, retention\"")
	if got := agent.app.live.Retention().KeepPerApplication; got != 3 {
		t.Errorf("%d deployments of each application are retained, want 3", got)
	}
}

// TestHalfWrittenFileIsLeftAlone: a file that differs between two polls is not applied.
func TestHalfWrittenFileIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := spec{dataDir: t.TempDir()}
	agent := runReloading(t, s, time.Hour)
	cfg, _, err := Kinds().LoadPiped(agent.path)
	if err != nil {
		t.Fatal(err)
	}
	own := &logText{} // the log of this reloader only: the agent also writes its own
	r := newReloader(agent.path, cfg, agent.app.live, nil, Options{Logger: slog.New(slog.NewTextHandler(own, nil))}.withDefaults())
	poll := func(text, want string) {
		t.Helper()
		if text != "" {
			replaceFile(t, agent.path, text)
		}
		own.Reset()
		r.poll(t.Context())
		if log := own.String(); want == "" && log != "" || !strings.Contains(log, want) {
			t.Errorf("after a poll the log is %q, want %q", log, want)
		}
	}
	s.more = "  limits: {deployments: 3}\n"
	poll(s.text(t.Name())[:len(s.text(t.Name()))-10], "")
	poll(s.text(t.Name()), "")
	poll("", inEffect)
	poll("", "")
	poll("kind: {", "")
	poll("", "is rejected")
	poll("", "")
}

// TestWhatNeedsARestartIsNamed: the log names the fields that need a restart; all other
// changes are in effect.
func TestWhatNeedsARestartIsNamed(t *testing.T) {
	t.Parallel()
	s := spec{dataDir: t.TempDir()}
	agent := runReloading(t, s, 10*time.Millisecond)
	s.dataDir = t.TempDir()
	s.more = "  api: {address: \"127.0.0.1:1\"}\n  syncInterval: 1h\n"
	agent.write(s, "dataDir, store.dsn", "api.address", inEffect, "changed=syncInterval")
	if strings.Contains(agent.log.String(), "web.address") {
		t.Errorf("a field that did not change is named:\n%s", agent.log)
	}
}
