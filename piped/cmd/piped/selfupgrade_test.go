package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/pipectl"
)

// TestTheAgentUpgradesItself: an agent with exactly the installed account and configuration takes
// over its own installation from the chart in its repository, and upgrades it by a commit. It is
// killed when the cluster has the new image, as it is replaced then, and the next one ends the
// deployment.
func TestTheAgentUpgradesItself(t *testing.T) {
	i := newInstalling(t)
	i.volume("piped")
	i.install(0, "--ssh-key-file", i.keyFile)
	config := i.installedConfiguration()
	if err := i.git.CopyDir(os.DirFS("../../../examples/install/chart"), "piped/chart"); err != nil {
		t.Fatal(err)
	}
	push := func(image string) {
		i.git.Push(t, "piped "+image, map[string]string{"piped/app.pipecd.yaml": `apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: piped
  input:
    namespace: piped
    helmChart: {path: chart}
    helmOptions:
      setValues: {permissions: "false", repo: "` + i.repo + `", image: "` + image + `"}
`})
	}
	pod := i.pod()
	push("registry.example/piped:v1")
	agent, address := start(t, config)
	i.awaitDeployments(address, "piped", 1)
	if taken := i.pod(); taken != pod {
		t.Errorf("the pod %s was replaced by %s when the installation was taken over", pod, taken)
	}

	push("registry.example/piped:v2")
	clustertest.Eventually(t, "the new image is in the cluster", func() bool { return i.image() == "registry.example/piped:v2" })
	agent.signal(os.Kill)
	agent.wait()
	_, address = start(t, config)
	i.awaitDeployments(address, "piped", 2)
	i.contains(i.piped(0, "install", "check"), "1 of 1 replicas answer", "rights   ServiceAccount piped/piped has the ")
	i.contains(i.install(1), "is managed by Helm: change it there")
}

// installedConfiguration returns a file with the configuration of the installation, for an agent on
// this machine that acts as the installation's account.
func (i *installing) installedConfiguration() string {
	i.Helper()
	hour, dir := int64(3600), i.TempDir()
	token, err := i.client.CoreV1().ServiceAccounts("piped").CreateToken(i.Context(), "piped",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
	if err != nil {
		i.Fatal(err)
	}
	access, err := clientcmd.LoadFromFile(i.cluster.Kubeconfig())
	if err != nil {
		i.Fatal(err)
	}
	for name := range access.AuthInfos {
		access.AuthInfos[name] = &api.AuthInfo{Token: token.Status.Token}
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*access, kubeconfig); err != nil {
		i.Fatal(err)
	}
	for _, name := range []string{"piped-git", "piped-store", "piped-tls"} {
		i.writeSecret(name, dir)
	}
	m, err := i.client.CoreV1().ConfigMaps("piped").Get(i.Context(), "piped", metav1.GetOptions{})
	if err != nil {
		i.Fatal(err)
	}
	text := strings.NewReplacer("/var/lib/piped", filepath.Join(dir, "data"), "/etc/piped-", dir+"/piped-", "0.0.0.0:9085", "127.0.0.1:0", "0.0.0.0:9083", "127.0.0.1:0",
		"type: KUBERNETES", "type: KUBERNETES\n      config: {kubeConfigPath: "+kubeconfig+"}").Replace(m.Data["piped.yaml"])
	i.Setenv("PIPECTL_API_KEY_FILE", filepath.Join(dir, "data", "owner.key"))
	if strings.Contains(text, "\n  api:\n") {
		i.Setenv("PIPECTL_INSECURE", "false")
		i.Setenv("PIPECTL_CERT_FILE", filepath.Join(dir, "piped-tls", "tls.crt"))
	} else {
		text += "  api: {address: 127.0.0.1:0}\n"
		i.Setenv("PIPECTL_INSECURE", "true")
	}
	file := filepath.Join(dir, "piped.yaml")
	if err := os.WriteFile(file, []byte(text+"  syncInterval: 500ms\n"), 0o600); err != nil {
		i.Fatal(err)
	}
	return file
}

// writeSecret writes a Secret of the installation to files, as it is mounted in pods. One that does
// not exist has none.
func (i *installing) writeSecret(name, dir string) {
	i.Helper()
	secret, err := i.client.CoreV1().Secrets("piped").Get(i.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	if err != nil {
		i.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
		i.Fatal(err)
	}
	for key, data := range secret.Data {
		if err := os.WriteFile(filepath.Join(dir, name, key), data, 0o600); err != nil {
			i.Fatal(err)
		}
	}
}

// awaitDeployments waits until so many deployments of an application have succeeded, and fails if one
// does not.
func (i *installing) awaitDeployments(address, app string, n int) {
	i.Helper()
	clustertest.Eventually(i, "the deployment succeeds", func() bool {
		if failed := i.deployments(address, app, "DEPLOYMENT_FAILURE,DEPLOYMENT_CANCELLED"); len(failed) > 0 {
			i.Fatalf("the deployment failed: %q", failed)
		}
		return len(i.deployments(address, app, "DEPLOYMENT_SUCCESS")) == n
	})
}

// deployments returns the reasons of the states of an application's deployments with some statuses.
func (i *installing) deployments(address, app, statuses string) (reasons []string) {
	i.Helper()
	var stdout, stderr bytes.Buffer
	address = strings.Replace(address, "127.0.0.1", "localhost", 1) // a name of the certificate
	if code := pipectl.Run(i.Context(), []string{"deployment", "list", "--address", address, "--app-name", app, "--status", statuses, "-o", "json"}, nil, &stdout, &stderr); code != 0 {
		i.Fatalf("pipectl: %s", stderr.String())
	}
	var list struct {
		Deployments []struct {
			Reason string `json:"status_reason"`
		}
	}
	if err := json.Unmarshal(stdout.Bytes(), &list); err != nil {
		i.Fatalf("%v in %s", err, stdout.String())
	}
	for _, d := range list.Deployments {
		reasons = append(reasons, d.Reason)
	}
	return reasons
}

// pod returns the name of the agent's only pod.
func (i *installing) pod() string {
	i.Helper()
	pods, err := i.client.CoreV1().Pods("piped").List(i.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 {
		i.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	return pods.Items[0].Name
}

// image returns that of the agent's Deployment.
func (i *installing) image() string {
	i.Helper()
	d, err := i.client.AppsV1().Deployments("piped").Get(i.Context(), "piped", metav1.GetOptions{})
	if err != nil {
		i.Fatal(err)
	}
	return d.Spec.Template.Spec.Containers[0].Image
}
