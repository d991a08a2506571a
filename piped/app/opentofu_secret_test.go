package app

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/source/secret"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestOpenTofuSecrets: what was encrypted in Git is known to the run and to nothing else: neither the
// agent's files, its API nor its page have it, also where OpenTofu does not know that it is secret.
func TestOpenTofuSecrets(t *testing.T) {
	t.Parallel()
	const known, unknown = "hunter2-of-a-sensitive-variable", "hunter2-of-a-plain-variable"
	i, own := newInfra(t), ageIdentity(t)
	keys, err := secret.Age(strict.NewSecret(own.String()), own.Recipient().String())
	if err != nil {
		t.Fatal(err)
	}
	sealed := func(text string) string {
		out, err := keys.Encrypt([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(strings.TrimSpace(out), "\n", "\n        ")
	}
	identity := filepath.Join(t.TempDir(), "identity")
	replaceFile(t, identity, own.String())
	commit := i.repo.Push(t, "add", map[string]string{
		"net/app.pipecd.yaml":    i.app(fmt.Sprintf("  encryption:\n    decryptionTargets: [values.auto.tfvars]\n    encryptedSecrets:\n      known: |\n        %s\n      unknown: |\n        %s\n", sealed(known), sealed(unknown))),
		"net/values.auto.tfvars": "known = \"{{ .encryptedSecrets.known }}\"\nunknown = \"{{ .encryptedSecrets.unknown }}\"\n",
		"net/main.tf": i.code("variable \"known\" {\n  sensitive = true\n}\nvariable \"unknown\" {}\n" +
			fmt.Sprintf("resource \"sample_file\" \"a\" {\n  path = %q\n  content = var.unknown\n  secret = var.known\n}\n", i.file("a")) +
			"output \"known\" {\n  value = var.known\n  sensitive = true\n}\noutput \"unknown\" {\n  value = \"is ${var.unknown}\"\n}\n"),
	})
	i.s = settings{more: fmt.Sprintf("  secretManagement: {type: AGE, config: {identityFile: %q, recipient: %s}}\n", identity, own.Recipient())}
	i.start()
	app := appID("net")
	d := i.c.mustEnd(app, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	i.holds("a", unknown) // so the run has had both
	if state, err := os.ReadFile(i.file("state.tfstate")); err != nil || !bytes.Contains(state, []byte(known)) {
		t.Errorf("the state does not have the sensitive value: %v", err)
	}
	if err := os.WriteFile(i.file("a"), []byte("edited"), 0o600); err != nil {
		t.Fatal(err)
	}
	said := map[string]string{"the drift report": i.drift(app).String(), "the log": i.c.logs(d.GetId()), "the deployment": i.c.get(d.GetId()).String()}
	plan, err := i.c.control.GetPlan(i.c.ctx, &controlv1.GetPlanRequest{DeploymentId: d.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	live, err := i.c.control.GetLiveState(i.c.ctx, &controlv1.GetLiveStateRequest{ApplicationId: app, Children: true})
	if err != nil {
		t.Fatal(err)
	}
	said["the plan"], said["the live state"] = plan.String(), live.String()
	b := i.browse()
	for _, path := range []string{"/deployments/" + d.GetId(), "/deployments/" + d.GetId() + "?tab=plan", "/applications/" + app, "/applications/" + app + "?tab=drift"} {
		said["the page "+path] = b.seen(path)
	}
	if !strings.Contains(said["the drift report"], "edited") || !strings.Contains(said["the log"], "sample_file.a will be created") {
		t.Errorf("there is nothing to look for secrets in: %v", said)
	}
	err = filepath.WalkDir(i.s.dataDir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			var data []byte
			data, err = os.ReadFile(name)
			said[name] = string(data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range said {
		for _, value := range []string{known, unknown} {
			if strings.Contains(text, value) {
				t.Errorf("%s has the secret %q", where, value)
			}
		}
	}
}
