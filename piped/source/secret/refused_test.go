package secret

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/Masterminds/sprig/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

func TestFilesThatAreRefused(t *testing.T) {
	keys, _ := ageKeys(t)
	broken := encryption(t, keys, "a.yaml")
	broken.EncryptedSecrets = map[string]string{"password": "hunter2-hunter2", "token": "hunter2-hunter2"}
	sources := map[string]string{"conf": "conf"}
	tests := []struct {
		name  string
		files fstest.MapFS
		enc   *config.Encryption
		att   *config.Attachment
		want  string
	}{
		{"no age files", files("apps/web/a.yaml", ""), broken, nil,
			"apps/web/app.pipecd.yaml:5: spec.encryption.encryptedSecrets.password: expected an age file, armored or in base64; age --armor -r <recipient> makes one\n" +
				"apps/web/app.pipecd.yaml:5: spec.encryption.encryptedSecrets.token: expected an age file, armored or in base64; age --armor -r <recipient> makes one"},
		{"missing targets", files("apps/web/x", ""), encryption(t, keys, "a.yaml", "b.yaml"), nil,
			"apps/web/app.pipecd.yaml:5: spec.encryption.decryptionTargets[0]: there is no file apps/web/a.yaml in the commit\n" +
				"apps/web/app.pipecd.yaml:5: spec.encryption.decryptionTargets[1]: there is no file apps/web/b.yaml in the commit"},
		{"a missing source", files("apps/web/a.yaml", ""), nil, attachment(sources, "a.yaml"),
			"apps/web/app.pipecd.yaml:9: spec.attachment.sources.conf: there is no file apps/web/conf in the commit"},
		{"a directory", files("apps/web/a.yaml", "", "apps/web/conf/x", ""), nil, attachment(sources, "a.yaml"),
			"apps/web/app.pipecd.yaml:9: spec.attachment.sources.conf: apps/web/conf is not a regular file"},
		{"above", files("apps/web/a.yaml", "", "apps/key", ""), nil, attachment(map[string]string{"conf": "../key"}, "a.yaml"),
			`apps/web/app.pipecd.yaml:9: spec.attachment.sources.conf: expected the name of a file inside the application's directory, found "../key"`},
		{"a link out of the directory", files("apps/web/a.yaml", "", "apps/web/conf", "-> ../key", "apps/key", ""), nil, attachment(sources, "a.yaml"),
			"apps/web/app.pipecd.yaml:9: spec.attachment.sources.conf: conf is a symbolic link out of the application's directory, to apps/key; only the application's own files can be named"},
		{"a target that is a link out", files("apps/web/a.yaml", "-> ../web2/a.yaml", "apps/web2/a.yaml", ""), encryption(t, keys, "a.yaml"), nil,
			"apps/web/app.pipecd.yaml:5: spec.encryption.decryptionTargets[0]: a.yaml is a symbolic link out of the application's directory, to apps/web2/a.yaml; only the application's own files can be named"},
		{"through a directory that is a link out", files("apps/web/a.yaml", "", "apps/web/d", "-> ../../keys", "keys/conf", ""), nil, attachment(map[string]string{"conf": "d/conf"}, "a.yaml"),
			"apps/web/app.pipecd.yaml:9: spec.attachment.sources.conf: d/conf is a symbolic link out of the application's directory, to keys/conf; only the application's own files can be named"},
		{"a link out of the repository", files("apps/web/a.yaml", "", "apps/web/conf", "-> ../../../etc/passwd"), nil, attachment(sources, "a.yaml"),
			"apps/web/app.pipecd.yaml:9: spec.attachment.sources.conf: apps/web/conf: a symbolic link points out of the repository"},
		{"an absolute link", files("apps/web/a.yaml", "", "apps/web/conf", "-> /etc/passwd"), nil, attachment(sources, "a.yaml"),
			"apps/web/app.pipecd.yaml:9: spec.attachment.sources.conf: apps/web/conf: a symbolic link points out of the repository"},
		{"a link to itself", files("apps/web/a.yaml", "", "apps/web/conf", "-> conf"), nil, attachment(sources, "a.yaml"),
			"apps/web/app.pipecd.yaml:9: spec.attachment.sources.conf: apps/web/conf: too many symbolic links"},
		{"a source that is a target", files("apps/web/conf", ""), nil, attachment(sources, "conf"),
			"apps/web/app.pipecd.yaml:9: spec.attachment.sources.conf: apps/web/conf is among the targets, too; a file is one of both"},
		{"too large", files("apps/web/a.yaml", strings.Repeat(" ", maxText+1)), encryption(t, keys, "a.yaml"), nil,
			"apps/web/a.yaml: the file is larger than 1048576 bytes, which templates and attachments may have"},
	}
	for _, tt := range tests {
		_, err := New(keys).Tree(t.Context(), tt.files, dir, tt.enc, tt.att)
		if err == nil || !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("%s: got %v, want an error of kind invalid", tt.name, err)
			continue
		}
		if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}

// TestTemplatesThatAreRefused: the errors name file and line, and never a secret.
func TestTemplatesThatAreRefused(t *testing.T) {
	keys, _ := ageKeys(t)
	tests := map[string]string{ // the text after two empty lines to the error
		"{{ .encryptedSecrets.passwort }}":                               "there is no passwort in spec.encryption.encryptedSecrets, only password",
		"{{ $.encryptedSecrets.passwort }}":                              "there is no passwort in spec.encryption.encryptedSecrets, only password",
		"{{ .attachment.conf }}":                                         "there is no conf in spec.attachment.sources; decryption targets see only sources that are not decryption targets themselves",
		"{{ .secrets.password }}":                                        `map has no entry for key "secrets"`,
		"{{ .encryptedSecrets.password.x }}":                             "can't evaluate field x in type string",
		"{{ .encryptedSecrets.password }":                                `unexpected "}" in operand`,
		"{{ if }}":                                                       "missing value for if",
		"{{ env \"HOME\" }}":                                             "the function env is not allowed: what a template makes may depend on its arguments only",
		"{{ now }}":                                                      "the function now is not allowed: what a template makes may depend on its arguments only",
		"{{ readFile \"x\" }}":                                           `function "readFile" not defined`,
		"{{ _emit 1 }}":                                                  `function "_emit" not defined`,
		"{{ fail .encryptedSecrets.password }}":                          "the function fail failed (why is not shown: it may hold a secret)",
		"{{ .encryptedSecrets.password | mustFromJson }}":                "the function mustFromJson failed (why is not shown: it may hold a secret)",
		"{{ mustRegexFind .encryptedSecrets.password `)` }}":             "",
		"{{ mustRegexFind (print `(` .encryptedSecrets.password) `a` }}": "the function mustRegexFind failed (why is not shown: it may hold a secret)",
		"{{ semver .encryptedSecrets.password }}":                        "the function semver failed (why is not shown: it may hold a secret)",
		"{{ range .encryptedSecrets.password.x }}{{ end }}":              "can't evaluate field x in type string",
		"{{ range $i, $j := true }}{{ end }}":                            "the template cannot be rendered (why is not shown: it may hold a secret)",
		"{{ range (list .encryptedSecrets.password | first | print | quote | len | add 1 | float64) }}{{ end }}":                                      "the template cannot be rendered (why is not shown: it may hold a secret)",
		"{{ $x := list (print `>: can't evaluate field ` (replace `-` `` .encryptedSecrets.password) ` in type x`) }}{{ range index $x 0 }}{{ end }}": "the template cannot be rendered (why is not shown: it may hold a secret)",
		"{{ template `x` }}":                            `template "x" not defined`,
		"{{ trunc 1 2 3 }}":                             "wrong number of args for trunc: want 2 got 3",
		"{{ trunc `a` .encryptedSecrets.password }}":    "the template cannot be rendered (why is not shown: it may hold a secret)",
		"{{ index .encryptedSecrets.password `x` }}":    "the function index failed (why is not shown: it may hold a secret)",
		"{{ fail `: map has no entry for key \"x\"` }}": "the function fail failed (why is not shown: it may hold a secret)",
		"{{ first .encryptedSecrets.password }}":        "the function first failed (why is not shown: it may hold a secret)",
		"{{ div 1 0 }}":                                 "the function div failed (why is not shown: it may hold a secret)",
		"{{ repeat -1 .encryptedSecrets.password }}":    "the function repeat failed (why is not shown: it may hold a secret)",
	}
	for text, want := range tests {
		_, err := New(keys).Tree(t.Context(), files("apps/web/a.yaml", "\n\n"+text), dir, encryption(t, keys, "a.yaml"), nil)
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if err == nil || err.Error() != "apps/web/a.yaml:3: "+want || !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
		for _, shown := range []string{fmt.Sprint(err), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)} {
			if strings.Contains(shown, "hunter2") {
				t.Errorf("%s: the secret is shown: %s", text, shown)
			}
		}
	}
}

func TestWithoutSecretsErrorsSayWhy(t *testing.T) {
	_, err := New(nil).Tree(t.Context(), files("apps/web/a.yaml", "{{ fail .attachment.conf }}", "apps/web/conf", "too old"), dir,
		nil, attachment(map[string]string{"conf": "conf"}, "a.yaml"))
	want := `apps/web/a.yaml:1: executing "apps/web/a.yaml" at <fail .attachment.conf>: error calling fail: too old`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestTemplatesThatComputeTooMuch: each would take the memory or the time of the
// agent, or end it by a stack without end. They may spend less here than they may.
func TestTemplatesThatComputeTooMuch(t *testing.T) {
	tests := map[string]error{
		"{{ range 1000000000000 }}{{ end }}":                                        errBudget,
		"{{ range until 1000000000 }}{{ end }}":                                     errBudget,
		"{{ range untilStep 9223372036854775800 9223372036854775807 10 }}{{ end }}": errBudget,
		"{{ untilStep 0 1000000000 2 | len }}":                                      errBudget,
		"{{ seq 0 1 1000000000 }}":                                                  errBudget,
		"{{ repeat 1000000000 `x` }}":                                               errBudget,
		"{{ indent 1000000000 `x` }}":                                               errBudget,
		"{{ printf `%*d` 1000000 1 }}{{ range until 1000 }}{{ printf `%1000000d` 1 | len }}{{ end }}":                                                   errBudget,
		"{{ $s := `xxxxxxxx` }}{{ range until 60 }}{{ $s = print $s $s }}{{ end }}":                                                                     errBudget,
		"{{ $l := list 1 }}{{ range until 30 }}{{ $l = concat $l $l }}{{ end }}":                                                                        errBudget,
		"{{ $l := list 1 }}{{ range until 30 }}{{ $l = list $l $l }}{{ end }}{{ $l }}":                                                                  errBudget,
		"{{ $l := list 1 }}{{ range until 100 }}{{ $l = list $l }}{{ end }}":                                                                            errDepth,
		"{{ $d := dict }}{{ $_ := set $d `a` $d }}{{ $d }}":                                                                                             errDepth,
		"{{ $d := dict }}{{ $_ := set $d `a` $d }}{{ toJson $d }}":                                                                                      errDepth,
		"{{ $s := repeat 100000 `ab` }}{{ replace `a` $s $s | len }}":                                                                                   errBudget,
		"{{ $s := repeat 100000 `ab` }}{{ regexReplaceAll `a` $s $s | len }}":                                                                           errBudget,
		"{{ $s := repeat 100000 `ab ` }}{{ wrapWith 1 $s $s | len }}":                                                                                   errBudget,
		"{{ join (repeat 100000 `ab`) (until 10000) | len }}":                                                                                           errBudget,
		"{{ define `x` }}{{ if lt (len .) 30 }}{{ template `x` (print . `x`) }}{{ template `x` (print . `x`) }}{{ end }}{{ end }}{{ template `x` `` }}": errBudget,
		"{{ define `x` }}{{ template `x` }}{{ end }}{{ template `x` }}":                                                                                 errBudget,
		"{{ $s := repeat 1000000 `x` }}" + strings.Repeat("{{ $s }}", 100):                                                                              errBudget,
		"{{ until 100000 | uniq | len }}":                                                                                                               errBudget,
		"{{ $l := until 100000 }}{{ without $l 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 | len }}":                                       errBudget,
		"{{ regexMatch `a{1000}` (repeat 100000 `a`) }}":                                                                                                errBudget,
		"{{ range until 1000 }}{{ . | toString | repeat 1000000 }}{{ end }}":                                                                            errBudget,
	}
	for text, want := range tests {
		_, err := data{}.render(&meter{ctx: t.Context(), left: budget / 8}, "a.yaml", text)
		if err == nil || !strings.HasSuffix(err.Error(), ": "+want.Error()) || !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("%.80s: got %v, want %v", text, err, want)
		}
	}
}

// TestBudgetIsShared: the targets of one application spend it together.
func TestBudgetIsShared(t *testing.T) {
	tree := files("apps/web/a.yaml", "{{ $s := repeat 1000000 `x` }}{{ $s }}", "apps/web/conf", "")
	var targets []string
	for i := range 20 {
		name := fmt.Sprintf("%d.yaml", i)
		tree["apps/web/"+name] = tree["apps/web/a.yaml"]
		targets = append(targets, name)
	}
	_, err := New(nil).Tree(t.Context(), tree, dir, nil, attachment(map[string]string{"conf": "conf"}, targets...))
	if err == nil || !strings.Contains(err.Error(), errBudget.Error()) {
		t.Errorf("got %v, want %v", err, errBudget)
	}
	if _, err := New(nil).Tree(t.Context(), tree, dir, nil, attachment(map[string]string{"conf": "conf"}, targets[:2]...)); err != nil {
		t.Error(err)
	}
}

// TestFunctions: every function of sprig is either allowed, or here, with the
// reason for which it is not.
func TestFunctions(t *testing.T) {
	forbidden := map[string][]string{
		"the environment": {"env", "expandenv"},
		"the network":     {"getHostByName"},
		"the clock, or the zone it is in": {"now", "ago", "date", "date_in_zone", "date_modify", "dateInZone", "dateModify", "htmlDate", "htmlDateInZone",
			"must_date_modify", "mustDateModify", "mustToDate", "toDate", "unixEpoch"},
		"randomness": {"randAlphaNum", "randAlpha", "randAscii", "randNumeric", "randInt", "randBytes", "shuffle", "uuidv4", "bcrypt", "htpasswd",
			"genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey", "encryptAES"},
		"slowness":   {"derivePassword"},
		"no meaning": {"hello"},
	}
	var all []string
	for _, names := range forbidden {
		all = append(all, names...)
	}
	slices.Sort(all)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(sprig.TxtFuncMap())), slices.Sorted(slices.Values(append(slices.Clone(all), allowed...)))); diff != "" {
		t.Errorf("-sprig +known:\n%s", diff)
	}
	have := functions(&meter{ctx: t.Context(), left: budget})
	for _, name := range all {
		if _, there := have[name]; there {
			t.Errorf("%s can be called", name)
		}
	}
	for _, name := range allowed {
		if _, there := have[name]; !there {
			t.Errorf("%s cannot be called", name)
		}
	}
}
