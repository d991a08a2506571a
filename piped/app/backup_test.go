package app

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store/storetest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// loaded returns the configuration of an agent.
func (s settings) loaded(t *testing.T) *config.Piped {
	t.Helper()
	cfg, _, err := Kinds().LoadPiped(s.configFile(t))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestRestoreOfAnOutdatedBackup: a backup is made while a deployment runs. That
// deployment ends, another one follows, and then all data is lost. The agent that starts
// from the backup must end the running deployment once, reach Git's state, and recognize
// its own objects.
func TestRestoreOfAnOutdatedBackup(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, kube := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	lost := settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()}
	agent, stop := runAgentUntil(t, lost)
	web := appID("web")
	agent.mustEnd(web, repo.Push(t, "add web", webApp(ns, "v1", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	second := repo.Push(t, "slow to become ready", heldApp("web", webApp(ns, "v2", "")))
	agent.await(web, "rolls out", func(d *modelv1.Deployment) bool {
		return d.GetTrigger().GetCommit().GetHash() == second && strings.Contains(agent.logs(d.GetId()), "applied Deployment")
	})
	var archive bytes.Buffer
	if _, err := Backup(t.Context(), lost.loaded(t), "test", time.Now(), &archive); err != nil {
		t.Fatal(err)
	}
	agent.letPodsBeReady(kube, ns, web, second)
	agent.mustEnd(web, second, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	files := webApp(ns, "v3", "")
	files["web/app.pipecd.yaml"] += "  quickSync: {prune: true}\n"
	files["web/more.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\n"
	third := repo.Push(t, "another version, and one more object", files)
	agent.mustEnd(web, third, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	stop()

	found := lost
	found.dataDir = t.TempDir()
	if _, err := Restore(t.Context(), found.loaded(t), bytes.NewReader(archive.Bytes())); err != nil {
		t.Fatal(err)
	}
	agent = runAgent(t, found)
	agent.letPodsBeReady(kube, ns, web, second)
	mustHaveEndedOnce(t, agent.mustEnd(web, second, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS))
	agent.mustEnd(web, third, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if n := len(agent.deployments(web)); n != 3 {
		t.Errorf("%d deployments, want 3: none may be made twice", n)
	}
	live, err := kube.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := live.Spec.Template.Spec.Containers[0].Image; got != "registry.example/web:v3" {
		t.Errorf("after the restore image %s is live", got)
	}
	if err := repo.Remove("web/more.yaml"); err != nil {
		t.Fatal(err)
	}
	fourth := repo.Push(t, "one object less", nil)
	agent.mustEnd(web, fourth, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if _, err := kube.CoreV1().ConfigMaps(ns).Get(t.Context(), "more", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the object applied after the backup and then removed from Git: %v", err)
	}
}

// TestBackupAndRestoreRefuse: a backup or restore that would mix two agents, or belongs
// to another agent, is refused.
func TestBackupAndRestoreRefuse(t *testing.T) {
	t.Parallel()
	source := settings{dataDir: t.TempDir(), remote: newRepo(t).Dir, providers: "[]"}
	cfg := source.loaded(t)
	if _, err := Backup(t.Context(), cfg, "test", time.Now(), &bytes.Buffer{}); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("a backup where no agent has run: %v", err)
	}
	_, stop := runAgentUntil(t, source)
	var archive bytes.Buffer
	written, err := Backup(t.Context(), cfg, "v7", time.Now(), &archive)
	if err != nil || len(written.Files) != 2 || written.Rows["api_keys"] != 1 {
		t.Fatalf("backed up %+v, %v", written, err)
	}
	restore := func(cfg *config.Piped) error {
		_, err := Restore(t.Context(), cfg, bytes.NewReader(archive.Bytes()))
		return err
	}
	if err := restore(cfg); err == nil || !strings.Contains(err.Error(), "another agent uses the data directory") {
		t.Errorf("where an agent runs: %v", err)
	}
	stop()
	if err := restore(cfg); !deploy.IsKind(err, deploy.Exists) {
		t.Errorf("where an agent has run: %v", err)
	}
	if err := os.Remove(filepath.Join(source.dataDir, ownerKeyFile)); err != nil {
		t.Fatal(err)
	}
	archive.Reset()
	if written, err := Backup(t.Context(), cfg, "v7", time.Now(), &archive); err != nil || len(written.Files) != 1 {
		t.Errorf("without the owner's key: %+v, %v", written, err)
	}

	other := source
	other.dataDir, other.dsn = t.TempDir(), storetest.SQLite(t)
	cfg = other.loaded(t)
	key := filepath.Join(other.dataDir, storeKeyFile)
	if err := os.WriteFile(key, []byte("of another store"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := restore(cfg); !deploy.IsKind(err, deploy.Exists) || !strings.Contains(err.Error(), key+" is not that of the backup") {
		t.Errorf("where the key of another store is: %v", err)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if err := restore(cfg); err != nil {
		t.Fatal(err)
	}
	same, err := os.ReadFile(key)
	if want, _ := os.ReadFile(filepath.Join(source.dataDir, storeKeyFile)); err != nil || !bytes.Equal(same, want) {
		t.Errorf("the key is another one (%v)", err)
	}
	info, err := os.Stat(key)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %s, %v", info.Mode(), err)
	}
	st := storetest.Open(t, other.dsn, nil)
	if keys, err := st.APIKeys(t.Context()); err != nil || len(keys) != 1 {
		t.Errorf("keys: %v, %v", keys, err)
	}
}

// TestStoreKeyFile: the key in store.keyFile is the one of the store, as bytes or in base64. A
// backup contains it, and is restored only where the same key is.
func TestStoreKeyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, data []byte) (path string) {
		path = filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := bytes.Repeat([]byte{0xfe}, storeKeySize)
	raw, text := write("raw", key), write("text", []byte(base64.StdEncoding.EncodeToString(key)+"\n"))
	with := func(keyFile string) settings {
		return settings{dataDir: t.TempDir(), remote: newRepo(t).Dir, providers: "[]", more: fmt.Sprintf("  store: {keyFile: %q}\n", keyFile)}
	}
	for file, want := range map[string]string{
		filepath.Join(dir, "none"): "no such file", write("short", key[1:]): "must hold 32 bytes, as such or in base64, it holds 31: write one with `openssl rand -base64 32`",
	} {
		if _, err := New(t.Context(), with(file).loaded(t), Options{Logger: testLogger(t)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
	source := with(text)
	_, stop := runAgentUntil(t, source)
	var archive bytes.Buffer
	if _, err := Backup(t.Context(), source.loaded(t), "test", time.Now(), &archive); err != nil {
		t.Fatal(err)
	}
	stop()
	other := with(write("other", bytes.Repeat([]byte{1}, storeKeySize)))
	if _, err := Restore(t.Context(), other.loaded(t), bytes.NewReader(archive.Bytes())); !deploy.IsKind(err, deploy.Exists) {
		t.Errorf("restored with another key: %v", err)
	}
	same := with(raw)
	if _, err := Restore(t.Context(), same.loaded(t), bytes.NewReader(archive.Bytes())); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(same.dataDir, storeKeyFile)); !os.IsNotExist(err) {
		t.Errorf("the data directory has a key, too: %v", err)
	}
	runAgent(t, same)
}
