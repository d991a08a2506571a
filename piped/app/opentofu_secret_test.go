package app

import (
	"archive/tar"
	"compress/gzip"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/source/secret"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// place is where a secret may leak: its texts by their names, and what at least one of them has, so
// that the place is known to be searched.
type place struct {
	texts map[string]string
	has   string
}

// spellings returns a text as it is, and what it becomes in base64 wherever it begins.
func spellings(text string) []string {
	out := []string{text}
	for before := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + text))
		out = append(out, encoded[[]int{0, 2, 3}[before]:(before+len(text))*8/6])
	}
	return out
}

// rowsOf returns the text of each table of a database, all columns of all rows.
func rowsOf(t *testing.T, file string) map[string]string {
	t.Helper()
	db, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	query := func(statement string, each func(row []any)) {
		t.Helper()
		rows, err := db.Query(statement)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		columns, err := rows.Columns()
		for err == nil && rows.Next() {
			row, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range row {
				into[i] = &row[i]
			}
			err = rows.Scan(into...)
			each(row)
		}
		if err := errors.Join(err, rows.Err()); err != nil {
			t.Fatal(err)
		}
	}
	out := map[string]string{}
	query("SELECT name FROM sqlite_master WHERE type = 'table'", func(row []any) { out[fmt.Sprint(row[0])] = "" })
	for table := range out {
		query(fmt.Sprintf("SELECT * FROM %q", table), func(row []any) {
			for _, value := range row {
				if data, ok := value.([]byte); ok {
					value = string(data)
				}
				out[table] += fmt.Sprint(value) + "\n"
			}
		})
	}
	return out
}

// membersOf returns the text of each member of a backup.
func membersOf(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for in := tar.NewReader(zipped); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(data)
	}
}

// textsBelow returns the text of each file below a directory, without those of runs, which know the
// secrets as long as they last.
func textsBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), "run-") {
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) { // the agent still works
			return nil
		}
		out[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestOpenTofuSecrets: secrets are known to the runs and to nothing else: what was encrypted in Git,
// also where OpenTofu does not know that it is secret, and sensitive attributes and outputs, also where
// Git does not have their values. They are not in the agent's files, the rows of its store, stage logs,
// its log, a backup, answers of the API, or pages. Each of these has a value that is not secret.
func TestOpenTofuSecrets(t *testing.T) {
	t.Parallel()
	const known, unknown, attribute, output, public = "hunter2-of-a-sensitive-variable", "hunter2-of-a-plain-variable", "hunter2-of-an-attribute", "hunter2-of-an-output", "not-a-secret"
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
	computed := func(text string) string { // the text itself is not in Git
		return `join("", ["` + strings.Join(strings.Split(text, ""), `", "`) + `"])`
	}
	identity := filepath.Join(t.TempDir(), "identity")
	replaceFile(t, identity, own.String())
	declared := "variable \"known\" {\n  sensitive = true\n}\nvariable \"unknown\" {}\n"
	resource := func(name, path, content, secret string) string {
		return fmt.Sprintf("resource \"sample_file\" %q {\n  path = %s\n  content = %s\n  secret = %s\n}\n", name, path, content, secret)
	}
	outputs := "output \"known\" {\n  value = var.known\n  sensitive = true\n}\noutput \"unknown\" {\n  value = \"is ${var.unknown}\"\n}\n" +
		"output \"hidden\" {\n  value = " + computed(output) + "\n  sensitive = true\n}\noutput \"public\" {\n  value = " + computed(public) + "\n}\n"
	made := declared + resource("a", fmt.Sprintf("%q", i.file("a")), "var.unknown", "var.known") + resource("b", fmt.Sprintf("%q", i.file("b")), computed(public), computed(attribute)) + outputs
	first := i.repo.Push(t, "add", map[string]string{
		"net/app.pipecd.yaml":    i.app(fmt.Sprintf("  encryption:\n    decryptionTargets: [values.auto.tfvars]\n    encryptedSecrets:\n      known: |\n        %s\n      unknown: |\n        %s\n", sealed(known), sealed(unknown))),
		"net/values.auto.tfvars": "known = \"{{ .encryptedSecrets.known }}\"\nunknown = \"{{ .encryptedSecrets.unknown }}\"\n",
		"net/main.tf":            i.code(made),
	})
	i.s.more = fmt.Sprintf("  secretManagement: {type: AGE, config: {identityFile: %q, recipient: %s}}\n", identity, own.Recipient())
	p := i.process("--log-level", "debug", "--log-format", "json")
	app := appID("net")
	d := i.c.mustEnd(app, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	i.holds("a", unknown) // so the run has had it
	for _, value := range []string{known, attribute, output} {
		if state, err := os.ReadFile(i.file("state.tfstate")); err != nil || !strings.Contains(string(state), value) {
			t.Errorf("the state does not have %q: %v", value, err)
		}
	}
	for name, content := range map[string]string{"a": "edited", "b": public + "-edited"} {
		if err := os.WriteFile(i.file(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	report := i.drift(app).String()
	// The provider quotes the secret in its error.
	bad := i.repo.Push(t, "fail", map[string]string{"net/main.tf": i.code(made + resource("c", fmt.Sprintf("\"%s/${var.unknown}/${nonsensitive(var.known)}\"", i.file("none")), computed(public), "var.known"))})
	failed := i.c.mustEnd(app, bad, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustContain(t, failed.GetStatusReason(), "cannot write the file", "[redacted]")

	answers := map[string]string{"the drift report": report, "the deployment": i.c.get(d.GetId()).String(), "the failed deployment": failed.String(), "the application": i.c.application(app).String()}
	logs := map[string]string{"the first": i.c.logs(d.GetId()), "the failed one": i.c.logs(failed.GetId())}
	for _, id := range []string{d.GetId(), failed.GetId()} {
		plan, err := i.c.control.GetPlan(i.c.ctx, &controlv1.GetPlanRequest{DeploymentId: id, Diff: true})
		if err != nil {
			t.Fatal(err)
		}
		answers["the plan of "+id] = plan.String()
	}
	live, err := i.c.control.GetLiveState(i.c.ctx, &controlv1.GetLiveStateRequest{ApplicationId: app, Children: true})
	if err != nil {
		t.Fatal(err)
	}
	answers["the live state"] = live.String()
	b, pages := i.browse(), map[string]string{}
	for _, path := range []string{
		"/deployments/" + d.GetId() + "?stage=TerraformSync", "/deployments/" + d.GetId() + "?tab=plan", "/deployments/" + failed.GetId() + "?stage=TerraformSync", "/deployments/" + failed.GetId() + "?tab=plan",
		"/applications/" + app, "/applications/" + app + "?tab=objects", "/applications/" + app + "?tab=drift",
	} {
		pages[path] = b.seen(path)
	}
	archive := filepath.Join(t.TempDir(), "backup")
	if out, err := exec.Command(buildAgent(t), "backup", "--config", p.Config, archive).CombinedOutput(); err != nil {
		t.Fatalf("piped backup: %v\n%s", err, out)
	}
	mustHaveNoRun(t, p) // each run removes its files
	ownLog, err := os.ReadFile(p.LogFile)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(ownLog), `"level":"DEBUG"`) {
		t.Error("the agent's log has no lines of level debug")
	}
	for name, place := range map[string]place{
		"a file of the agent":  {textsBelow(t, i.s.dataDir), public},
		"the store":            {rowsOf(t, filepath.Join(i.s.dataDir, "piped.db")), public},
		"the backup":           {membersOf(t, archive), public},
		"a stage log":          {logs, public},
		"an answer of the API": {answers, public},
		"a page":               {pages, public},
		"the agent's log":      {map[string]string{p.LogFile: string(ownLog)}, failed.GetId()},
	} {
		found := false
		for in, text := range place.texts {
			found = found || strings.Contains(text, place.has)
			for _, value := range []string{known, unknown, attribute, output} {
				for _, spelling := range spellings(value) {
					if strings.Contains(text, spelling) {
						t.Errorf("%s (%s) has the secret %q, as %q", name, in, value, spelling)
					}
				}
			}
		}
		if !found {
			t.Errorf("%s does not have %q, so the search for secrets proves nothing", name, place.has)
		}
	}
}
