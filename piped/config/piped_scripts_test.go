package config

import (
	"strings"
	"testing"
)

func TestScriptsUser(t *testing.T) {
	parse := func(scripts string) (*Piped, []string, error) {
		return kinds.ParsePiped("/etc/piped/piped.yaml", []byte(pipedHead+"  dataDir: /var/lib/piped\n  scripts: "+scripts+"\n"))
	}
	for scripts, want := range map[string]ScriptsUser{
		"{}":                   {},
		"{user: {uid: 64100}}": {UID: 64100, Count: 1},
		"{isolation: user, user: {uid: 64100, gid: 100, count: 8, directory: ../../var/lib/}}": {UID: 64100, GID: 100, Count: 8, Directory: "/var/lib"},
	} {
		p, warnings, err := parse(scripts)
		if err != nil || len(warnings) != 0 || p.Scripts.User != want {
			t.Errorf("%s: %+v, %q, %v, want %+v", scripts, p, warnings, err, want)
		}
	}
	for scripts, want := range map[string]string{
		"{isolation: user}":                             "scripts.user.uid: required with scripts.isolation: user",
		"{user: {count: 2}}":                            "scripts.user.uid: required: a user other than root that runs nothing but scripts",
		"{user: {uid: -1}}":                             "scripts.user.uid: expected a number from 1 to 4294967294 with scripts.user.count, found -1",
		"{user: {uid: 4294967290, count: 9}}":           "scripts.user.uid: expected a number from 1 to 4294967294 with scripts.user.count, found 4294967290",
		"{user: {uid: 1, gid: -1}}":                     "scripts.user.gid: expected a number from 1 to 4294967294, found -1",
		"{user: {uid: 1, count: -1}}":                   "scripts.user.count: expected 1 or more, found -1",
		"{user: {uid: 1, directory: /var/lib/piped/x}}": "scripts.user.directory: /var/lib/piped/x lies in the agent's data directory (/var/lib/piped), which only the agent enters",
	} {
		if _, _, err := parse(scripts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", scripts, err, want)
		}
	}
	if _, warnings, err := parse("{isolation: none, user: {uid: 64100}}"); err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "scripts.user has no effect with scripts.isolation: none") {
		t.Errorf("a user without effect: %q, %v", warnings, err)
	}
}

// TestSecretFiles: what is made to be public is none of the secrets.
func TestSecretFiles(t *testing.T) {
	p := Piped{
		API: API{TLSCertFile: "/api.crt", TLSKeyFile: "/api.key"}, Git: Git{SSHKeyFile: "/id", PasswordFile: "/token", KnownHostsFile: "/known_hosts"},
		SecretManagement: SecretManagement{Config: &KeyPair{PrivateKeyFile: "/private", PublicKeyFile: "/public"}},
	}
	if got := strings.Join(p.SecretFiles(), " "); got != "/api.key /id /private /token" {
		t.Errorf("secrets: %s", got)
	}
}
