package app

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestExamplesAreDeployed deploys every application below examples/apps as a
// reader would who copies the folder.
func TestExamplesAreDeployed(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	cluster.InstallGatewayAPI(t)
	cluster.InstallIstio(t)
	ns, client := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	agent := runReloading(t, spec{
		dataDir: t.TempDir(), repositories: map[string]string{"apps": repo.Dir}, providers: map[string]string{"local": cluster.Kubeconfig()},
		more: exampleKeys(t),
	}, time.Hour)
	files, apps := exampleApps(t, ns)
	for _, app := range []string{"analysis", "approval", "bluegreen", "canary", "helm", "httproute", "istio", "kustomize", "multi", "preview", "script-run", "secret", "self-heal", "simple", "sops"} {
		if !strings.Contains(fmt.Sprint(apps), app) {
			t.Errorf("there is no application %s in %v", app, apps)
		}
	}
	commit := repo.Push(t, "the examples", files)
	for _, app := range apps {
		agent.mustEnd(appID(app), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}

	for name, want := range map[string]string{"secret": "example-password", "sops": "example-password-of-sops"} {
		secret, err := client.CoreV1().Secrets(ns).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || string(secret.Data["password"]) != want {
			t.Errorf("the live Secret %s holds %q, %v", name, secret.Data["password"], err)
		}
	}
	config, err := client.CoreV1().ConfigMaps(ns).Get(t.Context(), "secret", metav1.GetOptions{})
	if err != nil || config.Data["settings.ini"] != files["secret/files/settings.ini"] {
		t.Errorf("the live ConfigMap holds %q, %v", config.Data["settings.ini"], err)
	}
}

// exampleKeys configures an agent with the keys of the examples' secrets.
func exampleKeys(t *testing.T) string {
	t.Helper()
	keys, err := filepath.Abs("../../examples/keys")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("  secretManagement: {type: KEY_PAIR, config: {privateKeyFile: %[1]s/example-only.private.pem, publicKeyFile: %[1]s/example-only.public.pem}}\n"+
		"  sops: {ageIdentityFile: %[1]s/example-only.age.txt}\n", keys)
}

// The progress deadline of the examples, and one with which their rollouts are waited for as long as
// for anything else.
var (
	exampleDeadline = "progressDeadlineSeconds: 15\n"
	patientDeadline = fmt.Sprintf("progressDeadlineSeconds: %d\n", int(patience.Seconds()))
)

// exampleApps is examplesIn for examples/apps, with a progress deadline for a busy machine.
func exampleApps(t *testing.T, namespace string) (files map[string]string, apps []string) {
	t.Helper()
	files, apps = examplesIn(t, "apps", namespace)
	found := false
	for name, text := range files {
		found = found || strings.Contains(text, exampleDeadline)
		files[name] = strings.ReplaceAll(text, exampleDeadline, patientDeadline)
	}
	if !found {
		t.Fatalf("no example has %q any more", exampleDeadline)
	}
	return files, apps
}

// examplesIn returns the files below a folder of examples, with the namespace demo
// replaced, and the directories of the applications.
func examplesIn(t *testing.T, folder, namespace string) (files map[string]string, apps []string) {
	t.Helper()
	files = map[string]string{}
	root := os.DirFS("../../examples/" + folder)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(root, name)
		files[name] = strings.ReplaceAll(string(text), "namespace: demo\n", "namespace: "+namespace+"\n")
		if path.Base(name) == "app.pipecd.yaml" {
			apps = append(apps, path.Dir(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, apps
}
