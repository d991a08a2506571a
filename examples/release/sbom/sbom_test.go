package sbom

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// buildProgram builds a small program with a module of others: that of a dependency. Test
// programs have no record of their modules.
func buildProgram(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "md2man")
	cmd := exec.Command("go", "build", "-o", file, "github.com/cpuguy83/go-md2man/v2")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// made returns the document about a program and certificates.
func made(t *testing.T, program string) map[string]any {
	t.Helper()
	text, err := Make(Options{
		Name: "piped_v1.2.0_linux_amd64", Version: "v1.2.0", Purpose: "ARCHIVE", Source: "git+https://git.example.com/piped@0123", Created: time.Unix(1795000000, 0),
		Programs: []string{program}, Data: []Data{{"example.com/certificates", "v0.1.0+x", true, "roots"}, {"zones", "2026a", false, "time"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var d map[string]any
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// The modules are those that the Go tool reads from the program.
func TestModulesAreThoseOfTheProgram(t *testing.T) {
	program := buildProgram(t)
	out, err := exec.Command("go", "version", "-m", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"pkg:golang/example.com/certificates@v0.1.0%2Bx"}
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); words[0] == "dep" {
			want = append(want, "pkg:golang/"+words[1]+"@"+strings.ReplaceAll(words[2], "+", "%2B"))
		} else if strings.HasPrefix(words[0], "/") {
			want = append(want, "pkg:golang/stdlib@"+strings.TrimPrefix(words[1], "go"))
		}
	}
	if len(want) < 3 {
		t.Fatalf("the program has too few modules for this test: %v", want)
	}
	var got []string
	for _, p := range made(t, program)["packages"].([]any) {
		if refs, ok := p.(map[string]any)["externalRefs"]; ok {
			got = append(got, refs.([]any)[0].(map[string]any)["referenceLocator"].(string))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("modules (-want +got):\n%s", diff)
	}
}

// The document has what SPDX 2.3 requires, and its relations name packages that it has.
func TestDocumentIsValid(t *testing.T) {
	program := buildProgram(t)
	d := made(t, program)
	for key, want := range map[string]string{
		"spdxVersion": "^SPDX-2.3$", "dataLicense": "^CC0-1.0$", "SPDXID": "^SPDXRef-DOCUMENT$", "name": "^piped_", "documentNamespace": "^https://[^#]+$",
	} {
		if got, _ := d[key].(string); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s is %q, want %s", key, got, want)
		}
	}
	creation := d["creationInfo"].(map[string]any)
	if creation["created"] != "2026-11-18T11:06:40Z" || len(creation["creators"].([]any)) == 0 {
		t.Errorf("creationInfo: %v", creation)
	}
	ids := map[string]bool{"SPDXRef-DOCUMENT": true}
	for _, p := range d["packages"].([]any) {
		p := p.(map[string]any)
		id := p["SPDXID"].(string)
		if ids[id] || !regexp.MustCompile(`^SPDXRef-[a-zA-Z0-9.-]+$`).MatchString(id) {
			t.Errorf("the identifier %q is not valid, or not unique", id)
		}
		ids[id] = true
		if p["name"] == "" || p["downloadLocation"] == "" || p["filesAnalyzed"] != false {
			t.Errorf("package %s: %v", id, p)
		}
	}
	described := 0
	for _, r := range d["relationships"].([]any) {
		r := r.(map[string]any)
		if !ids[r["spdxElementId"].(string)] || !ids[r["relatedSpdxElement"].(string)] {
			t.Errorf("the relation %v names a package that there is not", r)
		}
		if r["relationshipType"] == "DESCRIBES" {
			described++
		}
	}
	if described != 1 {
		t.Errorf("the document describes %d packages, want 1", described)
	}
}

// The checksum is that of the program's file.
func TestProgramHasItsChecksum(t *testing.T) {
	program := buildProgram(t)
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%x", sha256.Sum256(content))
	for _, p := range made(t, program)["packages"].([]any) {
		if sums, ok := p.(map[string]any)["checksums"]; ok {
			if got := sums.([]any)[0].(map[string]any); got["algorithm"] != "SHA256" || got["checksumValue"] != want {
				t.Errorf("checksum %v, want %s", got, want)
			}
			return
		}
	}
	t.Error("no package has a checksum")
}

// What is no Go program is refused with its name.
func TestOtherFilesAreRefused(t *testing.T) {
	if _, err := Make(Options{Programs: []string{"sbom.go"}}); err == nil || !strings.Contains(err.Error(), "sbom.go") {
		t.Errorf("got %v", err)
	}
}
