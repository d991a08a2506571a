package sops

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"gopkg.in/yaml.v3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func file(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// keys returns the keys of testdata that are named.
func keys(t testing.TB, names ...string) *Keys {
	t.Helper()
	var ids []age.Identity
	keyring := ""
	for _, name := range names {
		data := file(t, "keys/"+name)
		if name != "age.txt" {
			keyring += string(data)
			continue
		}
		var err error
		if ids, err = age.ParseIdentities(bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	k, err := NewKeys(ids, keyring, "example passphrase", strings.Join(names, " "))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// parsed returns what a file says; texts of lines without comments and alignment.
func parsed(t *testing.T, name string, data []byte) any {
	t.Helper()
	switch filepath.Ext(name) {
	case ".key":
		return string(data)
	case ".env", ".ini":
		var lines []string
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line != "" && !strings.ContainsRune("#;", rune(line[0])) {
				key, value, _ := strings.Cut(line, "=")
				lines = append(lines, strings.TrimSpace(key)+"="+strings.TrimSpace(value))
			}
		}
		return lines
	}
	var docs []any
	for dec := yaml.NewDecoder(bytes.NewReader(bytes.ReplaceAll(data, []byte("\t"), []byte(" ")))); ; {
		var doc any
		if err := dec.Decode(&doc); err != nil {
			if err.Error() != "EOF" {
				t.Fatalf("%v\n%s", err, data)
			}
			return docs
		}
		docs = append(docs, doc)
	}
}

// TestFilesOfSOPS: of what sops itself encrypted in each format and by each rule comes
// what sops decrypts of it.
func TestFilesOfSOPS(t *testing.T) {
	files, err := filepath.Glob("testdata/files/*")
	if err != nil || len(files) < 12 {
		t.Fatal(files, err)
	}
	k := keys(t, "age.txt", "pgp.asc", "locked.asc")
	for _, name := range files {
		base := filepath.Base(name)
		t.Run(base, func(t *testing.T) {
			got, ok, err := k.Open(base, file(t, "files/"+base), Reveal)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			if diff := cmp.Diff(parsed(t, base, file(t, "want/"+base)), parsed(t, base, got.Data)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if strings.Contains(string(got.Data), "ENC[") || strings.Contains(string(got.Data), "sops") {
				t.Errorf("of the metadata or ciphertext something is left:\n%s", got.Data)
			}
		})
	}
}

// TestWhichKeysOpenWhat: any of the recipients is enough, of key groups as many as their
// threshold.
func TestWhichKeysOpenWhat(t *testing.T) {
	for name, want := range map[string][]string{
		"secret.yaml": {"age.txt"}, "values.yaml": {"pgp.asc"}, "locked.yaml": {"locked.asc"}, "whole.yaml": {"age.txt", "pgp.asc"}, "groups.yaml": nil,
	} {
		var opened []string
		for _, key := range []string{"age.txt", "pgp.asc", "locked.asc"} {
			if _, _, err := keys(t, key).Open(name, file(t, "files/"+name), Reveal); err == nil {
				opened = append(opened, key)
			} else if !strings.Contains(err.Error(), "none of the agent's SOPS keys opens it: add a recipient of the agent to it") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if !reflect.DeepEqual(opened, want) {
			t.Errorf("%s is opened by %v, want %v", name, opened, want)
		}
	}
	for _, pair := range [][]string{{"age.txt", "pgp.asc"}, {"age.txt", "locked.asc"}, {"pgp.asc", "locked.asc"}} {
		if _, _, err := keys(t, pair...).Open("groups.yaml", file(t, "files/groups.yaml"), Reveal); err != nil {
			t.Errorf("%v: %v", pair, err)
		}
	}
}

// TestChangedFiles: what was changed without sops is refused, wherever.
func TestChangedFiles(t *testing.T) {
	k := keys(t, "age.txt")
	whole := string(file(t, "files/secret.yaml"))
	values := encryptedTexts(whole)
	if len(values) < 3 {
		t.Fatal(values)
	}
	for name, changed := range map[string]string{
		"an unencrypted value":   strings.Replace(whole, "name: database", "name: other", 1),
		"a value more":           strings.Replace(whole, "metadata:", "metadata:\n    namespace: other", 1),
		"a value elsewhere":      strings.Replace(whole, values[0], values[1], 1),
		"an encrypted value":     strings.Replace(whole, ",data:", ",data:AAAA", 1),
		"a value in plain":       strings.Replace(whole, values[0], "aHVudGVyMg==", 1),
		"the MAC":                strings.Replace(whole, values[len(values)-1], values[0], 1),
		"the time":               strings.Replace(whole, "lastmodified: \"2026", "lastmodified: \"2027", 1),
		"the rule":               strings.Replace(whole, "^(data|stringData)$", "^nothing$", 1),
		"the rule, with aliases": strings.Replace(strings.Replace(whole, "name: database", "name: *a", 1), "kind: Secret", "kind: &a Secret", 1),
	} {
		if changed == whole {
			t.Fatal(name)
		}
		f, ok, err := k.Open("secret.yaml", []byte(changed), Reveal)
		if err == nil || !ok || f.Data != nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, %q, %v", name, ok, f.Data, err)
		}
	}
}

// encryptedTexts returns the texts in the format of SOPS in a file.
func encryptedTexts(text string) (out []string) {
	for line := range strings.Lines(text) {
		if at := strings.Index(line, "ENC["); at >= 0 {
			out = append(out, strings.TrimSpace(line[at:]))
		}
	}
	return out
}

func TestKeysOfCloudsAreRefused(t *testing.T) {
	text := string(file(t, "files/secret.yaml"))
	begin, end := strings.Index(text, "    age:"), strings.Index(text, "    encrypted_regex:")
	text = text[:begin] + "    kms:\n        - arn: arn:aws:kms:eu-west-1:1:key/a\n          created_at: \"2026-01-01T00:00:00Z\"\n          enc: AQIC\n" + text[end:]
	for _, how := range []How{Reveal, Conceal, Placeholders} {
		_, ok, err := keys(t, "age.txt").Open("secret.yaml", []byte(text), how)
		want := "none of the agent's SOPS keys opens it, and keys of AWS KMS are not used: add an age or PGP recipient of the agent to it, with sops updatekeys or sops rotate"
		if !ok || err == nil || err.Error() != want {
			t.Errorf("got %v, %v, want %s", ok, err, want)
		}
	}
}

// TestSecretsAreKnown: what was encrypted is known to who takes it out of messages, also
// as it is behind the base64 of a Secret; what names the object is not among it.
func TestSecretsAreKnown(t *testing.T) {
	k := keys(t, "age.txt", "pgp.asc")
	f, _, err := k.Open("secret.yaml", file(t, "files/secret.yaml"), Reveal)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"aHVudGVyMi1odW50ZXIy", "hunter2-hunter2", "postgres://shop:hunter2-hunter2@db/shop"} {
		if !slices.Contains(f.Secrets, want) {
			t.Errorf("%q is not among %q", want, f.Secrets)
		}
	}
	if f, _, err = k.Open("whole.yaml", file(t, "files/whole.yaml"), Reveal); err != nil || slices.Contains(f.Secrets, "ConfigMap") || slices.Contains(f.Secrets, "whole") || !slices.Contains(f.Secrets, "123456789012") {
		t.Errorf("got %q, %v", f.Secrets, err)
	}
}

// TestNamesOfObjects: only what names an object is shown of it.
func TestNamesOfObjects(t *testing.T) {
	for path, want := range map[string]bool{
		"apiVersion": true, "kind": true, "metadata.name": true, "metadata.namespace": true, "metadata.labels.app": true,
		"metadata.annotations.auth": false, "metadata": false, "data.name": false,
	} {
		if got := namesObject(strings.Split(path, ".")); got != want {
			t.Errorf("%s: got %v", path, got)
		}
	}
}

// TestStandIns: nothing of the values is in what is shown, and what is rendered from it
// has the types that the values have.
func TestStandIns(t *testing.T) {
	k := keys(t, "age.txt", "pgp.asc", "locked.asc")
	for _, how := range []How{Conceal, Placeholders} {
		for _, name := range []string{"secret.yaml", "whole.yaml", "values.yaml", "config.json", "app.env", "app.ini", "tls.key", "groups.yaml"} {
			use := k
			if how == Placeholders {
				use = nil
			}
			first, ok, err := use.Open(name, file(t, "files/"+name), how)
			if err != nil || !ok || len(first.Secrets) > 0 {
				t.Fatal(name, ok, err, first.Secrets)
			}
			again, _, _ := use.Open(name, file(t, "files/"+name), how)
			if !bytes.Equal(first.Data, again.Data) {
				t.Errorf("%s: not the same twice:\n%s\n%s", name, first.Data, again.Data)
			}
			parsed(t, name, first.Data)
			for _, secret := range []string{"hunter2", base64.StdEncoding.EncodeToString([]byte("hunter2-hunter2")), "correct-horse", "s3cr3t", "abcdefgh", "first line", "123456789012", "ENC["} {
				if strings.Contains(string(first.Data), secret) {
					t.Errorf("%s shows %s:\n%s", name, secret, first.Data)
				}
			}
		}
	}
	f, _, err := k.Open("whole.yaml", file(t, "files/whole.yaml"), Conceal)
	if err != nil || !strings.Contains(string(f.Data), "kind: ConfigMap") || !strings.Contains(string(f.Data), "name: whole") {
		t.Errorf("%v: the object has no name:\n%s", err, f.Data)
	}
}

// TestOtherFiles are left as they are.
func TestOtherFiles(t *testing.T) {
	k := keys(t, "age.txt")
	secret := string(file(t, "files/secret.yaml"))
	for name, text := range map[string]string{
		"plain.yaml":    "kind: Secret\nsops: yes\n",
		"about.md":      "sops writes ENC[AES256_GCM,data:...]\n",
		"template.yaml": "{{ if .sops }}\na: ENC[AES256_GCM,data:x]\n{{ end }}",
		"operator.yaml": strings.Replace(secret, "kind: Secret", "kind: SopsSecret", 1),
		"large.yaml":    secret + strings.Repeat("#", MaxSize),
	} {
		if f, ok, err := k.Open(name, []byte(text), Reveal); ok || err != nil || f.Data != nil {
			t.Errorf("%s: got %v, %v", name, ok, err)
		}
	}
	var none *Keys
	if _, ok, err := none.Open("secret.yaml", []byte(secret), Reveal); !ok || err == nil || !strings.Contains(err.Error(), "the agent has no keys for it: add sops to its configuration") {
		t.Errorf("without keys: got %v, %v", ok, err)
	}
}

// TestFilesThatAreBombs: what a file of the largest size holds costs neither much time
// nor much memory, no matter which keys open it.
func TestFilesThatAreBombs(t *testing.T) {
	const head = "x: ENC[AES256_GCM,data]\n"
	fill := func(begin, unit, end string) []byte {
		return []byte(begin + strings.Repeat(unit, (MaxSize-len(begin)-len(end)-1)/len(unit)) + end)
	}
	numbered := func(format string) []byte {
		out := []byte("sops_mac=ENC[AES256_GCM,\n")
		for i := 0; len(out) < MaxSize-100; i++ {
			out = fmt.Appendf(out, format, i)
		}
		return out
	}
	recipient := "\n    - enc: |\n        " + strings.Repeat("A", 60)
	for name, c := range map[string]struct {
		file string
		data []byte
	}{
		"a text of many lines":   {"a.ini", fill("[sops]\nmac=ENC[AES256_GCM,\nx = \"\"\"\n", "\n", "")},
		"long lists":             {"a.env", numbered("sops_a%d__list_1000__map_x=\n")},
		"lists in lists":         {"a.env", numbered("sops_a__list_900__map_b%d__list_900__map_x=\n")},
		"lists of no mappings":   {"a.yaml", []byte(head + "sops: {mac: a, age: [1, [2], {enc: [3]}]}\n")},
		"recipients":             {"a.yaml", fill(head+"sops:\n  mac: a\n  lastmodified: \"2026-01-01T00:00:00Z\"\n  age:", recipient, "\n")},
		"a large rule":           {"a.yaml", fill(head+"sops: {mac: a, lastmodified: \"2026-01-01T00:00:00Z\", age: [{enc: a}], encrypted_regex: \"", "a?", "\"}\n")},
		"values behind long key": {"a.json", fill(`{"x": "ENC[AES256_GCM,", "sops": {"mac": "a", "lastmodified": "2026-01-01T00:00:00Z", "age": [{"enc": "a"}]}, "`+strings.Repeat("k", MaxSize/2)+`": [""`, `,""`, "]}")},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begin := time.Now()
			_, _, err := keys(t, "age.txt").Open(c.file, c.data, Placeholders)
			runtime.ReadMemStats(&after)
			t.Logf("%v after %s and %d MiB", err, time.Since(begin), (after.TotalAlloc-before.TotalAlloc)>>20)
			if took := time.Since(begin); took > time.Minute || after.TotalAlloc-before.TotalAlloc > 1<<30 {
				t.Errorf("it took %s and %d MiB", took, (after.TotalAlloc-before.TotalAlloc)>>20)
			}
		})
	}
	w := walker{rules: rules{encryptedComment: regexp.MustCompile("x")}, leaf: func(_ []string, v any, _ bool) (any, error) { return v, nil }}
	var m mapping
	for range 200_000 {
		m = append(m, entry{value: comment("y")})
	}
	begin := time.Now()
	if _, err := w.mapping(append(m, entry{"a", slices.Repeat([]any{"v"}, 200_000)}), place{}); err != nil || time.Since(begin) > time.Minute {
		t.Errorf("%v after %s", err, time.Since(begin))
	}
}

func TestKeysThatAreRefused(t *testing.T) {
	locked := string(file(t, "keys/locked.asc"))
	for name, c := range map[string]struct{ keyring, passphrase, want string }{
		"no key":             {"secret", "", "expected a PGP private key in ASCII armor"},
		"damaged":            {locked[:400] + "\n-----END PGP PRIVATE KEY BLOCK-----\n", "", "the PGP key cannot be read"},
		"without passphrase": {locked, "", "has a passphrase, and it is not the one"},
		"another passphrase": {locked, "guess", "has a passphrase, and it is not the one"},
	} {
		if _, err := NewKeys(nil, c.keyring, c.passphrase, ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// FuzzOpen: whatever a file holds, it is opened or refused.
func FuzzOpen(f *testing.F) {
	for _, name := range []string{"secret.yaml", "config.json", "app.env", "app.ini", "tls.key", "groups.yaml"} {
		f.Add(name, file(f, "files/"+name))
	}
	k := keys(f, "age.txt")
	f.Fuzz(func(_ *testing.T, name string, data []byte) {
		for _, how := range []How{Reveal, Placeholders} {
			_, _, _ = k.Open(name, data, how)
		}
	})
}
