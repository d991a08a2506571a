package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// readCase reads a configuration of testdata/piped.
func readCase(t *testing.T, name string) *Piped {
	t.Helper()
	t.Setenv("HOME", "/home/someone")
	text, err := os.ReadFile("testdata/piped/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return parsePiped(t, "/etc/piped/piped.yaml", string(text))
}

func TestAccessIsReadWithDefaults(t *testing.T) {
	got := readCase(t, "valid-access").Access
	want := []Issuer{
		{
			Name: "corporate", Type: IssuerOIDC, Issuer: "https://login.example.com/realms/staff", ClientID: "piped", ClientSecretFile: "/etc/piped/secrets/oidc",
			Scopes: []string{"openid", "email", "groups"}, GroupsClaim: "roles", SubjectClaim: "preferred_username", AllowedDomains: []string{"example.com"},
		},
		{
			Name: "local", Type: IssuerOIDC, Issuer: "http://127.0.0.1:5556/dex", ClientID: "piped",
			Scopes: []string{"openid", "email", "profile"}, GroupsClaim: "groups", SubjectClaim: "email",
		},
		{
			Name: "github", Type: IssuerGitHub, ClientID: "Iv1.abc", ClientSecretFile: "/home/someone/github", APIURL: "https://api.github.com",
			Scopes: []string{"read:org"}, Teams: []string{"acme/payments"},
		},
		{
			Name: "enterprise", Type: IssuerGitHub, ClientID: "abc", ClientSecretFile: "/etc/piped/ghe", APIURL: "https://github.example.com/api/v3",
			Scopes: []string{"read:org", "read:user"},
		},
	}
	if diff := cmp.Diff(want, got.Issuers); diff != "" {
		t.Errorf("issuers: -want +got:\n%s", diff)
	}
	if got.ExternalURL != "https://piped.example.com" {
		t.Errorf("external URL %q", got.ExternalURL)
	}
}

// TestBuiltInRolesStandForTheirPermissions: roles may name them, and a role named like one
// has its permissions if it lists none.
func TestBuiltInRolesStandForTheirPermissions(t *testing.T) {
	roles := readCase(t, "valid-access").Access.Roles
	want := map[string][]deploy.Permission{
		"admin": {
			deploy.PermView, deploy.PermViewLogs, deploy.PermSync, deploy.PermApprove, deploy.PermCancel, deploy.PermRollback,
			deploy.PermEnable, deploy.PermDelete, deploy.PermEncrypt, deploy.PermKeys, deploy.PermAdminister,
		},
		"payments": {
			deploy.PermView, deploy.PermViewLogs, deploy.PermSync, deploy.PermCancel, deploy.PermRollback, deploy.PermEnable,
			deploy.PermEncrypt, deploy.PermApprove,
		},
		"viewer": {deploy.PermView, deploy.PermViewLogs},
		"ci":     {deploy.PermSync},
	}
	got := map[string][]deploy.Permission{}
	for _, r := range roles {
		got[r.Name] = r.Granted()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	selector := deploy.Selector{Labels: map[string]string{"team": "payments"}, Names: []string{"web", "pay-*"}, Repositories: []string{"apps"}}
	if diff := cmp.Diff(selector, roles[1].Selector()); diff != "" {
		t.Errorf("applications: -want +got:\n%s", diff)
	}
}

// TestClientSecretsAreSecretFiles: the agent reloads them, and checks who can read them.
func TestClientSecretsAreSecretFiles(t *testing.T) {
	p := readCase(t, "valid-access")
	for _, file := range []string{"/etc/piped/secrets/oidc", "/home/someone/github", "/etc/piped/ghe"} {
		if !slices.Contains(p.SecretFiles(), file) {
			t.Errorf("%s is missing in %q", file, p.SecretFiles())
		}
	}
}

func TestClientSecretIsRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	issuer := Issuer{Name: "staff", ClientSecretFile: file}
	write("hunter2\n")
	if got, err := issuer.Load(); err != nil || got.Reveal() != "hunter2" {
		t.Errorf("got %q, %v", got.Reveal(), err)
	}
	write(" \n")
	if _, err := issuer.Load(); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("an empty file: got %v, want an error of kind invalid", err)
	}
	if got, err := (Issuer{Name: "public"}).Load(); err != nil || !got.IsEmpty() {
		t.Errorf("a public client: %v", err)
	}
}
